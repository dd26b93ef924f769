"""Everything that is wrong with a JSON value that should have the form of a struct, in sentences for people.

    value + struct ─► msgspec takes it: no problems
                      it does not: every unknown, missing and wrong field is told at once, each with what would be right

msgspec itself tells the first error only, in words for programmers. What it accepts is accepted here, always.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from muster.decide.findings import Problem
from muster.decide.spelling import meant

LONGEST_SHOWN = 60
EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
TYPE_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list",
    "object": "a mapping", "null": "nothing",
}  # fmt: skip
Words = Mapping[str, Callable[[str], str]]
"""Pattern of a text → why a text does not match it, '' when it does."""


def field_problems(value: Any, kind: type[msgspec.Struct], *, words: Words | None = None) -> list[Problem]:
    """What keeps a value from being read as ``kind``; empty when it can be read. Paths look like ``nodes[0].gpus``."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = list(_problems(value, inspect.type_info(kind), "", words or {}))
        return found or [told(str(error))]
    return []


def told(text: str) -> Problem:
    """Msgspec's own words, as a problem: for what no field is to blame alone."""
    message, _, path = text.partition(" - at ")
    return Problem(field=path.strip("`").removeprefix("$").removeprefix("."), value="", message=in_words(message))


def in_words(message: str) -> str:
    """Msgspec's ``Expected `int`, got `str` `` as ``this is a text; give a whole number``; other messages as they are."""
    matched = EXPECTED.fullmatch(message)
    if matched is None:
        return message
    wanted = " or ".join(TYPE_WORDS.get(name, name) for name in matched[1].split(" | ") if name != "null")
    return f"this is {TYPE_WORDS.get(matched[2], matched[2])}; give {wanted}"


def _problems(value: Any, form: inspect.Type, path: str, words: Words) -> Iterable[Problem]:
    match form:
        case inspect.Metadata():
            yield from _problems(value, form.type, path, words)
        case inspect.StructType():
            yield from _mapping(value, form, path, words)
        case inspect.UnionType():
            yield from _either(value, form, path, words)
        case inspect.DictType():
            if not isinstance(value, Mapping):
                yield _wrong(path, value, f"{_is(value)}; give a mapping of names to values")
                return
            for name, item in value.items():
                if not isinstance(name, str):
                    yield _wrong(path, name, f"the name {shown(name)} is {_kind(name)}; write it in quotes")
                    continue
                yield from _problems(item, form.value_type, f"{path}.{name}", words)
        case inspect.VarTupleType() | inspect.ListType():
            if not isinstance(value, list | tuple):
                yield _wrong(path, value, f"{_is(value)}; give a list")
                return
            for number, item in enumerate(value):
                yield from _problems(item, form.item_type, f"{path}[{number}]", words)
        case _:
            if message := _scalar(value, form, words):
                yield _wrong(path, value, message)


def _mapping(value: Any, form: inspect.StructType, path: str, words: Words) -> Iterable[Problem]:
    names = [field.encode_name for field in form.fields]
    if not isinstance(value, Mapping):
        message = f"{_is(value)}; give a mapping with {', '.join(names)}"
        yield _wrong(path, value, message)
        return
    here = f"{path}." if path else ""
    for name in value:
        if form.forbid_unknown_fields and name not in names:
            yield _wrong(f"{here}{name}", value[name], unknown(str(name), names))
    for field in form.fields:
        if field.encode_name in value:
            yield from _problems(value[field.encode_name], field.type, f"{here}{field.encode_name}", words)
        elif field.required:
            yield Problem(field=f"{here}{field.encode_name}", value="", message="is missing")


def unknown(name: str, known: Iterable[str]) -> str:
    """That there is no such field, with the likely one, or with all when none is near."""
    names = list(known)
    return f"there is no field {name} here{meant(name, names) or '; there are ' + ', '.join(names)}"


def _either(value: Any, form: inspect.UnionType, path: str, words: Words) -> Iterable[Problem]:
    if value is None and any(isinstance(one, inspect.NoneType) for one in form.types):
        return
    found = [list(_problems(value, one, path, words)) for one in form.types if not isinstance(one, inspect.NoneType)]
    if not found or any(not problems for problems in found):
        return
    if len(found) == 1:
        yield from found[0]
        return
    wanted = " or ".join(_wanted(one) for one in form.types if not isinstance(one, inspect.NoneType))
    yield _wrong(path, value, f"{_is(value)}; give {wanted}")


def _scalar(value: Any, form: inspect.Type, words: Words) -> str:
    """Why a value is none of this form, '' when it is."""
    match form:
        case inspect.IntType() | inspect.FloatType():
            return _number(value, form)
        case inspect.StrType():
            return _text(value, form, words)
        case inspect.BoolType():
            return "" if isinstance(value, bool) else f"{_is(value)}; give true or false"
        case inspect.LiteralType():
            known = [str(one) for one in form.values]
            if value in form.values:
                return ""
            return f"{shown(value)} is not one of {', '.join(known)}{meant(str(value), known)}"
    return ""


def _number(value: Any, form: inspect.IntType | inspect.FloatType) -> str:
    wanted = _wanted(form)
    accepted = int if isinstance(form, inspect.IntType) else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted):
        return f"{_is(value)}; give {wanted}"
    if form.ge is not None and value < form.ge:
        return f"{value} is below {form.ge:g}; give {wanted}"
    if form.gt is not None and value <= form.gt:
        return f"{value} is not above {form.gt:g}; give {wanted}"
    if form.le is not None and value > form.le:
        return f"{value} is above {form.le:g}; give {wanted}"
    return ""


def _text(value: Any, form: inspect.StrType, words: Words) -> str:
    if not isinstance(value, str):
        return f"{_is(value)}; give a text, in quotes"
    if form.min_length and len(value) < form.min_length:
        return "is empty" if not value else f"{shown(value)} is too short: at least {form.min_length} characters"
    if form.max_length is not None and len(value) > form.max_length:
        return f"has {len(value)} characters, at most {form.max_length} are possible"
    explain = words.get(form.pattern or "")
    return explain(value) if explain is not None else ""


def _wanted(form: inspect.Type) -> str:
    match form:
        case inspect.Metadata():
            return _wanted(form.type)
        case inspect.IntType() | inspect.FloatType():
            what = "a whole number" if isinstance(form, inspect.IntType) else "a number"
            if form.ge is not None and form.le is not None:
                return f"{what} from {form.ge:g} to {form.le:g}"
            if form.ge is not None:
                return f"{what} from {form.ge:g} on"
            return f"{what} above {form.gt:g}" if form.gt is not None else what
        case inspect.StrType():
            return "a text"
        case inspect.LiteralType():
            return " or ".join(str(one) for one in form.values)
        case inspect.VarTupleType() | inspect.ListType():
            return "a list"
        case _:
            return "a mapping"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "a truth value"
        case int():
            return "a number"
        case float():
            return "no whole number" if not value.is_integer() else "a number with a point"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


def _is(value: Any) -> str:
    """``"8" is a text``. What stands in lists and mappings is not shown: it may hold secrets."""
    return (
        f"this is {_kind(value)}" if isinstance(value, list | tuple | Mapping) else f"{shown(value)} is {_kind(value)}"
    )


def shown(value: Any) -> str:
    """A value as it stands in JSON, shortened; '' for lists and mappings."""
    if isinstance(value, list | tuple | Mapping):
        return ""
    text = msgspec.json.encode(value, enc_hook=str).decode() if not isinstance(value, float) else f"{value:g}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _wrong(path: str, value: Any, message: str) -> Problem:
    return Problem(field=path, value=shown(value), message=message)
