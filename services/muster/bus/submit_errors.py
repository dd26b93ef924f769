"""What is wrong with a submission, field by field, in sentences; and the one way to make a submission of plain values.

    values ─► make_submit ─► Submit
                          └► SubmissionError: `errors`, all at once; its text is a line a field

Values of environment and arguments are not shown: they may hold secrets.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from muster.bus.messages import DNS_LABEL, QUANTITY, SUBMISSION_ID, TRACEPARENT, FieldError, Submit
from muster.decide.field_problems import field_problems, told
from muster.decide.findings import Problem
from muster.decide.spelling import quantity_doubt

SHOWN_VALUE = 80
UNSHOWN = ("short.env", "short.args", "short.command", "manifest")


def _must_match(pattern: str, message: str) -> Callable[[str], str]:
    form = re.compile(pattern)
    return lambda text: "" if form.search(text) else f"{text[:SHOWN_VALUE]!r} cannot be used: {message}"


WORDS: Mapping[str, Callable[[str], str]] = {
    QUANTITY: lambda text: quantity_doubt(text) or _must_match(QUANTITY, "write it like 2, 500m or 64Gi")(text),
    DNS_LABEL: _must_match(
        DNS_LABEL, "lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit"
    ),
    SUBMISSION_ID: _must_match(
        SUBMISSION_ID, "letters, digits, '_', '.', ':' and '-', at most 128, beginning with a letter or digit"
    ),
    TRACEPARENT: _must_match(TRACEPARENT, "a W3C traceparent, such as 00-<32 hex digits>-<16 hex digits>-01"),
}


class SubmissionError(msgspec.ValidationError):
    """Values that are no submission; its text is one line a field."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(sentence(error) for error in self.errors))


def make_submit(values: Mapping[str, Any]) -> Submit:
    """A submission from plain values: ``id``, ``short`` or ``manifest``, and the other fields of `Submit`.

    Raises:
        SubmissionError: with everything that is wrong.
    """
    plain = msgspec.to_builtins(values)
    errors = submit_errors(plain)
    if errors:
        raise SubmissionError(errors)
    return msgspec.convert(plain, Submit)


def submit_errors(values: Any) -> tuple[FieldError, ...]:
    """What keeps plain values (JSON) from being a submission; empty when nothing does. `sentence` makes a line of each."""
    return tuple(_field_error(problem) for problem in field_problems(values, Submit, words=WORDS))


def field_errors(error: msgspec.ValidationError) -> tuple[FieldError, ...]:
    """The field errors of a validation error: those of a `SubmissionError`, else the one that msgspec tells."""
    if isinstance(error, SubmissionError):
        return error.errors
    return (_field_error(told(str(error))),)


def sentence(error: FieldError) -> str:
    """One line for people: the field as the short form names it, the value, and what would be right."""
    field = error.field.removeprefix("short.")
    unquoted = error.value.strip('"')
    value = "" if not unquoted or unquoted in error.message else f"{error.value}: "
    return f"{field}: {value}{error.message}" if field and field != "message" else error.message


def _field_error(problem: Problem) -> FieldError:
    for secret in UNSHOWN:
        if problem.field == secret or problem.field.startswith((f"{secret}.", f"{secret}[")):
            message = problem.message.partition("; give ")[2]
            return FieldError(field=problem.field, message=f"give {message}" if message else "cannot be used")
    return FieldError(field=problem.field or "message", value=problem.value[:SHOWN_VALUE], message=problem.message)
