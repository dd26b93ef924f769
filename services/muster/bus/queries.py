"""Questions to Muster and their answers (request/reply on ``muster.api.<tenant>.<verb>``).

Rows carry the numbers that people are shown (cards in millionths, memory in bytes or MiB, times in Unix seconds) and never text
made of them, so that the CLI, the page and other programs format alike. A refused question has no body: the headers
``Nats-Service-Error-Code`` and ``Nats-Service-Error`` tell why (`muster.bus.client.RequestRefused`).
"""

import msgspec

from muster.bus.messages import StatusEvent, SubmissionOutcome


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why does this job wait, or where does it run? ``job`` is ``name``, ``namespace/name`` or a submission id."""

    job: str
    namespace: str = ""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an explanation: ``best fit`` — ``rack-b: 3 of 4 nodes free``."""

    label: str
    text: str


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened."""

    at: float
    text: str
    code: str = ""


class ExplainReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The explanation of one gang. ``numbers`` are those that decided, by name."""

    job: str
    state: str
    queue: str = ""
    code: str = ""
    message: str = ""
    position: int = 0
    estimated_start: float | None = None
    numbers: dict[str, int | float | str] = {}
    facts: tuple[Fact, ...] = ()
    fixes: tuple[str, ...] = ()
    """What would cure it, when it can never run as it is."""
    history: tuple[Moment, ...] = ()


class GangsRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Gangs, all or of one namespace or queue; finished ones only when asked for."""

    namespace: str = ""
    queue: str = ""
    finished: bool = False


class GangRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gang."""

    gang: str
    job: str = ""
    """``namespace/name`` of what people know: the PodGroup's owner, else the PodGroup or pod itself."""
    submission: str = ""
    """Submission id, when it came over NATS."""
    queue: str = ""
    state: str
    """Waiting, Placed, Bound, Running, Undoing, Broken, Leaving, Succeeded, Failed."""
    code: str = ""
    message: str = ""
    position: int = 0
    priority: int = 0
    priority_class: str = ""
    preemptible: bool = True
    members: int = 0
    minimum: int = 0
    bound: int = 0
    running: int = 0
    cards_per_member: int = 0
    """Millionths."""
    cards: int = 0
    """Millionths, of all members."""
    nodes: tuple[str, ...] = ()
    submitted: float = 0.0
    since: float = 0.0
    """When it came into this state."""
    expected_end: float | None = None
    leaves_at: float | None = None
    """When the time ends that pods of it have to write a checkpoint, while a plan asks them to leave."""
    leaves_for: str = ""
    """The job that gets their room."""


class GangsReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Gangs, in the order in which they would be served."""

    at: float
    gangs: tuple[GangRow, ...] = ()


class NodesRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes, all or of one domain (``rack-b``)."""

    domain: str = ""


class CardCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card of a node: what is used of it, and by which gangs."""

    index: int
    memory_mib: int = 0
    used_memory_mib: int = 0
    used_core_percent: int = 0
    whole: bool = False
    """One pod has it whole."""
    expected: bool = False
    """The kubelet chooses the card; this is where it is expected."""
    healthy: bool = True
    held: bool = False
    """Promised by an open commitment, no pod there yet."""
    gangs: tuple[str, ...] = ()


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node."""

    name: str
    ready: bool = True
    cordoned: bool = False
    card_mode: str = ""
    gpu_model: str = ""
    domains: dict[str, str] = {}
    """Domain by topology level."""
    cards: tuple[CardCell, ...] = ()
    free_cards: int = 0
    """Millionths."""
    cpu: int = 0
    """Thousandths, allocatable."""
    used_cpu: int = 0
    memory: int = 0
    """Bytes, allocatable."""
    used_memory: int = 0
    pods: int = 0
    idle_since: float | None = None
    """Since when it is cordoned as idle, Unix seconds; None when it is not."""
    removable: bool = False
    """Whoever removes nodes may remove it."""
    returning: bool = False
    """It is being given back."""


class FreeBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The largest block of free whole cards at a topology level."""

    level: str
    domain: str
    cards: int


class NodesReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes with their cards; the sums are whole-cluster, in millionths."""

    at: float
    nodes: tuple[NodeRow, ...] = ()
    total_cards: int = 0
    used_cards: int = 0
    held_cards: int = 0
    free_cards: int = 0
    largest_free: tuple[FreeBlock, ...] = ()


class QueuesRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Queues, all or one."""

    queue: str = ""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue; cards of any kind in millionths, None where nothing is named."""

    name: str
    parent: str | None = None
    state: str = "Open"
    weight: int = 1
    priority: int = 0
    used: int = 0
    guarantee: int = 0
    deserved: int | None = None
    share: float = 0.0
    """Millionths; a fraction of one is exact only to a double's precision here, the core keeps it exact."""
    capability: int | None = None
    borrowed: int = 0
    reclaimable: int = 0
    """What others could take back."""
    pending_gangs: int = 0
    pending: int = 0
    oldest_since: float | None = None
    reasons: dict[str, int] = {}
    """Waiting gangs by reason code."""


class QueuesReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Queues, parents before children."""

    at: float
    queues: tuple[QueueRow, ...] = ()


class SubmissionRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a submission?"""

    id: str


class SubmissionReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``outcome`` is None while the submission is not handled yet, or not known."""

    outcome: SubmissionOutcome | None = None
    last_status: StatusEvent | None = None
