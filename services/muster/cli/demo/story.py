"""What the demo submits, and when: a cluster that fills up, a gang that has to wait, one that has to leave for another and
comes back, shares of cards, a cancelled job, an idle node.

Every job is an ordinary submission over NATS. `run_seconds` only tells the simulated kubelets how long its pods live.
"""

from typing import Any

import msgspec

RUN_SECONDS = "simulator.muster.dev/run-seconds"


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One submission: at this many seconds of the demo, with this sentence beside it."""

    at: float
    id: str
    text: str
    manifest: dict[str, Any]
    cancel_at: float | None = None
    leaves: bool = False
    """It has to leave for another job, and resumes."""
    wakes: str = ""
    """The idle node that comes back for it."""


def volcano_job(
    name: str,
    *,
    replicas: int,
    limits: dict[str, Any],
    run_seconds: float | None,
    queue: str = "research",
    minimum: int | None = None,
    priority: str = "usual",
    topology: str = "",
    selector: dict[str, str] | None = None,
    grace: str = "",
) -> dict[str, Any]:
    """A Job of batch.volcano.sh with one task, as people write it."""
    wishes = {"muster.dev/topology-required": topology, "muster.dev/preemption-grace": grace}
    marks = {RUN_SECONDS: f"{run_seconds:g}"} if run_seconds is not None else {}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "registry.example.com/train:1", "resources": {"limits": limits}},
        ],
    }
    if selector:
        pod["nodeSelector"] = selector
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {wish: value for wish, value in wishes.items() if value},
        },
        "spec": {
            "schedulerName": "muster",
            "minAvailable": minimum if minimum is not None else replicas,
            "queue": queue,
            "priorityClassName": priority,
            "tasks": [
                {
                    "name": "worker",
                    "replicas": replicas,
                    "template": {"metadata": {"annotations": marks}, "spec": pod},
                }
            ],
        },
    }


def share(memory_mib: int, core_percent: int) -> dict[str, Any]:
    """A share of one card as limits."""
    return {"volcano.sh/gpu-memory": memory_mib, "volcano.sh/gpu-core": core_percent}


SCENES: tuple[Scene, ...] = (
    Scene(
        at=0.0,
        id="pretrain",
        text="32 cards: four pods of 8, all together",
        manifest=volcano_job("pretrain", replicas=4, limits={"nvidia.com/gpu": 8}, run_seconds=19),
    ),
    Scene(
        at=0.5,
        id="finetune",
        text="24 cards: three pods of 8, all together",
        manifest=volcano_job("finetune", replicas=3, limits={"nvidia.com/gpu": 8}, run_seconds=26),
    ),
    Scene(
        at=1.5,
        id="small",
        text="12 GiB and 30 % of the small machine's card",
        manifest=volcano_job(
            "small",
            replicas=1,
            limits=share(12288, 30),
            run_seconds=20,
            queue="notebooks",
            selector={"kubernetes.io/hostname": "small-01"},
        ),
    ),
    Scene(
        at=2.5,
        id="notebooks",
        text="four notebooks on shares of one card (18 GiB and 25 % each)",
        manifest=volcano_job(
            "notebooks", replicas=4, minimum=1, limits=share(18432, 25), run_seconds=24, queue="notebooks"
        ),
    ),
    Scene(
        at=3.0,
        id="explore",
        text="16 cards in the background: leaves when others need them, after 4 s for a checkpoint",
        manifest=volcano_job(
            "explore", replicas=2, limits={"nvidia.com/gpu": 8}, run_seconds=14, priority="background", grace="4s"
        ),
        leaves=True,
    ),
    Scene(
        at=4.0,
        id="big",
        text="32 cards more: no four whole machines are left, so it waits, whole",
        manifest=volcano_job("big", replicas=4, limits={"nvidia.com/gpu": 8}, run_seconds=7, priority="background"),
    ),
    Scene(
        at=5.5,
        id="urgent",
        text="16 cards, urgent: the background job makes room",
        manifest=volcano_job("urgent", replicas=2, limits={"nvidia.com/gpu": 8}, run_seconds=6, priority="urgent"),
    ),
    Scene(
        at=7.0,
        id="sweep",
        text="six single cards fill what the waiting gang cannot use",
        manifest=volcano_job("sweep", replicas=6, minimum=1, limits={"nvidia.com/gpu": 1}, run_seconds=12),
    ),
    Scene(
        at=8.0,
        id="mistake",
        text="a job with a slip of the unit: refused with the likely meaning",
        manifest=volcano_job("mistake", replicas=1, limits=share(12, 10), run_seconds=5),
    ),
    Scene(
        at=9.0,
        id="forgotten",
        text="submitted, and cancelled four seconds later",
        manifest=volcano_job("forgotten", replicas=1, limits={"nvidia.com/gpu": 1}, run_seconds=None),
        cancel_at=13.0,
    ),
    Scene(
        at=16.0,
        id="evaluate",
        text="four L4 cards: their machine was idle, is cordoned, and comes back",
        manifest=volcano_job(
            "evaluate",
            replicas=1,
            limits={"nvidia.com/gpu": 4},
            run_seconds=5,
            selector={"nvidia.com/gpu.product": "NVIDIA-L4"},
        ),
        wakes="l4-01",
    ),
)
