"""The context: its reports and `require`."""

from typing import Any

import pytest

from toolcell_tools import Capability, MissingCapability, ToolContext, require


def test_reports_go_to_the_reporter(make_context: Any, recorder: Any) -> None:
    ctx: ToolContext = make_context(reporter=recorder)
    ctx.progress("half", 0.5)
    ctx.progress("somewhere")
    ctx.log("seen", "warning", path="a")
    assert recorder.progressed == [("half", 0.5), ("somewhere", None)]
    assert recorder.logged == [("seen", "warning", {"path": "a"})]


@pytest.mark.parametrize(("given", "kept"), [(-1, 0.0), (7, 1.0), (float("nan"), None)])
def test_a_fraction_is_held_between_0_and_1(make_context: Any, recorder: Any, given: float, kept: float | None) -> None:
    make_context(reporter=recorder).progress("", given)
    assert recorder.progressed == [("", kept)]


def test_remaining_is_never_negative_and_cancelled_is_live(make_context: Any, recorder: Any) -> None:
    ctx: ToolContext = make_context(reporter=recorder)
    recorder.left = -3.0
    assert (ctx.remaining(), ctx.cancelled) == (0.0, False)
    recorder.left, recorder.taken_back = 2.5, True
    assert (ctx.remaining(), ctx.cancelled) == (2.5, True)


def test_config_and_values_are_the_very_dicts_that_were_given(make_context: Any) -> None:
    values: dict[str, Any] = {"a": 1}
    ctx: ToolContext = make_context(values=values)
    ctx.values["b"] = 2
    assert values == {"a": 1, "b": 2}
    assert make_context().values == {}


def test_require_gives_the_handle_or_names_what_is_missing(ctx: ToolContext) -> None:
    assert require(ctx.writer, Capability.WRITE) is ctx.writer
    with pytest.raises(MissingCapability, match="was not granted 'http'"):
        require(ctx.http, Capability.HTTP)


def test_a_context_has_no_room_for_more(ctx: ToolContext) -> None:
    with pytest.raises(AttributeError):
        ctx.secret = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert repr(ctx) == "<ToolContext 'c1' of main session 's1'>"


def test_what_is_required_is_the_handle_or_names_what_is_missing(make_context: Any, ctx: ToolContext) -> None:
    assert ctx.require.writer is ctx.writer
    assert ctx.require.workspace is ctx.workspace
    required = [
        ("writer", "write"),
        ("shell", "exec"),
        ("channel", "channel"),
        ("memory", "memory.read"),
        ("memory_writer", "memory.write"),
        ("web", "web"),
        ("http", "http"),
    ]
    bare: ToolContext = make_context(**{name: None for name, _ in required})
    for name, capability in required:
        with pytest.raises(MissingCapability, match=f"was not granted '{capability}'"):
            getattr(bare.require, name)
