"""Limits: positive, finite, and only ever narrowed."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_sandbox import Limits


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Limits)])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "5", None])
def test_a_limit_that_is_not_positive_and_finite_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"Limits.{field} "):
        Limits(**{field: value})


def test_counts_are_whole_numbers() -> None:
    with pytest.raises(ValueError, match=r"Limits.processes is not a whole number: 1.5"):
        Limits(processes=1.5)  # type: ignore[arg-type]


def test_numbers_that_no_system_call_can_hold_are_refused() -> None:
    assert Limits(memory_bytes=(1 << 62) - 1).memory_bytes == (1 << 62) - 1
    for field in ("memory_bytes", "wall_s"):
        with pytest.raises(ValueError, match=rf"Limits\.{field} is 2\*\*62 or more"):
            Limits(**{field: 1 << 62})


@st.composite
def some_limits(draw: st.DrawFn) -> Limits:
    values = {
        field.name: draw(st.floats(0.001, 1e6) if field.name.endswith("_s") else st.integers(1, 1 << 61))
        for field in dataclasses.fields(Limits)
    }
    return Limits(**values)  # type: ignore[arg-type]


@given(some_limits(), some_limits())
def test_the_narrower_of_two_is_within_both_and_no_narrower_than_it_must_be(one: Limits, other: Limits) -> None:
    narrow = one.narrow(other)
    assert narrow.is_within(one) and narrow.is_within(other) and narrow == other.narrow(one)
    assert all(value in (vars(one)[name], vars(other)[name]) for name, value in vars(narrow).items())
    assert one.is_within(other) == (narrow == one)
    assert Limits.from_wire(narrow.to_wire()) == narrow


def test_a_copy_is_checked_and_leaves_the_original() -> None:
    limits = Limits()
    assert limits.replace(wall_s=1.0).wall_s == 1.0 and limits == Limits()
    with pytest.raises(ValueError, match=r"Limits\.processes is not a whole number"):
        limits.replace(processes=1.5)


def test_what_is_no_limits_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Limits\.narrow was given no Limits: 5"):
        Limits().narrow(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Limits has no such field: 'wall'\. Remove it"):
        Limits.from_wire({"wall": 5})
    with pytest.raises(ValueError, match=r"takes no 'wall'\. Did you mean 'wall_s'\?"):
        Limits(wall=5)  # type: ignore[call-arg]
