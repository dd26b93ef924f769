"""Gangs that ask for cards in every spelling, on the whole line."""

from muster.decide.cards import normalise_containers
from tests.line import Line

SERVICES = ("watcher", "scheduler")


async def create_gang(
    line: Line,
    name: str,
    limits: dict,
    *,
    pods: int = 1,
    annotations: dict | None = None,
    rewritten: bool = True,
    containers: list | None = None,
    **spec,
) -> None:
    """A PodGroup and its pods; `rewritten`: as the controller makes them, with the cards in one form."""
    await line.writer.create(
        "podgroups.scheduling.volcano.sh",
        "default",
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": pods, "queue": "default"}},
    )
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": {"limits": limits}}
    template = {
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": name, **(annotations or {})}},
        "spec": {
            "schedulerName": "muster",
            "restartPolicy": "Never",
            "containers": containers or [container],
            **spec,
        },
    }
    if rewritten:
        normal = normalise_containers(template)
        assert not normal.problems, normal.problems
        template = normal.template
    for number in range(pods):
        metadata = {**template["metadata"], "name": f"{name}-{number}", "namespace": "default"}
        await line.writer.create("pods", "default", {**template, "metadata": metadata})


def phase(line: Line, name: str) -> str:
    """The phase of a pod, '' when it is not there."""
    pod = line.sim.store.find("pods", "default", name)
    return "" if pod is None else (pod.get("status") or {}).get("phase", "")


def pod(line: Line, name: str, namespace: str = "default") -> dict:
    """A pod as the API server has it."""
    return line.sim.store.get("pods", namespace, name)


def running(line: Line, *names: str):
    """A condition: all these pods run."""
    return lambda: all(phase(line, name) == "Running" for name in names)


async def reason_of(line: Line, gang: str):
    """The reason code under which a gang waits, or None."""
    return next((row for row in (await line.client.gangs()).gangs if row.gang == gang and row.code), None)


def metric(line: Line, name: str) -> float | None:
    """A metric of the scheduler."""
    return line.contexts["scheduler"].metrics.get_sample_value(name)
