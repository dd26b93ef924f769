"""Structural OpenAPI v3 schemas of custom resources: prune what is unknown, fill in defaults, name every broken field.

The order is the real server's: prune, default, validate; messages are worded like its own. Rules in CEL
(x-kubernetes-validations) are not evaluated.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from muster.simulator.errors import FieldError, invalid_value, quoted, required, unsupported_value

JsonObject = dict[str, Any]
Schema = Mapping[str, Any]

_ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_INTEGER_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_pattern = lru_cache(maxsize=1024)(re.compile)


def apply_schema(schema: Schema, obj: JsonObject) -> list[FieldError]:
    """Prune and default an object in place; the answer lists what is wrong with the result."""
    prune(schema, obj)
    _default(schema, obj)
    return _object_errors(schema, obj, "", skip=_ROOT_FIELDS)


def child(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name


def prune(schema: Schema, obj: JsonObject, *, path: str = "", root: bool = True) -> list[str]:
    """Drop fields the schema does not know, in place; the answer lists their paths."""
    dropped: list[str] = []
    _prune(schema, obj, path, root=root, dropped=dropped)
    return dropped


def _prune(schema: Schema, value: Any, path: str, *, root: bool, dropped: list[str]) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if items is not None:
            for index, item in enumerate(value):
                _prune(items, item, f"{path}[{index}]", root=False, dropped=dropped)
        return
    if not isinstance(value, dict):
        return
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    kept = schema.get("x-kubernetes-preserve-unknown-fields") or additional is True
    root = root or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in list(value):
        known = properties.get(name)
        if root and name in _ROOT_FIELDS:
            continue
        if known is not None:
            _prune(known, value[name], child(path, name), root=False, dropped=dropped)
        elif isinstance(additional, Mapping):
            _prune(additional, value[name], child(path, name), root=False, dropped=dropped)
        elif not kept:
            dropped.append(child(path, name))
            del value[name]


def _default(schema: Schema, value: Any) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if items is not None:
            for item in value:
                _default(items, item)
        return
    if not isinstance(value, dict):
        return
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    for name, known in properties.items():
        if value.get(name) is None:
            if "default" in known:
                value[name] = orjson.loads(orjson.dumps(known["default"]))
            elif name in value and not known.get("nullable") and "type" in known:
                del value[name]  # a null where null is not allowed counts as absent
                continue
        if name in value:
            _default(known, value[name])
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        for name, item in value.items():
            if name not in properties:
                _default(additional, item)


def type_name(value: object) -> str:
    """The JSON type of a value as the server's messages call it."""
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_fits(wanted: str, value: Any) -> bool:
    found = type_name(value)
    if wanted == "number":
        return found in {"integer", "number"}
    if wanted == "integer":
        return found == "integer" or (isinstance(value, float) and value.is_integer())
    return found == wanted


