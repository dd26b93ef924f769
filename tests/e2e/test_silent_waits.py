"""No job waits in silence: each cause has its reason and what would cure it, in the explanation, in conditions and in Events.

The whole line in one process; each case makes its own objects, and takes them away again.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from muster.bus.server import EmbeddedServer
from muster.cli.explain import text
from tests.line import Line
from tests.nats_fixtures import eventually

PODGROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
CLASSES = "priorityclasses.scheduling.k8s.io"
GROUP = "scheduling.k8s.io/group-name"


class Case(NamedTuple):
    """A PodGroup (or none) and its pods, and what must be said of them."""

    says: str
    code: str
    fix: str = ""
    cards: int = 1
    pods: int = 1
    minimum: int | None = None
    group: dict[str, Any] | None = {}  # noqa: RUF012  (read only)
    """Its spec beside minMember; None: there is no PodGroup, though the pods name one."""
    annotations: dict[str, str] = {}  # noqa: RUF012
    spec: dict[str, Any] = {}  # noqa: RUF012
    namespace: str = "default"
    bare: bool = False
    """The pods name no PodGroup."""
    reason: str = "SchedulingBlocked"
    """Of the pods' condition PodScheduled."""
    fact: tuple[str, str] = ("", "")
    """Label of a line of the explanation, and what it must say."""


TOO_LARGE = {"cards": 9, "code": "NEVER_FITS", "fix": "no node is as large", "reason": "Unschedulable"}
CASES = {
    "an annotation is misspelt": Case(
        says="there is no annotation muster.dev/topology-requird; did you mean muster.dev/topology-required?",
        annotations={"muster.dev/topology-requird": "rack"},
        fact=("note", "did you mean muster.dev/topology-required?"),
        **TOO_LARGE,
    ),
    "a duration cannot be read": Case(
        says="2 hors",
        annotations={"muster.dev/expected-duration": "2 hors"},
        fact=("note", "write 90s, 30m, 2h30m"),
        **TOO_LARGE,
    ),
    "the queue does not exist": Case(
        says="queue train-prd does not exist; queues here: ",
        code="QUEUE_UNKNOWN",
        fix="name queue train-prod",
        group={"queue": "train-prd"},
        reason="QuotaBlocked",
    ),
    "the queue is closed": Case(
        says="queue shut is closed and takes no jobs",
        code="QUEUE_CLOSED",
        fix="have queue shut opened, or name another queue",
        group={"queue": "shut"},
        reason="QuotaBlocked",
    ),
    "the namespace names a queue that does not exist": Case(
        says="queue nowhere does not exist",
        code="QUEUE_UNKNOWN",
        fix="create queue nowhere, or name another one",
        namespace="lost",
        bare=True,
        reason="QuotaBlocked",
        fact=("queue", "named by the annotation volcano.sh/queue of namespace lost"),
    ),
    "the queue is capped below what is asked": Case(
        says="it asks 4 cards, queue capped is capped at 2 cards",
        code="QUEUE_CAPABILITY",
        fix="ask for at most 2 cards, or have the cap raised (muster get queue capped)",
        cards=4,
        group={"queue": "capped"},
        reason="QuotaBlocked",
    ),
    "the cap is used up by others": Case(
        says="asks 2 cards; queue used uses 1 card of its limit 2 cards",
        code="QUEUE_CAPABILITY",
        fix="wait until jobs of queue used end, ask for less, or have its cap of 2 cards raised",
        cards=2,
        group={"queue": "used"},
        reason="QuotaBlocked",
    ),
    "the PodGroup's class stands above the pods' own": Case(
        says="9 cards",
        group={"priorityClassName": "high"},
        spec={"priorityClassName": "low"},
        fact=("priority", "1000 (class high of its PodGroup; its pods say low (10))"),
        **TOO_LARGE,
    ),
    "the default class is given to a job that names none": Case(
        says="9 cards",
        bare=True,
        fact=("priority", "50 (class usual, which is the cluster's default)"),
        **TOO_LARGE,
    ),
    "the priority class does not exist": Case(
        says="its PodGroup names the PriorityClass hihg, which does not exist; did you mean high?",
        code="PRIORITY_CLASS_MISSING",
        fix="create the PriorityClass, or name another one in the PodGroup",
        group={"priorityClassName": "hihg"},
        fact=("priority", "its PodGroup names the class hihg, which does not exist"),
    ),
    "the PodGroup does not exist": Case(
        says="which does not exist",
        code="NO_PODGROUP",
        fix="create that PodGroup, or correct the pods' annotation scheduling.k8s.io/group-name",
        group=None,
    ),
    "a claim does not exist": Case(
        says="mounts the PersistentVolumeClaim gone, which does not exist",
        code="CLAIM_MISSING",
        fix="create the PersistentVolumeClaim, or correct the name in the pods' volumes",
        spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]},
    ),
    "the selector matches no value": Case(
        says="none of 2 nodes may take it: 2 do not match the nodeSelector; none has pool=a10, there are a100",
        code="NO_MATCHING_NODE",
        fix="correct the nodeSelector pool=a10 (there are a100), or label nodes so",
        spec={"nodeSelector": {"pool": "a10"}},
        reason="Unschedulable",
    ),
    "the selector names a label that no node has": Case(
        says="no node has a label pol; did you mean pool?",
        code="NO_MATCHING_NODE",
        fix="correct the nodeSelector pol=a100",
        spec={"nodeSelector": {"pol": "a100"}},
        reason="Unschedulable",
    ),
    "pods are gated": Case(
        says="1 pod of the minimum 2 exist; 1 more must be created",
        code="TOO_FEW_PODS",
        fix="create 1 pod more, or lower the minimum of 2",
        minimum=2,
    ),
    "all its pods are gated": Case(
        says="2 pods more have scheduling gates",
        code="TOO_FEW_PODS",
        fix="remove the scheduling gates of 2 pods",
        pods=2,
        spec={"schedulingGates": [{"name": "registry.example.com/quota"}]},
        reason="SchedulingGated",
    ),
    "more nodes would cure it": Case(
        says="the whole cluster, when empty, holds 2 of 3 pods",
        code="NEVER_FITS",
        fix="let at most 2 pods start together",
        cards=8,
        pods=3,
        reason="Unschedulable",
    ),
}


