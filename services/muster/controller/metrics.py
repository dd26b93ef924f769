"""What the controller measures. No label names a job, a pod or a submission."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LIFE_BUCKETS = (0.1, 0.5, 2, 10, 60, 600, 3600, 86400)


class ControllerMetrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self.leader = Gauge("muster_leader", "1 while this process leads.", ("service",), registry=registry)
        self.waiting = Gauge(
            "muster_controller_waiting_targets", "Objects that wait to be reconciled.", registry=registry
        )
        self.reconciled = Histogram(
            "muster_controller_reconcile_seconds",
            "One look at one object, with the writes it led to.",
            ("kind",),
            registry=registry,
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
        )
        self.failures = Counter(
            "muster_controller_reconcile_failures_total",
            "Looks that ended in an error.",
            ("kind", "error"),
            registry=registry,
        )
        self.actions = Counter(
            "muster_controller_writes_total",
            "Writes to Kubernetes by outcome.",
            ("verb", "kind", "outcome"),
            registry=registry,
        )
        self.submissions = Counter(
            "muster_submissions_total", "Submissions by result.", ("tenant", "result"), registry=registry
        )
        self.rejections = Counter(
            "muster_submission_rejections_total", "Refused fields.", ("field",), registry=registry
        )
        self.duplicates = Counter(
            "muster_submission_duplicates_total",
            "Deliveries of a submission that was handled before.",
            registry=registry,
        )
        self.status_events = Counter(
            "muster_status_events_total", "Steps told on STATUS.", ("state",), registry=registry
        )
        self.progress = Counter(
            "muster_progress_reports_total",
            "Reports of running jobs, by what became of them (noted, no_news, refused, undecodable …).",
            ("result",),
            registry=registry,
        )
        self.accepted_after = Histogram(
            "muster_submission_accept_seconds",
            "From the first look at a submission to its acceptance.",
            registry=registry,
            buckets=(0.01, 0.05, 0.1, 0.5, 2, 10, 60),
        )
        self.life = Histogram(
            "muster_submission_step_seconds",
            "From acceptance to a later step, for submissions accepted by this process.",
            ("state",),
            registry=registry,
            buckets=LIFE_BUCKETS,
        )
