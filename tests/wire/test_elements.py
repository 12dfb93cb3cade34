"""The count of the elements that a body declares, before anything is built. `test_frames.py` has what is refused."""

from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.values import json_values

from toolcell.wire.frames import Field, WireLimits, decode, more_elements_than
from toolcell.wire.messages import from_fields

fuzzed = settings(max_examples=80, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


@fuzzed
@given(st.binary(max_size=200), st.integers(0, 50))
def test_decoding_and_counting_random_bytes_never_raises(body: bytes, limit: int) -> None:
    limits = WireLimits(elements=limit, depth=5)
    fields = decode(body, limits)
    if isinstance(fields, list):
        assert elements_of(fields) <= limit
        assert from_fields(fields) is not None
    more_elements_than(limit, body)


def elements_of(value: Field) -> int:
    if isinstance(value, dict):
        return len(value) + sum(elements_of(child) for child in value.values())
    return len(value) + sum(elements_of(child) for child in value) if isinstance(value, list) else 0


@fuzzed
@given(
    st.lists(
        json_values | st.lists(st.none(), max_size=70).map(lambda items: {"k": items, "t": "x" * 300}), max_size=20
    )
)
def test_the_count_of_elements_is_exact(value: list[Any]) -> None:
    body = msgpack.packb(value)
    count = elements_of(value)
    assert not more_elements_than(count, body)
    assert count == 0 or more_elements_than(count - 1, body)


@pytest.mark.parametrize("value", [1, "x" * 70_000, b"\xdd" * 300, 2.5, None], ids=lambda value: type(value).__name__)
def test_a_value_without_items_has_no_elements(value: object) -> None:
    assert not more_elements_than(0, msgpack.packb(value))


def test_the_items_that_a_cut_header_declares_count_and_those_after_the_first_value_do_not() -> None:
    assert more_elements_than(999, b"\xdc\x03\xe8" + b"\xc0" * 997)
    assert not more_elements_than(1, b"\x91\xc0" + b"\x93\xc0\xc0\xc0")
