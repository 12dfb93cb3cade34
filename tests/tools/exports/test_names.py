"""Names: what fits stays, what does not is shortened reversibly, and nothing ever collides."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell_tools.exports.dialect import NameRule, fit_names

RULE = NameRule("a-zA-Z_", "a-zA-Z0-9_-", 64)


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_any_names_fit_and_come_back(names: list[str]) -> None:
    mapped = fit_names(names, RULE)
    exported = [mapped.exported(name) for name in names]
    assert len(set(exported)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", one) for one in exported)
    assert [mapped.original(one) for one in exported] == names


def test_only_what_must_change_changes() -> None:
    mapped = fit_names(["read", "a.b", "x" * 64, "x" * 65], RULE)
    assert mapped.changed.keys() == {"a.b", "x" * 65}
    assert mapped.exported("a.b").startswith("a_b_")


def test_a_name_that_looks_like_a_shortened_one_stays_and_the_other_gives_way() -> None:
    shortened = fit_names(["a.b"], RULE).exported("a.b")
    both = fit_names(["a.b", shortened], RULE)
    assert both.exported(shortened) == shortened
    assert both.exported("a.b") != shortened
    assert both.original(both.exported("a.b")) == "a.b"


def test_equal_names_map_alike_in_every_process() -> None:
    assert fit_names(["server.tool"], RULE).exported("server.tool") == "server_tool_ea6df6d3"


def test_a_name_that_was_never_exported_is_an_unknown_tool_and_not_an_error() -> None:
    mapped = fit_names(["read"], RULE)
    assert mapped.original("raed") == "raed"
    with pytest.raises(KeyError):
        mapped.exported("raed")
