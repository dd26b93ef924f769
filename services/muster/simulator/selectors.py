"""Label and field selectors, compiled once per request into predicates over objects.

Label selectors take every operator of the API: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, `a>5`,
`a<5`. Field selectors take `=`, `==` and `!=` on the fields the server indexes for that resource, and are refused on others.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from muster.simulator.errors import bad_request

JsonObject = dict[str, Any]
Predicate = Callable[[JsonObject], bool]

_FIELDS: Mapping[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
    "secrets": frozenset({"type"}),
    "jobs.batch": frozenset({"status.successful"}),
}
_ALWAYS = frozenset({"metadata.name", "metadata.namespace"})
_FALSE_WHEN_MISSING = frozenset({"spec.unschedulable", "spec.hostNetwork"})

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_COMPARE = re.compile(r"^(?P<key>[^\s!=<>]+)\s*(?P<operator>==|!=|=|<|>)\s*(?P<value>[^\s=<>!]*)$")
_EXISTS = re.compile(r"^(?P<negated>!?)\s*(?P<key>[^\s!=<>()]+)$")


def _split(text: str) -> list[str]:
    """Split at commas that are not inside parentheses."""
    parts: list[str] = []
    depth = start = 0
    for position, letter in enumerate(text):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _label_requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(part):
        key = match["key"]
        values = frozenset(value.strip() for value in match["values"].split(","))
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _COMPARE.match(part):
        key, operator, value = match["key"], match["operator"], match["value"]
        if operator in {"=", "=="}:
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        bound = _number(value)
        if bound is None:
            raise bad_request(
                f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": must be an integer'
            )
        if operator == ">":
            return lambda labels: (number := _number(labels.get(key))) is not None and number > bound
        return lambda labels: (number := _number(labels.get(key))) is not None and number < bound
    if match := _EXISTS.match(part):
        key = match["key"]
        if match["negated"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise bad_request(
        f"unable to parse requirement: found '{part}', expected: a label selector such as a=b, a in (b,c), !a"
    )


def label_predicate(text: str) -> Predicate | None:
    """The predicate of a labelSelector parameter; None when it selects everything; 400 when it cannot be read."""
    requirements = [_label_requirement(part) for part in _split(text)]
    if not requirements:
        return None

    def matches(obj: JsonObject) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def selector_predicate(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """The predicate over labels of a metav1.LabelSelector; None selects nothing, an empty one everything."""
    if selector is None:
        return lambda _labels: False
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []

    def matches(labels: Mapping[str, str]) -> bool:
        if any(labels.get(key) != value for key, value in wanted.items()):
            return False
        for expression in expressions:
            key, values = expression["key"], expression.get("values") or []
            match expression["operator"]:
                case "In":
                    held = labels.get(key) in values
                case "NotIn":
                    held = labels.get(key) not in values
                case "Exists":
                    held = key in labels
                case _:
                    held = key not in labels
            if not held:
                return False
        return True

    return matches


def field_value(obj: Mapping[str, Any], path: str) -> str:
    """A field as field selectors compare it: text, with booleans lower case and a missing value empty."""
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path in _FALSE_WHEN_MISSING else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):  # events: `source` selects on the component
        return str(value.get("component", ""))
    return str(value)


def parse_fields(text: str) -> list[tuple[str, str, str]]:
    """A fieldSelector parameter as (path, operator, value) triples; 400 when it cannot be read."""
    triples: list[tuple[str, str, str]] = []
    for part in _split(text):
        match = re.match(r"^([^=!]+?)\s*(==|!=|=)\s*(.*)$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        triples.append((match[1], "!=" if match[2] == "!=" else "=", match[3]))
    return triples


def field_predicate(
    triples: list[tuple[str, str, str]], *, resource: str, selectable: frozenset[str] = frozenset()
) -> Predicate | None:
    """The predicate of parsed field requirements; `selectable` are a CRD's own; 400 names a field that is not indexed."""
    known = _ALWAYS | _FIELDS.get(resource, frozenset()) | selectable
    for path, _operator, _value in triples:
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
    if not triples:
        return None

    def matches(obj: JsonObject) -> bool:
        return all((field_value(obj, path) == value) == (operator == "=") for path, operator, value in triples)

    return matches


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """The conjunction, cheap when one side is absent."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)
