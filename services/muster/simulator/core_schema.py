"""Compact schemas of built-in kinds, written one type a line, compiled to checkers and to OpenAPI.

    Taint: key=string value=string effect=string timeAdded=time

A field's type is a scalar, another type's name, [T] for a list or {T} for a map; `any` is not looked into. A checker
drops unknown fields and answers their paths, and raises WrongTypeError as Go's decoder would word it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster.decide.known_fields import parse_types
from muster.simulator.core_types import KINDS, TYPES

JsonObject = dict[str, Any]
Checker = Callable[[Any], "list[str] | None"]


class WrongTypeError(ValueError):
    """A field of a type that cannot be decoded; the message names it."""


def _json_name(value: object) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


_SCALARS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "string"),
    "time": ((str,), "Time"),
    "bool": ((bool,), "bool"),
    "int": ((int,), "int32"),
    "number": ((int, float), "float64"),
    "intstr": ((int, str), "IntOrString"),
    "quantity": ((int, float, str), "Quantity"),
}


_PARSED = parse_types(TYPES)


def _scalar(kind: str) -> Checker:
    accepted, go_name = _SCALARS[kind]

    def check(value: Any) -> None:
        if value is None or (isinstance(value, accepted) and (kind == "bool" or not isinstance(value, bool))):
            return
        raise WrongTypeError(f"{_json_name(value)}|{go_name}")

    return check


def _list_checker(item: Checker) -> Checker:
    def check(value: Any) -> list[str] | None:
        if value is None:
            return None
        if not isinstance(value, list):
            raise WrongTypeError(f"{_json_name(value)}|array")
        unknown: list[str] = []
        for index, element in enumerate(value):
            found = item(element)
            if found:
                unknown += [f"[{index}].{path}" if not path.startswith("[") else f"[{index}]{path}" for path in found]
        return unknown

    return check


def _map_checker(item: Checker) -> Checker:
    def check(value: Any) -> list[str] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise WrongTypeError(f"{_json_name(value)}|map")
        unknown: list[str] = []
        for key, element in value.items():
            try:
                found = item(element)
            except WrongTypeError as error:
                raise _inside(error, "", "") from error
            if found:
                unknown += [f"{key}.{path}" for path in found]
        return unknown

    return check


def _inside(error: WrongTypeError, struct: str, field: str) -> WrongTypeError:
    """The same error one level further out: `kind|type|Struct|path`."""
    found, wanted, *place = str(error).split("|")
    if not field:
        return error
    path = field if len(place) < 2 else f"{field}.{place[1]}"
    return WrongTypeError(f"{found}|{wanted}|{place[0] if place else struct}|{path}")


class _Compiler:
    """Compiles each type once; recursive types are reached through the table."""

    def __init__(self, types: Mapping[str, Mapping[str, str]]) -> None:
        self._types = types
        self._compiled: dict[str, Checker] = {}

    def checker(self, expression: str) -> Checker:
        if expression == "any":
            return lambda _value: None
        if expression in _SCALARS:
            return _scalar(expression)
        if expression.startswith("["):
            return _list_checker(self.checker(expression[1:-1]))
        if expression.startswith("{"):
            return _map_checker(self.checker(expression[1:-1]))
        found = self._compiled.get(expression)
        if found is None:
            found = self._compiled[expression] = self._struct(expression)
        return found

    def _struct(self, name: str) -> Checker:
        fields = {field: self.checker(expression) for field, expression in self._types[name].items()}

        def check(value: Any) -> list[str] | None:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise WrongTypeError(f"{_json_name(value)}|{name}")
            unknown: list[str] = []
            strangers: list[str] = []
            for field, element in value.items():
                checker = fields.get(field)
                if checker is None:
                    strangers.append(field)
                    continue
                try:
                    found = checker(element)
                except WrongTypeError as error:
                    raise _inside(error, name, field) from error
                if found:
                    unknown += [f"{field}{path}" if path.startswith("[") else f"{field}.{path}" for path in found]
            for field in strangers:
                unknown.append(field)
                del value[field]
            return unknown

        return check


_COMPILER = _Compiler(_PARSED)
_METADATA = _COMPILER.checker("ObjectMeta")
_CHECKERS: Mapping[str, Checker] = {resource: _COMPILER.checker(name) for resource, name in KINDS.items()}


def check_core(resource: str, obj: JsonObject) -> list[str]:
    """Drop unknown fields of a built-in object in place and answer their paths; WrongTypeError names a bad field."""
    checker = _CHECKERS.get(resource)
    return check_metadata(obj) if checker is None else _run(checker, obj)


def check_metadata(obj: JsonObject) -> list[str]:
    """As `check_core` for a kind of which only the metadata is known."""
    return [f"metadata.{path}" for path in _run(_METADATA, obj.get("metadata"))]


def _run(checker: Checker, obj: Any) -> list[str]:
    try:
        return checker(obj) or []
    except WrongTypeError as error:
        found, wanted, *place = str(error).split("|")
        where = f"field {place[0]}.{place[1]}" if len(place) == 2 else "value"
        raise WrongTypeError(f"json: cannot unmarshal {found} into Go struct {where} of type {wanted}") from error


def _open_api(expression: str) -> JsonObject:
    match expression:
        case "any":
            return {"x-kubernetes-preserve-unknown-fields": True}
        case "string":
            return {"type": "string"}
        case "time":
            return {"type": "string", "format": "date-time"}
        case "bool":
            return {"type": "boolean"}
        case "int":
            return {"type": "integer", "format": "int64"}
        case "number":
            return {"type": "number"}
        case "intstr":
            return {"type": "string", "format": "int-or-string"}
        case "quantity":
            return {"type": "string"}
        case _ if expression.startswith("["):
            return {"type": "array", "items": _open_api(expression[1:-1])}
        case _ if expression.startswith("{"):
            return {"type": "object", "additionalProperties": _open_api(expression[1:-1])}
        case _:
            return {"$ref": f"#/components/schemas/{expression}"}


def _referenced(expression: str) -> str:
    return expression.strip("[]{}")


def open_api_schemas(resource: str) -> tuple[str, dict[str, JsonObject]] | None:
    """The schema name of a built-in resource and every schema it needs; None when it has no compact schema."""
    root = KINDS.get(resource)
    if root is None:
        return None
    schemas: dict[str, JsonObject] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in schemas or name not in _PARSED:
            continue
        fields = _PARSED[name]
        schemas[name] = {"type": "object", "properties": {field: _open_api(kind) for field, kind in fields.items()}}
        waiting += [_referenced(kind) for kind in fields.values()]
    return root, schemas
