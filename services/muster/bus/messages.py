"""What travels over the bus: one frozen struct a message, JSON on the wire.

    tenant ── Submit, Cancel, Progress ──► JOBS, PROGRESS          closed: an unknown field is refused and named
    controller ── StatusEvent ──► STATUS, SubmissionOutcome ──► SUBMISSIONS
    watcher ── StateMessage (objects, Clock, Epoch) ──► STATE
    scheduler ── Commit (muster.model.ledger) ──► LEDGER, Decision ──► DECISIONS
    anyone ── DeadLetter ──► DLQ                                   questions and answers: muster.bus.queries

Readers ignore unknown fields, and within a major version only optional fields are added. Only `Submit` and `Cancel` are closed:
a misspelt wish of a person must not be dropped. All times are Unix seconds.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from muster.model.instructions import Slot

SUBMISSION_ID = "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
"""Submission ids: letters, digits, ``_ . : -``, at most 128."""
DNS_LABEL = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
QUANTITY = "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
TRACEPARENT = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"

SubmissionId = Annotated[
    str, Meta(pattern=SUBMISSION_ID, description="Chosen by the submitter; sending the same id again does nothing.")
]
Amount = Annotated[str, Meta(pattern=QUANTITY, description="A Kubernetes quantity, per pod.")]


class ShortJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job in few words: equal pods that start together."""

    image: Annotated[str, Meta(min_length=1, description="Container image.", examples=["registry.example.com/llm:3"])]
    command: Annotated[tuple[str, ...], Meta(description="Command and its arguments; empty: the image's own.")] = ()
    args: Annotated[tuple[str, ...], Meta(description="Arguments after the command.")] = ()
    env: Annotated[dict[str, str], Meta(description="Environment variables; no secrets: they can be read.")] = {}
    gpus: Annotated[int, Meta(ge=0, le=1024, description="Whole GPUs per pod.")] | None = None
    gpu_memory_mib: (
        Annotated[int, Meta(ge=1, description="Memory share of one GPU in MiB, instead of gpus.")] | None
    ) = None
    gpu_core_percent: Annotated[int, Meta(ge=1, le=100, description="Core share of one GPU in percent.")] | None = None
    cpu: Amount | None = None
    memory: Amount | None = None
    replicas: Annotated[int, Meta(ge=1, le=10_000, description="Number of pods.")] = 1
    min_available: Annotated[int, Meta(ge=1, description="Pods that must run together; all when not given.")] | None = (
        None
    )
    queue: Annotated[str, Meta(description="Queue; the tenant's own when not given.")] | None = None
    priority_class: Annotated[str, Meta(description="A PriorityClass of scheduling.k8s.io/v1.")] | None = None
    topology: Annotated[str, Meta(description="All pods in one domain of this level, such as rack.")] | None = None
    expected_duration: Annotated[float, Meta(gt=0, description="Seconds the job is expected to run.")] | None = None
    max_retry: Annotated[int, Meta(ge=0, description="Restarts of the whole job before it has failed.")] | None = None
    node_selector: Annotated[dict[str, str], Meta(description="Node labels that must match.")] = {}
    labels: Annotated[dict[str, str], Meta(description="Labels put on the job and its pods.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="muster.dev/ and volcano.sh/ annotations only.")] = {}


class Submit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A submission: exactly one of ``short`` and ``manifest``."""

    id: SubmissionId
    namespace: Annotated[str, Meta(pattern=DNS_LABEL, description="The tenant's default when not given.")] | None = None
    name: (
        Annotated[str, Meta(pattern=DNS_LABEL, description="Name of the job; made from the id when not given.")] | None
    ) = None
    short: ShortJob | None = None
    manifest: Annotated[dict[str, Any], Meta(description="A Job of batch.volcano.sh/v1alpha1 or batch/v1.")] | None = (
        None
    )
    traceparent: Annotated[str, Meta(pattern=TRACEPARENT, description="W3C trace context.")] | None = None

    def __post_init__(self) -> None:
        """Exactly one form.

        Raises:
            ValueError: none or both are given.
        """
        if (self.short is None) == (self.manifest is None):
            given = "both are" if self.short is not None else "neither is"
            raise ValueError(f"give exactly one of `short` and `manifest`; {given} given")


class Cancel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Cancel a submission; it may arrive before the submission itself."""

    id: SubmissionId
    reason: Annotated[str, Meta(max_length=1024)] = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a running job stands."""

    step: Annotated[int, Meta(ge=0)]
    checkpoint_at: float | None = None
    """When the last checkpoint was complete."""


class FieldError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with one field; ``value`` is what stood there, in JSON, shortened."""

    field: str
    value: str = ""
    message: str


OutcomeState = Literal["accepted", "rejected", "cancelled"]


class SubmissionOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a submission, once and for all. ``job`` is '' when it was refused or cancelled before it existed."""

    tenant: str
    id: str
    state: OutcomeState
    namespace: str = ""
    job: str = ""
    kind: str = ""
    """``vcjob`` or ``job``."""
    uid: str = ""
    errors: tuple[FieldError, ...] = ()
    at: float


JobState = Literal[
    "Accepted", "Rejected", "Queued", "Scheduled", "Running", "Preempted", "Resumed", "Succeeded", "Failed", "Cancelled"
]
FINAL_STATES: frozenset[JobState] = frozenset({"Rejected", "Succeeded", "Failed", "Cancelled"})


class StatusEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step in a submission's life; ``number`` counts 1, 2, 3 … without gaps."""

    tenant: str
    id: str
    job: str = ""
    """``namespace/name``."""
    state: JobState
    reason: str = ""
    """A code of the closed set (decide.reasons), or Kubernetes' own reason."""
    message: str = ""
    position: int = 0
    number: Annotated[int, Meta(ge=1)]
    at: float
    details: dict[str, Any] = {}


DecisionVerb = Literal[
    "bind",
    "pending",
    "preempt",
    "nominate",
    "move",
    "cordon",
    "uncordon",
    "demand",
    "refused",
    "undo",
    "close",
    "restart",
    "cards",
]


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The audit log: what was decided about a gang or a node, and why. One of ``gang`` and ``node`` is set."""

    verb: DecisionVerb
    gang: str = ""
    node: str = ""
    queue: str = ""
    code: str = ""
    message: str = ""
    numbers: dict[str, int | float | str] = {}
    position: int = 0
    slots: tuple[Slot, ...] = ()
    epoch: int = 0
    sequence: int = 0
    """Of the LEDGER entry, 0 when nothing was committed."""
    at: float


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that could not be handled, as it came, with the reason."""

    origin_subject: str
    headers: dict[str, str] = {}
    payload: bytes
    reason: str
    """Short code: ``poison``, ``undecodable``, ``mismatch``, ``refused``."""
    error: str = ""
    service: str
    deliveries: int = 0
    at: float


NULL = msgspec.Raw(b"null")
StateKind = Literal[
    "node",
    "pod",
    "podgroup",
    "queue",
    "workload",
    "namespace",
    "priorityclass",
    "hypernode",
    "claim",
    "volume",
    "storageclass",
    "pdb",
    "clock",
    "epoch",
]


class StateMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object as the watcher sees it; ``object`` null is a tombstone (see `gone`). Keys: ``name``, ``ns/name``, workloads ``kind/ns/name``."""

    epoch: int
    """The writer's: STATE sequence of its `Epoch` message."""
    kind: StateKind
    key: str
    resource_version: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=lambda: NULL)

    @property
    def gone(self) -> bool:
        """It is a tombstone: the object is no more."""
        return bytes(self.object) == b"null"


class Clock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sent each second: how far the watcher has seen, by kind."""

    epoch: int
    at: float
    synced: bool
    """Everything was listed and published under this epoch."""
    freshness: dict[str, str] = {}
    """resourceVersion reached, by kind."""


class Epoch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A watcher takes over. The epoch is this message's own STATE sequence, known before it is sent, and its key."""

    epoch: int
    identity: str


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPU-seconds of a queue in one period, by tenant and class (guaranteed, borrowed, reserved-idle, lost)."""

    queue: str
    start: float
    end: float
    gpu_seconds: dict[str, dict[str, float]] = {}