def value_errors(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """What is wrong with a value at a path."""
    if value is None and schema.get("nullable"):
        return []
    if schema.get("x-kubernetes-int-or-string"):
        if type_name(value) not in {"integer", "string"}:
            return [_type_error(path, value, "integer,string")]
        return _combined_errors(schema, value, path)
    wanted = schema.get("type")
    if wanted is not None and not _type_fits(wanted, value):
        return [_type_error(path, value, wanted)]
    errors: list[FieldError] = []
    match value:
        case bool() | None:
            pass
        case str():
            errors += _string_errors(schema, value, path)
        case int() | float():
            errors += _number_errors(schema, value, path)
        case list():
            errors += _list_errors(schema, value, path)
        case dict():
            errors += _object_errors(schema, value, path)
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        errors.append(unsupported_value(path, value, allowed=[str(choice) for choice in allowed]))
    return errors + _combined_errors(schema, value, path)


def _type_error(path: str, value: object, wanted: str) -> FieldError:
    found = type_name(value)
    shown = quoted(found)
    return FieldError(
        path,
        "FieldValueTypeInvalid",
        f"Invalid value: {shown}: {path or 'the object'} in body must be of type {wanted}: {shown}",
    )


def _string_errors(schema: Schema, value: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(value) > schema.get("maxLength", len(value)):
        errors.append(
            FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes")
        )
    if len(value) < schema.get("minLength", 0):
        detail = f"{path} in body should be at least {schema['minLength']} chars long"
        errors.append(invalid_value(path, value, detail=detail))
    pattern = schema.get("pattern")
    if pattern is not None and _pattern(pattern).search(value) is None:
        errors.append(invalid_value(path, value, detail=f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time" and not re.match(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d", value):
        errors.append(invalid_value(path, value, detail=f"{path} in body must be of type date-time: {quoted(value)}"))
    return errors


def _number_errors(schema: Schema, value: float, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if "minimum" in schema:
        bound, strict = schema["minimum"], bool(schema.get("exclusiveMinimum"))
        if value < bound or (strict and value == bound):
            relation = "greater than" if strict else "greater than or equal to"
            errors.append(invalid_value(path, value, detail=f"{path} in body should be {relation} {bound}"))
    if "maximum" in schema:
        bound, strict = schema["maximum"], bool(schema.get("exclusiveMaximum"))
        if value > bound or (strict and value == bound):
            relation = "less than" if strict else "less than or equal to"
            errors.append(invalid_value(path, value, detail=f"{path} in body should be {relation} {bound}"))
    if "multipleOf" in schema and value % schema["multipleOf"]:
        errors.append(
            invalid_value(path, value, detail=f"{path} in body should be a multiple of {schema['multipleOf']}")
        )
    span = _INTEGER_RANGES.get(schema.get("format", ""))
    if span is not None and not span[0] <= value <= span[1]:
        detail = f"{path} in body must be of type {schema['format']}: {quoted(str(value))}"
        errors.append(invalid_value(path, value, detail=detail))
    return errors


def _list_errors(schema: Schema, value: list[Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(value) < schema.get("minItems", 0):
        detail = f"{path} in body should have at least {schema['minItems']} items"
        errors.append(invalid_value(path, len(value), detail=detail))
    if len(value) > schema.get("maxItems", len(value)):
        text = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
        errors.append(FieldError(path, "FieldValueTooMany", text))
    items = schema.get("items")
    if items is not None:
        for index, item in enumerate(value):
            errors += value_errors(items, item, f"{path}[{index}]")
    kind = schema.get("x-kubernetes-list-type")
    if kind in {"set", "map"}:
        keys = schema.get("x-kubernetes-list-map-keys") or []
        seen: set[bytes] = set()
        for index, item in enumerate(value):
            identity: Any = {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, dict) else item
            encoded = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
            if encoded in seen:
                errors.append(
                    FieldError(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {quoted(identity)}")
                )
            seen.add(encoded)
    return errors


def _object_errors(
    schema: Schema, value: JsonObject, path: str, *, skip: frozenset[str] = frozenset()
) -> list[FieldError]:
    errors = [required(child(path, name)) for name in schema.get("required") or () if value.get(name) is None]
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name, item in value.items():
        if name in skip:
            continue
        known = properties.get(name)
        if known is not None:
            if item is not None or "type" in known:
                errors += value_errors(known, item, child(path, name))
        elif isinstance(additional, Mapping):
            errors += value_errors(additional, item, child(path, name))
    if len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        errors.append(invalid_value(path, len(value), detail=detail))
    if len(value) > schema.get("maxProperties", len(value)):
        text = f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        errors.append(FieldError(path, "FieldValueTooMany", text))
    return errors


def _combined_errors(schema: Schema, value: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for part in schema.get("allOf") or ():
        errors += value_errors(part, value, path)
    choices = schema.get("anyOf")
    if choices and not any(not value_errors(choice, value, path) for choice in choices):
        errors.append(invalid_value(path, value, detail=f"{path} in body must validate at least one schema (anyOf)"))
    choices = schema.get("oneOf")
    if choices and sum(not value_errors(choice, value, path) for choice in choices) != 1:
        errors.append(
            invalid_value(path, value, detail=f"{path} in body must validate one and only one schema (oneOf)")
        )
    refused = schema.get("not")
    if refused is not None and not value_errors(refused, value, path):
        errors.append(invalid_value(path, value, detail=f"{path} in body must not validate the schema (not)"))
    return errors