FOREIGN = Case(says="", code="", bare=True)
PATIENT = Case(says="", code="NOT_ENOUGH_ROOM")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Line]:
    async with (
        EmbeddedServer(store_dir=tmp_path_factory.mktemp("nats")) as server,
        Line(server.url, cluster="2x8") as running,
    ):
        for node in await running.writer.list("nodes"):
            await running.writer.merge_patch(
                "nodes", None, node.metadata.name, {"metadata": {"labels": {"pool": "a100"}}}
            )
        await running.create_queue("train-prod")
        await running.create_queue("shut")
        await running.writer.patch_status(QUEUES, None, "shut", {"state": "Closed"})
        await running.create_queue("capped", capability={"nvidia.com/gpu": "2"})
        await running.create_queue("used", capability={"nvidia.com/gpu": "2"})
        for name, value, default in (("high", 1000, False), ("low", 10, False), ("usual", 50, True)):
            document = {"metadata": {"name": name}, "value": value, "globalDefault": default}
            await running.writer.create(CLASSES, None, document)
        document = {"metadata": {"name": "lost", "annotations": {"volcano.sh/queue": "nowhere"}}}
        await running.writer.create("namespaces", None, document)
        await running.create_gang("holder", pods=1, queue="used")
        await eventually(lambda: bound(running, "holder-0"))
        yield running


async def bound(line: Line, name: str) -> bool:
    return any(pod.metadata.name == name and pod.spec.node_name for pod in await line.pods())


def pod_document(case: Case, name: str, group: str) -> dict[str, Any]:
    marks = {} if case.bare else {GROUP: group}
    container = {
        "name": "main",
        "image": "registry.example.com/x:1",
        "resources": {"limits": {"nvidia.com/gpu": case.cards}},
    }
    return {
        "metadata": {"name": name, "namespace": case.namespace, "annotations": {**marks, **case.annotations}},
        "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container], **case.spec},
    }


