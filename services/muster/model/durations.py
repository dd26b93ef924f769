"""Amounts of time and moments as people write them ("90s", "2h30m", 90, "2026-05-04T10:00:00Z"), in seconds.

The grammar is that of Go's time.Duration, which Volcano and Kubernetes write, and plain numbers, which are seconds. What is
neither is an error that says what was likely meant.
"""

import re
from datetime import UTC, datetime

from muster.model.units import Seconds

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
NUMBER = re.compile(r"\d+\.?\d*|\.\d+")
PART = re.compile(rf"({NUMBER.pattern})({'|'.join(UNITS)})")
WRITTEN = re.compile(rf"\s*({NUMBER.pattern})\s*([A-Za-z]*)\s*,?")
CLOCK = re.compile(r"(\d+):([0-5]?\d)(?::([0-5]?\d))?")
MEANT = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "mins": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "days": 86_400.0, "w": 604_800.0, "week": 604_800.0, "weeks": 604_800.0,
}  # fmt: skip
"""Lower-case words that people write for units."""
LONGEST = 2**63 / 1e9
"""Seconds that a time.Duration can hold: 292 years."""
LATEST = 253_402_300_799.0
"""The end of the year 9999, Unix seconds."""


class DurationError(ValueError):
    """A value that is no amount of time, or no moment; the message says what would be right."""


def parse_duration(value: str | float) -> Seconds:
    """An amount of time in seconds; not below 0.

    Raises:
        DurationError: the value is none.
    """
    text = str(value).strip()
    if NUMBER.fullmatch(text):
        return _within(float(text), text)
    parts = PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return _within(sum(float(number) * UNITS[unit] for number, unit in parts), text)
    if text.startswith("-"):
        raise DurationError(f"{text[:80]} is below 0; an amount of time is written as 90s, 30m or 2h30m")
    likely = _likely(text)
    hint = f"did you mean {format_duration(likely)}?" if likely else "write 90s, 30m, 2h30m or a number of seconds"
    raise DurationError(f"{text[:80]!r} is no amount of time; {hint}")


def _within(seconds: float, text: str) -> Seconds:
    if seconds > LONGEST:
        raise DurationError(f"{text[:40]!r} is more than 292 years; write 90s, 30m, 2h30m or a number of seconds")
    return Seconds(seconds)


def _likely(text: str) -> float:
    """What a text was likely meant to be, in seconds; 0 when nothing can be told."""
    clock = CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return hours * 3600.0 + minutes * 60.0 + seconds
    rest = re.sub(r"^p(?=[\dt])", "", text.lower())
    rest = re.sub(r"(?<![a-z])t(?=\d)|(?<=d)t(?=\d)", "", rest)
    total, end = 0.0, 0
    while (matched := WRITTEN.match(rest, end)) is not None and matched.end() > end:
        scale = MEANT.get(matched[2])
        if scale is None:
            return 0.0
        total += float(matched[1]) * scale
        end = matched.end()
    return total if end == len(rest) else 0.0


def format_duration(seconds: float) -> str:
    """Seconds as they may be written: ``5400`` → ``1h30m``, ``90`` → ``1m30s``; parts of a second are kept below a minute."""
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return "".join(f"{amount}{unit}" for amount, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if amount)


def parse_moment(value: str | float) -> float:
    """A moment in Unix seconds: RFC 3339, or the Unix seconds themselves.

    Raises:
        DurationError: the value is none.
    """
    text = str(value).strip()
    if NUMBER.fullmatch(text):
        if (given := float(text)) > LATEST:
            raise DurationError(f"{text[:40]!r} lies after the year 9999; write 2026-05-04T10:00:00Z or Unix seconds")
        return given
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None:
        raise DurationError(f"{text[:80]!r} is no moment; write 2026-05-04T10:00:00Z or Unix seconds")
    if moment.tzinfo is None:
        meant = moment.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
        raise DurationError(f"{text!r} does not say its time zone; did you mean {meant}?")
    return moment.timestamp()
