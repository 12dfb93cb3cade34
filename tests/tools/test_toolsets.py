"""Toolsets and their wrappers by themselves, without a supervisor."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell_tools import Capability, SessionKind, Tool, tool
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets import Combined, FunctionToolset, StaticToolset, ToolsetError, resolve, toolset

HERE = SessionInfo("s1", "agent", SessionKind.MAIN, None, frozenset(Capability), Path("/w"))
THERE = SessionInfo("s2", "agent", SessionKind.WORKER, None, frozenset(), Path("/w"))


def one() -> int:
    """One."""
    return 1


def two() -> int:
    """Two."""
    return 2


ONE, TWO = tool(one), tool(two)
BOTH = StaticToolset("both", [ONE, TWO])


def names(given: Any, session: SessionInfo = HERE) -> list[str]:
    found: Sequence[Tool[..., Any]] = anyio.run(given.tools, session)
    return [each.name for each in found]


def test_functions_are_wrapped() -> None:
    assert names(StaticToolset("plain", [one, two])) == ["one", "two"]


def test_filtered_by_name_and_by_predicate() -> None:
    assert names(BOTH.filtered(["two"])) == ["two"]
    by_kind = BOTH.filtered(lambda session, each: each.name == "one" or session.session_kind is SessionKind.MAIN)
    assert (names(by_kind), names(by_kind, THERE)) == (["one", "two"], ["one"])


def test_a_filter_or_a_renaming_by_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ToolsetError, match=r"'three'.*It has: one, two"):
        names(BOTH.filtered(["three"]))
    with pytest.raises(ToolsetError, match="'three' to rename"):
        names(BOTH.renamed({"drei": "three"}))


def test_prefixed_renamed_and_combined() -> None:
    assert names(BOTH.prefixed("a")) == ["a_one", "a_two"]
    assert names(BOTH.renamed({"uno": "one"})) == ["uno", "two"]
    assert names(Combined("all", [BOTH, BOTH.prefixed("a")])) == ["one", "two", "a_one", "a_two"]


def test_a_clash_within_a_combination_names_both_origins() -> None:
    with pytest.raises(ToolsetError, match=r"'one'.*toolset 'both' and .*toolset 'both'.*prefixed"):
        names(Combined("all", [BOTH, BOTH]))


def test_prepared_changes_and_leaves_out() -> None:
    def prepare(session: SessionInfo, each: Tool[..., Any]) -> Tool[..., Any] | None:
        if each.name == "two":
            return None
        return each.replace(description=f"For {session.agent_id}.")

    found = anyio.run(BOTH.prepared(prepare).tools, HERE)
    assert [each.declaration.description for each in found] == ["For agent."]
    assert ONE.declaration.description == "One."


def test_metadata_is_added_and_the_original_is_left_as_it_was() -> None:
    found = anyio.run(BOTH.with_metadata(owner="ann").with_metadata(cost=3).tools, HERE)
    assert [dict(each.metadata) for each in found] == [{"owner": "ann", "cost": 3}] * 2
    assert dict(ONE.metadata) == {}


def test_variants_are_made_once_so_that_cells_are_kept() -> None:
    for wrapper in (BOTH.prefixed("a"), BOTH.renamed({"x": "one"}), BOTH.approval_required(), BOTH.with_metadata(a=1)):
        assert anyio.run(wrapper.tools, HERE)[0] is anyio.run(wrapper.tools, THERE)[0]


def test_cached_asks_once_for_each_session_until_it_is_told_or_the_time_is_up() -> None:
    asked: list[str] = []

    def ask(session: SessionInfo) -> list[Tool[..., Any]]:
        asked.append(session.session_id)
        return [ONE]

    cached = FunctionToolset("f", ask).cached()
    for session in (HERE, HERE, THERE, THERE):
        assert names(cached, session) == ["one"]
    assert asked == ["s1", "s2"]
    cached.forget("s1")
    names(cached, HERE), names(cached, THERE)
    assert asked == ["s1", "s2", "s1"]
    at_once = FunctionToolset("f", ask).cached(seconds=0)
    names(at_once), names(at_once)
    assert asked[-2:] == ["s1", "s1"]


def test_a_failure_is_not_cached() -> None:
    failing = True

    def ask(session: SessionInfo) -> list[Tool[..., Any]]:
        if failing:
            raise ConnectionError("gone")
        return [ONE]

    cached = FunctionToolset("f", ask).cached()
    with pytest.raises(ConnectionError):
        names(cached)
    failing = False
    assert names(cached) == ["one"]


def test_the_decorator_makes_a_toolset_of_the_functions_name() -> None:
    @toolset
    async def weather(session: SessionInfo) -> list[Tool[..., Any]]:
        return [ONE]

    assert weather.name == "weather" and names(weather) == ["one"]


def test_a_function_is_wrapped_once_and_is_the_same_tool_at_each_request() -> None:
    asked = FunctionToolset("f", lambda session: [one, two])
    assert anyio.run(asked.tools, HERE) == anyio.run(asked.tools, THERE)
    assert names(asked) == ["one", "two"]


@pytest.mark.parametrize("given", [42, "one", None], ids=str)
def test_what_is_no_tool_is_an_error_that_names_the_toolset(given: Any) -> None:
    with pytest.raises(ToolsetError, match="toolset 'odd'"):
        StaticToolset("odd", [given])
    with pytest.raises(ToolsetError, match="toolset 'odd'"):
        anyio.run(resolve, [], [FunctionToolset("odd", lambda session: [given])], HERE)
