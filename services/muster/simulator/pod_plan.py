"""What a simulated pod will do: how long it starts and runs, how it ends, whether its node refuses it.

Three sources, the later one wins: the defaults, the rules of a `Plan` (first matching name pattern), the pod's annotations
``simulator.muster.dev/<field with dashes>``, e.g. ``simulator.muster.dev/run-seconds: "30"``.
"""

import fnmatch
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

PREFIX = "simulator.muster.dev/"
START_JITTER_SECONDS = 0.5


class PodPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pod's life; durations in simulated seconds."""

    start_seconds: float | None = None
    """From admission to Running; None: about a second, different for every pod."""
    run_seconds: float | None = None
    """From Running to its end with `exit_code`; None: it runs until it is deleted."""
    exit_code: int = 0
    fail_after: float | None = None
    """From Running to an end with an error (`exit_code` when that is not 0, else 1)."""
    fail_times: int | None = None
    """How many runs `fail_after` holds for, restarts counted; None: every run."""
    refuse: str = ""
    """The node refuses the pod with this reason, once for each name (or generateName)."""
    hang: bool = False
    """Admitted, never started."""
    stop_seconds: float = 0.5
    """From the request to stop to its end; never more than the grace period."""
    utilisation: float = 90.0
    """Percent of its part of a card that the pod keeps busy while it runs (see `dcgm`)."""

    def __post_init__(self) -> None:
        """Durations are not negative."""
        for name in ("start_seconds", "run_seconds", "fail_after", "stop_seconds", "fail_times", "utilisation"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name}: {value} must not be negative")

    def end_of_run(self, run: int) -> tuple[float, int] | None:
        """When run number `run` (0 is the first) ends, in seconds after its start, and its exit code; None: never."""
        ends: list[tuple[float, int]] = []
        if self.fail_after is not None and (self.fail_times is None or run < self.fail_times):
            ends.append((self.fail_after, self.exit_code or 1))
        if self.run_seconds is not None:
            ends.append((self.run_seconds, self.exit_code))
        return min(ends, default=None)


class PlanError(ValueError):
    """A pod whose annotations are no plan; the message names the annotation, its value and what would be right."""


FIELDS = {f"{PREFIX}{name.replace('_', '-')}": name for name in PodPlan.__struct_fields__}


class Plan:
    """Rules by name pattern (``namespace/name`` when it holds a slash, else the name; ``*`` and ``?`` as in a shell)."""

    def __init__(self, rules: Sequence[tuple[str, Mapping[str, Any]]] = (), *, seed: int = 0) -> None:
        """`rules`: pattern and fields of PodPlan; raises PlanError for a field that does not exist."""
        self._rules: list[tuple[re.Pattern[str], bool, dict[str, Any]]] = []
        self._seed = seed
        for pattern, fields in rules:
            self.add(pattern, fields)

    def add(self, pattern: str, fields: Mapping[str, Any]) -> None:
        """Append a rule; pods admitted from now on obey it."""
        try:
            msgspec.convert(dict(fields), PodPlan)
        except ValueError as error:
            raise PlanError(f"plan of {pattern!r}: {error}") from error
        self._rules.append((re.compile(fnmatch.translate(pattern)), "/" in pattern, dict(fields)))

    def of(self, pod: Mapping[str, Any]) -> PodPlan:
        """The plan of a pod object.

        Raises:
            PlanError: an annotation of the simulator cannot be understood.
        """
        metadata = pod["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        fields: dict[str, Any] = {}
        for pattern, qualified, values in self._rules:
            if pattern.match(key if qualified else metadata["name"]):
                fields |= values
                break
        for annotation, value in (metadata.get("annotations") or {}).items():
            if not annotation.startswith(PREFIX):
                continue
            field = FIELDS.get(annotation)
            if field is None:
                raise PlanError(f"{annotation}: unknown; known are {', '.join(sorted(FIELDS))}")
            fields[field] = value
        if not fields:
            return PodPlan()
        try:
            return msgspec.convert(fields, PodPlan, strict=False)
        except ValueError as error:
            raise PlanError(f"{PREFIX}* of pod {key}: {error}") from error

    def start_delay(self, pod: Mapping[str, Any], plan: PodPlan) -> float:
        """Seconds from admission to Running; the same for the same seed and pod name."""
        if plan.start_seconds is not None:
            return plan.start_seconds
        metadata = pod["metadata"]
        drawn = zlib.crc32(f"{self._seed}/{metadata['namespace']}/{metadata['name']}".encode()) / 2**32
        return 1.0 + START_JITTER_SECONDS * drawn
