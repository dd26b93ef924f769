"""Reading scenario files.

Strict: a key that is not known, a wrong type or a name that refers to nothing is an error that says where it stands
(``file:line: path: what is wrong``), and all of them are told at once.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster.decide.field_problems import field_problems
from muster.scenarios.forms import (
    AREAS,
    QUESTION,
    EvictedExpect,
    Expect,
    JobForm,
    NodeForm,
    PlacedExpect,
    Quantity,
    QueueForm,
    RequestForm,
    RoleExpect,
    Scenario,
    TaskForm,
    TopologyForm,
    amount,
    completed,
)
from muster.scenarios.problems import problems_of

__all__ = [
    "AREAS", "QUESTION", "EvictedExpect", "Expect", "JobForm", "NodeForm", "PlacedExpect", "Quantity", "QueueForm",
    "RequestForm", "RoleExpect", "Scenario", "ScenarioError", "TaskForm", "TopologyForm", "amount", "completed", "load",
]  # fmt: skip


class ScenarioError(ValueError):
    """A file that is no scenario; the message says the file, the place in it and what would be right."""


def load(path: Path) -> Scenario:
    """Read and check one file.

    Raises:
        ScenarioError: with the file, the place in it, and what is wrong there.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ScenarioError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: no scenario: give at least nodes and pending (see docs/scenarios.md)")
    if wrong := field_problems(data, Scenario):
        lines = [f"{path}{_line_of(path, problem.field)}: {problem.field}: {problem.message}" for problem in wrong]
        raise ScenarioError("\n".join(lines))
    scenario = completed(msgspec.convert(data, Scenario), name=path.stem)
    if problems := list(dict.fromkeys(problems_of(scenario))):
        raise ScenarioError("\n".join(f"{path}: {problem}" for problem in problems))
    return scenario


def _line_of(path: Path, place: str) -> str:
    """The line of a place such as ``nodes[2].cpu``, as ``:12``; empty when it cannot be told."""
    node: Any = yaml.compose(path.read_text(encoding="utf-8"))
    for part in place.replace("[", ".[").split("."):
        if not part or node is None:
            continue
        if part.startswith("[") and isinstance(node, yaml.SequenceNode) and part[1:-1].isdigit():
            node = node.value[int(part[1:-1])]
        elif isinstance(node, yaml.MappingNode):
            found = [value for key, value in node.value if key.value == part]
            if not found:
                break
            node = found[0]
    return f":{node.start_mark.line + 1}" if node is not None else ""
