"""What a node remembers of each of its pods, and what all nodes together note down as gone wrong."""

from dataclasses import dataclass, field
from enum import Enum

from muster.simulator.pod_plan import PodPlan
from muster.simulator.pod_status import Place
from muster.simulator.timers import Timer


class Stage(Enum):
    """Where a pod is in its life on the node."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    ENDED = "ended"


@dataclass(slots=True)
class PodLife:
    """One pod on the node."""

    uid: str
    namespace: str
    name: str
    stage: Stage = Stage.WAITING
    grace: float | None = None
    """Seconds it was given to stop; None: nobody asked it to."""
    plan: PodPlan = field(default_factory=PodPlan)
    requests: dict[str, int] = field(default_factory=dict)
    place: Place = field(default_factory=lambda: Place("", ""))
    runs: int = 0
    started_at: float | None = None
    step: Timer | None = None
    stop: Timer | None = None

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self.grace is not None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise about a node that was broken: more on a card than it has, or cards where there are none."""

    time: float
    node: str
    pod: str
    message: str


@dataclass(frozen=True, slots=True)
class Mixup:
    """A pod that was handed the cards meant for another: the plugin could not tell them apart."""

    time: float
    node: str
    pod: str
    meant_for: str


@dataclass(slots=True)
class Findings:
    """What went wrong on all nodes together, and which refusals by plan were already spent."""

    violations: list[Violation] = field(default_factory=list)
    mixups: list[Mixup] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
