"""What type checkers know of results. Never run: mypy and basedpyright read it, as they do `definitions.py`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_type

from toolcell import (
    ErrorBase,
    HostContext,
    Session,
    ToolContext,
    ToolResult,
    TypedTool,
    WorkspaceWriter,
    blocking,
    dynamic_tool,
    host_tool,
    tool,
)


@dataclass
class Point:
    x: int


class Color(StrEnum):
    RED = "red"


@tool
def total(numbers: list[int]) -> int:
    return sum(numbers)


@tool
async def names(ctx: ToolContext) -> list[str]:
    assert_type(ctx.require.writer, WorkspaceWriter)
    return [entry.path for entry in ctx.workspace.list()]


@tool
def point() -> Point:
    return Point(1)


@tool
def points() -> list[Point]:
    return [Point(1)]


@tool
def pair() -> tuple[int, int]:
    return 1, 2


@tool
def color() -> Color:
    return Color.RED


@tool
def nested() -> dict[str, list[int | None]]:
    return {}


@tool
def nothing() -> None:
    return None


@tool
def shown() -> ToolResult[int]:
    return ToolResult[int](output=3)


@tool
async def shown_later() -> ToolResult[list[str]]:
    return ToolResult(output=["a"])


@host_tool
async def asked(ctx: HostContext) -> str:
    assert_type(ctx.session, Session)
    return (await ctx.session.call(names)).unwrap()[0]


class Typed(TypedTool[Point]):
    def call(self, ctx: ToolContext, input: Point) -> int:
        return input.x


async def the_result_of_a_tool_has_the_type_that_its_function_returns(session: Session) -> None:
    assert_type(await session.call(total, {"numbers": [1]}), ToolResult[int])
    assert_type((await session.call(total, {"numbers": [1]}, timeout=3)).unwrap(), int)
    assert_type((await session.call(names)).unwrap(), list[str])
    assert_type((await session.call(nested)).unwrap(), dict[str, list[int | None]])
    assert_type(await session.call(asked), ToolResult[str])
    assert_type((await session.call(shown)).unwrap(), int)
    assert_type((await session.call(shown_later)).unwrap(), list[str])
    assert_type(await session.call(nothing), ToolResult[None])
    assert_type(await session.call(total.replace(name="sum")), ToolResult[int])


async def what_is_no_json_is_decoded(session: Session) -> None:
    assert_type(await session.call(point), ToolResult[Point])
    assert_type((await session.call(point)).unwrap(), Any)
    assert_type((await session.call(point)).decoded(Point), Point)
    assert_type((await session.call(points)).unwrap(), Any)
    assert_type((await session.call(pair)).unwrap(), Any)
    assert_type((await session.call(color)).unwrap(), Any)


async def by_name_it_is_any(session: Session) -> None:
    assert_type(await session.call("total", {"numbers": [1]}), ToolResult[Any])
    assert_type((await session.call("total")).unwrap(), Any)
    assert_type((await session.call(Typed())).unwrap(), Any)
    assert_type((await session.call(dynamic_tool("t", handler=print, description="Print."))).unwrap(), Any)


def without_await_it_is_the_same(session: blocking.Session) -> None:
    assert_type(session.call(total, {"numbers": [1]}).unwrap(), int)
    assert_type(session.call(names, on_progress=print).unwrap(), list[str])
    assert_type(session.call("names").unwrap(), Any)


async def options_are_checked(session: Session) -> None:
    await session.call(total, tmeout=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await session.call(total, timeout="3")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def every_error_has_a_kind(error: ErrorBase) -> None:
    assert_type(error.kind, str)
