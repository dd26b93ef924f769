"""Kubernetes quantities as exact integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.quantity import (
    LARGEST,
    QuantityError,
    format_bytes,
    format_cpu,
    parse_quantity,
    to_bytes,
    to_milli_cpu,
    to_units,
    whole_number,
)
from muster.model.units import Sequence, first_sequence, incarnation_of


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        ("500m", 500),
        ("0.1", 100),
        (2, 2000),
        ("1e1", 10_000),
        ("100u", 1),
        ("1n", 1),
        (".5", 500),
        ("0", 0),
    ],
)
def test_cpu_in_thousandths_rounded_up(text, milli):
    assert to_milli_cpu(text) == milli


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1Ki", 1024),
        ("64Gi", 64 * 2**30),
        ("1k", 1000),
        ("1.5G", 1_500_000_000),
        ("128974848", 128974848),
        ("1E", 10**18),
    ],
)
def test_memory_in_bytes(text, amount):
    assert to_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gb", "abc", "1.2.3", "--1", "1ki", None, "1e"])
def test_what_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e999999999", "-1e99999", "1e-99999", "9" * 5000])
def test_what_is_beyond_every_amount_is_refused_before_it_is_computed(text):
    with pytest.raises(QuantityError, match="far beyond every amount"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["9E", "8192Pi", "9e18", "9" * 38])
def test_amounts_that_nothing_has_add_up_within_63_bits(text):
    assert to_milli_cpu(text) == to_bytes(text) == LARGEST
    assert 4 * LARGEST < 2**63


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("0", 0), (None, 0), ("", 0), ("-1", 0), ("1e3", 0), ("²", 0), ("9" * 19, 10**19 - 1), ("9" * 20, 0), ("9" * 100_000, 0)],
)  # fmt: skip
def test_a_whole_number_in_an_annotation_is_one_of_63_bits_or_nothing(text, number):
    assert whole_number(text) == number


@given(st.integers(0, 10**12), st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_whole_amounts_are_exact(number, suffix):
    scale = {"": 1, "k": 1000, "M": 10**6, "Ki": 1024, "Mi": 2**20}[suffix]
    assert to_units(f"{number}{suffix}") == number * scale


@given(st.integers(0, 10**12))
def test_rounding_up_never_makes_a_request_smaller(milli):
    assert to_units(f"{milli}m") * 1000 >= milli


def test_amounts_for_people():
    assert (format_cpu(1500), format_bytes(64 * 2**30), format_bytes(512)) == ("1.5", "64Gi", "512")


@given(st.integers(1, 2**20), st.integers(0, 2**39))
def test_a_sequence_tells_its_incarnation(incarnation, offset):
    assert incarnation_of(Sequence(first_sequence(incarnation) + offset)) == incarnation
