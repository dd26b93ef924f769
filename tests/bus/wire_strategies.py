"""Hypothesis strategies for wire structs, made from their types and constraints."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from muster.bus.messages import StateMessage, Submit
from muster.bus.state import OBJECTS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def of(kind: type) -> st.SearchStrategy[Any]:
    """Values of a wire struct."""
    if kind is StateMessage:
        return st.sampled_from(sorted(OBJECTS)).flatmap(
            lambda word: st.builds(
                StateMessage,
                epoch=st.integers(0, 2**53),
                kind=st.just(word),
                key=st.text(max_size=8),
                resource_version=st.text(max_size=8),
                object=(st.none() | of(OBJECTS[word])).map(lambda found: msgspec.Raw(msgspec.json.encode(found))),
            )
        )
    if kind is Submit:
        parts = {field.name: of_type(field.type) for field in inspect.type_info(Submit).fields}
        short = st.fixed_dictionaries({**parts, "manifest": st.none()}).filter(lambda found: found["short"] is not None)
        manifest = st.fixed_dictionaries({**parts, "short": st.none()}).filter(
            lambda found: found["manifest"] is not None
        )
        return (short | manifest).map(lambda found: Submit(**found))
    return of_type(inspect.type_info(kind))


def of_type(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of one inspected type."""
    match kind:
        case inspect.Metadata():
            return of_type(kind.type)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            low = -(2**53) if kind.ge is None else kind.ge
            return st.integers(low if kind.gt is None else kind.gt + 1, 2**53 if kind.le is None else kind.le)
        case inspect.FloatType():
            return st.floats(min_value=kind.gt, exclude_min=kind.gt is not None, allow_nan=False, allow_infinity=False)
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=8)
        case inspect.BytesType():
            return st.binary(max_size=8)
        case inspect.EnumType():
            return st.sampled_from(kind.cls)
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.UnionType():
            return st.one_of(*map(of_type, kind.types))
        case inspect.VarTupleType():
            return st.lists(of_type(kind.item_type), max_size=2).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(of_type, kind.item_types))
        case inspect.DictType(value_type=inspect.AnyType()):
            return st.dictionaries(st.text(max_size=5), JSON, max_size=2)
        case inspect.DictType():
            return st.dictionaries(of_type(kind.key_type), of_type(kind.value_type), max_size=2)
        case inspect.StructType():
            return st.builds(kind.cls, **{field.name: of_type(field.type) for field in kind.fields})
        case _:
            raise TypeError(f"no strategy for {kind}")
