"""A YAML document against a msgspec struct: every problem at once, each with its line and field and what would be right.

text ─► nodes with their lines ─► walk beside the struct's types ─► problems, in the order of the lines
                                                                 └─► lines by field, for what is checked afterwards
"""

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import inspect

from muster.model.durations import DurationError, parse_duration
from muster.runtime.yaml_lines import YamlError

MANY = 12
"""Known keys that a sentence lists at the most."""


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong in a file."""

    line: int
    """From 1; 0 when it has none."""
    field: str
    """A path such as ``tenants.team-a.queues[0]``; '' is the document."""
    value: str
    message: str


class Checked(NamedTuple):
    """What a document says, and what is wrong with it."""

    document: Any
    problems: tuple[FileProblem, ...]
    lines: dict[str, int]


def check_text(text: str, kind: type[msgspec.Struct]) -> Checked:
    """Every difference between a YAML text and what a struct takes.

    Raises:
        YamlError: the text cannot be read at all.
    """
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        document = yaml.safe_load(text) if len(nodes) <= 1 else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 0
        raise YamlError(f"not YAML: {getattr(error, 'problem', None) or error}", line=line) from error
    except ValueError as error:  # a date that is none, and the like
        raise YamlError(f"not YAML: {error}", line=0) from error
    walk = _Walk()
    if len(nodes) > 1:
        walk.add(nodes[1], "", "one document is expected, and here a second begins")
    elif nodes and document is not None:
        walk.value(nodes[0], inspect.type_info(kind), "")
    problems = sorted(walk.problems, key=lambda one: one.line)
    return Checked(document if document is not None else {}, tuple(problems), walk.lines)


class _Walk:
    def __init__(self) -> None:
        self.problems: list[FileProblem] = []
        self.lines: dict[str, int] = {}

    def add(self, node: yaml.Node, field: str, message: str) -> None:
        value = node.value if isinstance(node, yaml.ScalarNode) else ""
        line = node.start_mark.line + 1
        self.problems.append(FileProblem(line=line, field=field, value=str(value)[:60], message=message))

    def value(self, node: yaml.Node, kind: inspect.Type, field: str) -> None:
        self.lines[field] = node.start_mark.line + 1
        match kind:
            case inspect.UnionType():
                if not _is_null(node):
                    self.value(node, next(one for one in kind.types if not isinstance(one, inspect.NoneType)), field)
            case inspect.StructType():
                self._struct(node, kind, field)
            case inspect.DictType():
                for key, child in self._pairs(node, field):
                    self._under(key, child, kind.value_type, f"{field}.{key.value}")
            case inspect.VarTupleType():
                self._sequence(node, kind, field)
            case _:
                self._scalar(node, kind, field)

    def _struct(self, node: yaml.Node, kind: inspect.StructType, field: str) -> None:
        known = {one.encode_name: one.type for one in kind.fields}
        for key, child in self._pairs(node, field):
            name = str(key.value)
            path = f"{field}.{name}" if field else name
            if name in known:
                self._under(key, child, known[name], path)
            else:
                self.add(key, path, f"no key {name} is known here{_nearest(name, known)}")

    def _under(self, key: yaml.Node, child: yaml.Node, kind: inspect.Type, field: str) -> None:
        self.value(child, kind, field)
        self.lines[field] = key.start_mark.line + 1

    def _pairs(self, node: yaml.Node, field: str) -> Iterable[tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            # A key with nothing after it is null: the keys under it were left out, or are not indented.
            self.add(node, field, f"{_told(node)}, where a mapping of keys to values belongs")
            return
        seen: dict[str, int] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.add(key, field, "a key must be plain text")
                continue
            if key.value in seen:
                self.add(key, f"{field}.{key.value}".lstrip("."), f"stands here twice: first in line {seen[key.value]}")
                continue
            seen[key.value] = key.start_mark.line + 1
            yield key, child

    def _sequence(self, node: yaml.Node, kind: inspect.VarTupleType, field: str) -> None:
        if not isinstance(node, yaml.SequenceNode):
            fix = f"; write [{node.value}]" if isinstance(node, yaml.ScalarNode) and not _is_null(node) else ""
            self.add(node, field, f"{_told(node)}, where a list belongs{fix}")
            return
        for number, child in enumerate(node.value):
            self.value(child, kind.item_type, f"{field}[{number}]")

    def _scalar(self, node: yaml.Node, kind: inspect.Type, field: str) -> None:
        wrong = _wrong_scalar(node, kind)
        if wrong:
            self.add(node, field, wrong)


def _wrong_scalar(node: yaml.Node, kind: inspect.Type) -> str:
    """What is wrong with a plain value, '' for nothing."""
    tag = node.tag.rpartition(":")[2]
    plain = isinstance(node, yaml.ScalarNode)
    match kind:
        case inspect.BoolType():
            return "" if plain and tag == "bool" else f"{_told(node)}, where true or false belongs"
        case inspect.LiteralType():
            words = [str(one) for one in kind.values]
            if plain and node.value in words:
                return ""
            return f"{_told(node)}; here belongs {' or '.join(words)}{_nearest(str(node.value), words, listed=False)}"
        case inspect.StrType():
            if not plain or tag != "str":
                return (
                    f"{_told(node)}, where text belongs{f'; write {_quoted(node)}' if plain and tag != 'null' else ''}"
                )
            return "must not be empty" if kind.min_length and not node.value else ""
        case inspect.IntType():
            if plain and tag == "int":
                return _range(int(yaml.safe_load(node.value)), kind)
            whole = plain and tag == "float" and float(yaml.safe_load(node.value)).is_integer()
            fix = f"; write {float(yaml.safe_load(node.value)):.0f}" if whole else ""
            return f"{_told(node)}, where a whole number belongs{fix or _seconds(node)}"
        case inspect.FloatType():
            if plain and tag in {"int", "float"}:
                number = float(yaml.safe_load(node.value))
                return _range(number, kind) if math.isfinite(number) else f"{node.value} is no number that can be used"
            return f"{_told(node)}, where a number belongs{_seconds(node)}"
        case _:
            return f"{_told(node)}, which cannot be read here"


def _range(number: float, kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and number < kind.ge:
        most = f" to {kind.le}" if kind.le is not None else " or more"
        return f"{number:g} is too small: {kind.ge}{most} is right"
    if kind.le is not None and number > kind.le:
        return f"{number:g} is too large: {kind.ge}{' to ' if kind.ge is not None else ''}{kind.le} is right"
    return ""


def _seconds(node: yaml.Node) -> str:
    """What a duration such as 5m is in seconds, and a number that was quoted or has an exponent without a point."""
    if not isinstance(node, yaml.ScalarNode) or _is_null(node):
        return ""
    try:
        return f"; write {float(node.value):g}"
    except ValueError:
        pass
    try:
        return f"; in seconds that is {parse_duration(str(node.value)):g}"
    except DurationError:
        return ""


def _told(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "here stands a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "here stands a list"
    if _is_null(node):
        return "here stands nothing"
    tag = node.tag.rpartition(":")[2]
    return f"here stands {'the text ' if tag == 'str' else ''}{_quoted(node) if tag == 'str' else node.value}"


def _quoted(node: yaml.Node) -> str:
    return f'"{node.value}"'


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag.endswith(":null"))


def _nearest(word: str, known: Iterable[str], *, listed: bool = True) -> str:
    """``; did you mean x?``, else the known words."""
    words = sorted(known)
    plain = {_plain(one): one for one in reversed(words)}
    near = difflib.get_close_matches(_plain(word), list(plain), n=1)
    if near:
        return f"; did you mean {plain[near[0]]}?"
    if not listed:
        return ""
    more = f" and {len(words) - MANY} more" if len(words) > MANY else ""
    return f"; known are {', '.join(words[:MANY])}{more}"


def _plain(word: str) -> str:
    return re.sub("[-_ ]", "", re.sub("([a-z])([A-Z])", r"\1_\2", word).lower())
