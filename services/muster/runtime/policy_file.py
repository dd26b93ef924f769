"""Reads policy.yaml strictly: every unknown key and wrong value is refused with its line, its field and what would be right."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from muster.decide.policy_sense import contradictions
from muster.model.policy import Policy
from muster.runtime.policy_check import FileProblem, check_text
from muster.runtime.yaml_lines import YamlError


class PolicyError(ValueError):
    """The policy file cannot be used; the message has one line for every problem, and `problems` the same as data."""

    def __init__(self, source: str, problems: Iterable[FileProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(told(one, source=source) for one in self.problems))


def told(problem: FileProblem, *, source: str) -> str:
    """``policy.yaml:12: waiting.percent: 120 is too large: 0 to 100 is right``."""
    place = f"{source}:{problem.line}" if problem.line else source
    return f"{place}: {problem.field}: {problem.message}" if problem.field else f"{place}: {problem.message}"


def read_policy(text: str, *, source: str) -> tuple[Policy, dict[str, int]]:
    """The policy that a YAML text states, and the line of every field that it names; `source` names it in errors.

    Raises:
        PolicyError: not YAML, unknown keys, or values that are of the wrong kind, out of range or against each other.
    """
    try:
        checked = check_text(text, Policy)
    except YamlError as error:
        problem = FileProblem(line=error.line, field="", value="", message=str(error))
        raise PolicyError(source, (problem,)) from error
    if checked.problems:
        raise PolicyError(source, checked.problems)
    try:
        policy = msgspec.convert(checked.document, Policy, strict=True)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.").removeprefix("$")
        line = checked.lines.get(field, 0)
        raise PolicyError(source, (FileProblem(line=line, field=field, value="", message=what),)) from error
    against = tuple(
        FileProblem(line=_line(checked.lines, one.field), field=one.field, value=one.value, message=one.message)
        for one in contradictions(policy)
    )
    if against:
        raise PolicyError(source, against)
    return policy, checked.lines


def parse_policy(text: str, *, source: str) -> Policy:
    """The policy that a YAML text states; `source` names it in errors.

    Raises:
        PolicyError: as `read_policy`.
    """
    return read_policy(text, source=source)[0]


def load_policy(path: Path | None) -> Policy:
    """The policy in a file, or the default policy when no file is named.

    Raises:
        PolicyError: the file cannot be read or is wrong.
    """
    if path is None:
        return Policy()
    return parse_policy(read_text(path), source=str(path))


def read_text(path: Path) -> str:
    """The text of a policy file.

    Raises:
        PolicyError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise PolicyError(str(path), (FileProblem(line=0, field="", value="", message=message),)) from error
    except UnicodeDecodeError as error:
        message = "not a text file in UTF-8"
        raise PolicyError(str(path), (FileProblem(line=0, field="", value="", message=message),)) from error


def _line(lines: dict[str, int], field: str) -> int:
    """The line of a field, or of the nearest one around it that the file names."""
    while field not in lines and field:
        field = field.rpartition(".")[0]
    return lines.get(field, 0)
