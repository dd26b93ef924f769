"""What the scheduler measures. No job or pod label anywhere; reason series exist only while they are not zero."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.decide.actual import CardFinding, CardFindingCode
from muster.fenced.executor import Result
from muster.model.instructions import Instruction, Pending, Place
from muster.model.ledger import (
    Bind,
    Close,
    Cordon,
    Entry,
    Leader,
    NodeClose,
    Plan,
    Removable,
    Uncordon,
    Undoing,
    Withdrawing,
)
from muster.model.snapshot import Snapshot

DECISION_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0)


class Telemetry:
    """The scheduler's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.stage = Histogram(
            "muster_decision_stage_seconds",
            "Time of a stage of a decision (snapshot, decide, persist).",
            ["stage"],
            registry=registry,
            buckets=DECISION_BUCKETS,
        )
        self.placed = Counter("muster_gangs_placed_total", "Gangs placed by a committed decision.", registry=registry)
        self.undone = Counter(
            "muster_gangs_undone_total", "Placements taken back, by reason.", ["reason"], registry=registry
        )
        self.plans = Counter("muster_plans_total", "Plans committed, by cause.", ["cause"], registry=registry)
        self.victims = Counter(
            "muster_plan_victims_total", "Pods that committed plans evict, by cause.", ["cause"], registry=registry
        )
        self.withdrawn = Counter(
            "muster_plans_withdrawn_total", "Plans taken back, by reason.", ["reason"], registry=registry
        )
        self.refused = Counter(
            "muster_proposals_refused_total", "Proposals not committed, by code.", ["code"], registry=registry
        )
        self.closed = Counter(
            "muster_ledger_entries_closed_total", "LEDGER entries closed, by outcome.", ["outcome"], registry=registry
        )
        self.actions = Histogram(
            "muster_bind_action_seconds",
            "Time of a bind, touch or undo until its answer.",
            ["verb"],
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 5.0),
        )
        self.outcomes = Counter(
            "muster_bind_actions_total", "Binds, touches and undos, by outcome.", ["verb", "outcome"], registry=registry
        )
        self.pending = Gauge("muster_gangs_pending", "Waiting gangs, by reason code.", ["reason"], registry=registry)
        self.nodes = Gauge("muster_nodes", "Nodes that the scheduler sees.", registry=registry)
        self.cards = Gauge("muster_cards", "Cards that nodes offer.", registry=registry)
        self.leader = Gauge("muster_leader", "1 while this process leads.", registry=registry)
        self.epoch = Gauge("muster_leader_epoch", "LEDGER sequence of the leader entry.", registry=registry)
        self.takeovers = Counter("muster_leader_takeovers_total", "Leaderships begun.", registry=registry)
        self.deposed = Counter("muster_leader_deposed_total", "Leaderships that a newer one ended.", registry=registry)
        self.state_messages = Counter("muster_state_messages_total", "STATE messages applied.", registry=registry)
        self.open_entries = Gauge("muster_ledger_open_entries", "LEDGER entries not closed.", registry=registry)
        self.refused_commits = Gauge(
            "muster_ledger_refused_commits", "Commits of deposed leaders seen in the LEDGER.", registry=registry
        )
        self.defects = Counter(
            "muster_scheduler_defects_total",
            "Parts of a round that failed although they must not, by part.",
            ["part"],
            registry=registry,
        )
        self.card_mismatches = Gauge(
            "muster_card_mismatches",
            "Pods whose device plugin gave them other cards than were decided.",
            registry=registry,
        )
        self.lost_cards_in_use = Gauge(
            "muster_lost_cards_in_use", "Pods that stand on a card that is broken or gone.", registry=registry
        )
        self.card_warnings = Gauge(
            "muster_card_warnings", "Nodes whose cards are shared without isolation or doubtful.", registry=registry
        )
        self.node_entries = Counter(
            "muster_node_entries_total",
            "LEDGER entries about nodes, by verb (cordon, removable, uncordon, close) and reason or outcome.",
            ["verb", "reason"],
            registry=registry,
        )
        self._reasons: set[str] = set()

    def committed(self, entries: tuple[Entry, ...]) -> None:
        """Count what stands in the LEDGER now."""
        for entry in entries:
            match entry:
                case Bind():
                    self.placed.inc()
                case Undoing():
                    self.undone.labels(entry.reason).inc()
                case Close():
                    self.closed.labels(entry.outcome).inc()
                case Plan():
                    self.plans.labels(entry.cause).inc()
                    self.victims.labels(entry.cause).inc(len(entry.victims))
                case Withdrawing():
                    self.withdrawn.labels(entry.reason).inc()
                case Cordon():
                    self.node_entries.labels("cordon", entry.reason).inc()
                case Removable():
                    self.node_entries.labels("removable", "").inc()
                case Uncordon():
                    self.node_entries.labels("uncordon", entry.reason).inc()
                case NodeClose():
                    self.node_entries.labels("close", entry.outcome).inc()
                case Leader():
                    self.takeovers.inc()
                case _:
                    pass

    def decided(self, snapshot: Snapshot, instructions: tuple[Instruction, ...], seconds: float) -> None:
        """Measure a decision."""
        self.stage.labels("decide").observe(seconds)
        self.nodes.set(len(snapshot.nodes))
        self.cards.set(sum(node.allocatable_cards for node in snapshot.nodes))
        counts: dict[str, int] = {}
        for instruction in instructions:
            if isinstance(instruction, Pending):
                counts[instruction.code] = counts.get(instruction.code, 0) + 1
        for code in self._reasons - counts.keys():
            self.pending.remove(code)
        for code, count in counts.items():
            self.pending.labels(code).set(count)
        self._reasons = set(counts)

    def cards_found(self, findings: tuple[CardFinding, ...]) -> None:
        """Count findings about cards."""
        codes = [one.code for one in findings]
        self.card_mismatches.set(codes.count(CardFindingCode.CARD_MISMATCH))
        self.lost_cards_in_use.set(codes.count(CardFindingCode.CARD_LOST))
        self.card_warnings.set(codes.count(CardFindingCode.NO_ISOLATION))

    def acted(self, verb: str, result: Result, seconds: float) -> None:
        """Measure an action."""
        self.actions.labels(verb).observe(seconds)
        self.outcomes.labels(verb, result.outcome.value).inc()


def placed_in(instructions: tuple[Instruction, ...]) -> int:
    """How many gangs a decision places."""
    return sum(isinstance(instruction, Place) for instruction in instructions)
