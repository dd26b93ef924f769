"""What the preemptor measures. No job or pod label anywhere."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.decide.commitments import OpenEntry
from muster.decide.timing import timing_of
from muster.fenced.executor import Result
from muster.model.ledger import Plan, Victim
from muster.model.units import ONE_CARD
from muster.view.world import World

CORE_BUCKETS = (0.01, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)


class PreemptorMetrics:
    """The preemptor's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge("muster_preemptor_leader", "1 while this process works.", registry=registry)
        self.core = Histogram(
            "muster_preemptor_core_seconds",
            "Time of the core, by what it was asked (propose, judge).",
            ["what"],
            registry=registry,
            buckets=CORE_BUCKETS,
        )
        self.proposals = Counter(
            "muster_preemptor_proposals_total",
            "Plans proposed, by answer: committed, a refusal's code, unanswered.",
            ["answer"],
            registry=registry,
        )
        self.withdrawals = Counter(
            "muster_preemptor_withdrawals_total", "Plans given back, by reason.", ["reason"], registry=registry
        )
        self.open_plans = Gauge("muster_preemptor_open_plans", "Plans that are being carried out.", registry=registry)
        self.warnings = Counter(
            "muster_preemptor_warnings_total", "Warnings put on pods, by outcome.", ["outcome"], registry=registry
        )
        self.evictions = Counter(
            "muster_evictions_total", "Pods evicted for plans, by cause.", ["cause"], registry=registry
        )
        self.moved = Counter(
            "muster_preempted_cards_total", "Cards that evicted pods held, by cause.", ["cause"], registry=registry
        )
        self.gained = Counter(
            "muster_preemption_gained_cards_total", "Cards that committed plans hold for gangs, by cause.", ["cause"],
            registry=registry,
        )  # fmt: skip
        self.lost = Counter(
            "muster_preemption_lost_card_seconds_total",
            "Card seconds of evicted pods since their gang's last checkpoint, or its start, by cause.",
            ["cause"],
            registry=registry,
        )
        self.budget_refusals = Counter(
            "muster_eviction_budget_refusals_total", "Evictions that a PodDisruptionBudget forbade.", registry=registry
        )
        self.attempts = Counter(
            "muster_eviction_attempts_total", "Evictions asked for, by outcome.", ["outcome"], registry=registry
        )
        self.leaving = Histogram(
            "muster_eviction_leaving_seconds",
            "Time from a pod's eviction until it was gone.",
            registry=registry,
            buckets=(1, 5, 15, 30, 60, 120, 300, 900),
        )
        self.stopped = Gauge(
            "muster_eviction_limit_reached",
            "1 while the hourly limit on evicted cards keeps a plan back.",
            registry=registry,
        )
        self.paused = Gauge("muster_evictions_paused", "1 while evictions are paused.", registry=registry)
        self.defects = Counter(
            "muster_preemptor_defects_total", "Calls of the core that failed, by what.", ["what"], registry=registry
        )

    def acted(self, verb: str, result: Result, _seconds: float) -> None:
        """An action on a victim was answered."""
        outcome = "budget" if result.budget else result.outcome.value
        if verb == "warn":
            self.warnings.labels(outcome).inc()
        else:
            self.attempts.labels(outcome).inc()

    def evicted(self, entry: OpenEntry, world: World, victim: Victim, *, now: float) -> None:
        """A victim was evicted."""
        self.evictions.labels(entry.cause).inc()
        cards = victim.cards / ONE_CARD
        self.moved.labels(entry.cause).inc(cards)
        pod = world.by_uid.get(victim.uid)
        if pod is not None:
            times = timing_of(world.podgroups.get(victim.gang), (pod,))
            since = max(times.started, times.last_checkpoint)
            if since:
                self.lost.labels(entry.cause).inc(cards * max(0.0, now - since))

    def committed(self, plan: Plan, cards: float) -> None:
        """A plan that was proposed stands in the LEDGER; `cards` are those that its gang gets."""
        self.gained.labels(plan.cause).inc(cards)