@contextlib.asynccontextmanager
async def made(line: Line, case: Case, name: str) -> AsyncIterator[list[str]]:
    """The objects of a case, while it is looked at; the names of its pods."""
    if case.group is not None and not case.bare:
        document = {
            "metadata": {"name": name, "namespace": case.namespace},
            "spec": {"minMember": case.minimum or case.pods, "queue": "default", **case.group},
        }
        await line.writer.create(PODGROUPS, case.namespace, document)
    pods = [f"{name}-{number}" for number in range(case.pods)]
    for pod in pods:
        await line.writer.create("pods", case.namespace, pod_document(case, pod, name))
    try:
        yield pods
    finally:
        for pod in pods:
            await line.writer.delete("pods", case.namespace, pod)
        if case.group is not None and not case.bare:
            await line.writer.delete(PODGROUPS, case.namespace, name)


@pytest.mark.parametrize("name", CASES)
async def test_every_wait_has_its_reason_and_its_fix(line: Line, name: str):
    case = CASES[name]
    gang = f"case-{list(CASES).index(name)}"
    store = line.sim.store
    async with made(line, case, gang) as pods:

        def group() -> dict[str, Any]:
            """The PodGroup, whoever made it."""
            key = gang
            if case.bare:
                pod = store.find("pods", case.namespace, pods[0]) or {}
                key = pod["metadata"]["annotations"].get(GROUP, "")
            return store.find(PODGROUPS, case.namespace, key) or {}

        def conditions(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
            told = (found.get("status") or {}).get("conditions") or []
            return [one for one in told if one["type"] == kind]

        def pod_told(pod: str) -> bool:
            told = conditions(store.find("pods", case.namespace, pod) or {}, "PodScheduled")
            if [(one["status"], one["reason"]) for one in told] != [("False", case.reason)]:
                return False
            return case.reason == "SchedulingGated" or (
                case.says in told[0]["message"] and case.fix in told[0]["message"]
            )

        def event_told(pod: str) -> bool:
            return any(
                one["involvedObject"]["name"] == pod
                and one["reason"] == "FailedScheduling"
                and one["message"].startswith(case.code)
                and case.says in one["message"]
                and case.fix in one["message"]
                for one in store.list("events", case.namespace)
            )

        def group_told() -> bool:
            told = conditions(group(), "Unschedulable")
            return [one["reason"] for one in told] == [case.code] and all(
                words in told[0]["message"] for words in (case.says, case.fix)
            )

        for pod in pods:
            await eventually(lambda pod=pod: pod_told(pod))
            await eventually(lambda pod=pod: event_told(pod))
        if case.group is not None:
            await eventually(group_told)

        job = f"{case.namespace}/{pods[0] if case.bare else gang}"
        reply = await line.client.explain(job)
        assert reply.code == case.code
        assert case.fix in "; ".join(reply.fixes)
        facts = {fact.label: fact.text for fact in reply.facts}
        label, words = case.fact
        assert words in facts.get(label, ""), facts
        if not label:
            assert case.says in reply.message
        printed = text(reply)
        assert max(len(line) for line in printed.splitlines()) <= 100
        assert not case.fix or "fix it" in printed


def asking(document: dict[str, Any], cpu: str) -> dict[str, Any]:
    document["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return document


async def test_room_that_a_foreign_pod_leaves_wakes_the_gang(line: Line):
    nodes = await line.writer.list("nodes")
    for node in nodes:
        most = int(node.status.allocatable["cpu"]) - 1
        foreign = asking(pod_document(FOREIGN, f"foreign-{node.metadata.name}", ""), str(most))
        foreign["spec"] |= {"schedulerName": "default-scheduler", "nodeName": node.metadata.name}
        await line.writer.create("pods", "default", foreign)
    document = {"metadata": {"name": "patient", "namespace": "default"}, "spec": {"minMember": 2, "queue": "default"}}
    await line.writer.create(PODGROUPS, "default", document)
    for number in (0, 1):
        pod = asking(pod_document(PATIENT, f"patient-{number}", "patient"), "4")
        await line.writer.create("pods", "default", pod)

    async def waits() -> bool:
        rows = (await line.client.gangs()).gangs
        return any(row.gang == "default/patient" and row.code == "NOT_ENOUGH_ROOM" for row in rows)

    await eventually(waits)
    reply = await line.client.explain("default/patient")
    facts = {fact.label: fact.text for fact in reply.facts}
    assert "1 pod of other schedulers" in facts["best fit"]
    for node in nodes:
        await line.writer.delete("pods", "default", f"foreign-{node.metadata.name}")
    for number in (0, 1):
        await eventually(lambda number=number: bound(line, f"patient-{number}"))
