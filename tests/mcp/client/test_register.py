"""The register of a server's tools, without a server."""

from typing import Any

import pytest

from toolcell import Profile, ToolsetError, UsageError
from toolcell.mcp.client import server_tools as module
from toolcell.mcp.client.inside.jsonrpc import PROBLEM
from toolcell.mcp.client.server_source import ServerSource
from toolcell.mcp.client.server_tools import Described, Register, ServerTool, Terms
from toolcell_tools.capability import Capability

SOURCE = ServerSource(
    name="test", profile=Profile(), needs=frozenset({Capability.EXEC}), uses=frozenset(), command=("x",)
)


def made(name: str, described: Described) -> ServerTool:
    return ServerTool(SOURCE, name, described, Terms())


def register(**options: Any) -> Register:
    return Register("test", made, options.get("pins", {}), options.get("prefix", ""))


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def names(kept: Register, *entries: dict[str, Any]) -> list[str]:
    return [tool.name for tool in kept.take([*entries])[0]]


def test_the_same_description_gives_the_same_object() -> None:
    kept = register()
    assert kept.take([entry("a")])[0][0] is kept.take([entry("b"), entry("a")])[0][1]


def test_a_name_does_not_depend_on_the_order_and_is_never_taken_over() -> None:
    assert names(register(), entry("b-c"), entry("b_c")) == names(register(), entry("b_c"), entry("b-c"))[::-1]
    kept = register()
    assert names(kept, entry("b-c")) == ["b_c"]
    later = names(kept, entry("b_c"), entry("b-c"))
    assert later[1] == "b_c" and later[0] != "b_c"


def test_a_prefix_is_part_of_the_name_and_makes_reserved_names_legal() -> None:
    assert names(register(prefix="x_"), entry("handoff"), entry("Echo")) == ["x_handoff", "x_echo"]


def test_a_change_keeps_the_tool_as_it_was_until_it_is_accepted() -> None:
    kept = register()
    (before,), _ = kept.take([entry("a", description="one")])
    tools, wrong = kept.take([entry("a", description="two")])
    (still,) = tools
    assert still is before and "no longer as it was first seen" in wrong[0]
    assert kept.take([entry("a", description="one")])[1] == []  # it is as before again
    assert kept.changed == {}
    with pytest.raises(UsageError, match="has not changed"):
        kept.accept(["a"])
    kept.take([entry("a", description="two")])
    kept.accept(["a"])
    assert kept.take([entry("a", description="two")])[0][0].declaration.description == "two"


def test_a_change_of_a_schema_is_a_change_and_one_of_the_title_is_none() -> None:
    kept = register()
    kept.take([entry("a", outputSchema={"type": "object"})])
    assert kept.take([entry("a", outputSchema={"type": "object"}, title="A")])[1] == []
    assert len(kept.take([entry("a", outputSchema={})])[1]) == 1


@pytest.mark.parametrize("wrong", [{"inputSchema": None}, {PROBLEM: "a number is not finite"}], ids=str)
def test_a_description_that_is_wrong_is_named_with_at_most_64_characters(wrong: dict[str, Any]) -> None:
    for length in (64, 65):
        tools, problems = register().take([entry("a" * length, **wrong), entry("b")])
        assert [tool.name for tool in tools] == ["b"]
        (problem,) = problems
        assert f"'{'a' * 64}'" in problem


def test_two_tools_of_one_name_are_both_left_out() -> None:
    tools, problems = register().take([entry("a" * 65), entry("a" * 65), entry("b")])
    assert [tool.name for tool in tools] == ["b"]
    assert problems == [f"two of its tools are named '{'a' * 64}'; neither is offered"]


def test_a_list_that_is_none_or_too_long_is_an_error_of_the_toolset() -> None:
    lists: list[object] = [{}, "tools", None]
    for wrong in lists:
        with pytest.raises(ToolsetError, match="malformed"):
            register().take(wrong)
    with pytest.raises(ToolsetError, match="511 tools"):
        register().take([entry(f"a{number}") for number in range(511)])


def test_words_about_the_whole_list_are_told_beside_its_tools() -> None:
    tools, problems = register().take([entry("a"), {PROBLEM: "its list of tools repeats"}])
    assert [tool.name for tool in tools] == ["a"] and problems == ["its list of tools repeats"]


def test_a_server_that_always_has_new_names_runs_out_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 3)
    kept = register()
    assert names(kept, entry("a"), entry("b")) == ["a", "b"] and names(kept, entry("c")) == ["c"]
    tools, wrong = kept.take([entry("a"), entry("d")])
    assert [tool.name for tool in tools] == ["a"] and "more than 3 names" in wrong[0]


def test_descriptions_are_cut_and_show_what_cannot_be_seen() -> None:
    tools, _wrong = register().take([entry("a", description="x\u202ey" + "z" * 5000, title="t" * 500)])
    (tool,) = tools
    shown = tool.declaration
    assert len(shown.description) == 1024 and shown.description.startswith("x\\u202ey")
    assert shown.annotations.title is not None and len(shown.annotations.title) == 100


def test_a_refused_schema_is_judged_once() -> None:
    kept = register()
    bad = entry("a", inputSchema={"type": "object", "$ref": "#/nowhere"})
    first, second = kept.take([bad]), kept.take([bad])
    assert first == second and first[0] == [] and "cannot be offered" in first[1][0]


@pytest.mark.parametrize("reference", ["#/allOf/" + "9" * 5_000, "#/maxProperties/0"], ids=["huge index", "number"])
def test_a_tool_whose_schema_refers_to_nothing_takes_no_other_with_it(reference: str) -> None:
    odd = {
        "type": "object",
        "allOf": [{}],
        "maxProperties": 5,
        "properties": {"a": {"$ref": reference}},
        "$defs": {"x": {"$anchor": "x"}} if "max" in reference else {},
    }
    tools, wrong = register().take([entry("good"), {"name": "odd", "inputSchema": odd}])
    assert [tool.name for tool in tools] == ["good"]
    assert len(wrong) == 1 and "the tool 'odd' cannot be offered" in wrong[0]
