"""What type checkers know of tools. Never run: mypy and basedpyright read it, and each expected error is one that an
ignore names, which is itself an error where the checker does not complain.
"""

from typing import Any, assert_type

from pydantic import BaseModel

from toolcell import (
    Capability,
    HostContext,
    Session,
    ToolContext,
    ToolResult,
    TypedTool,
    dynamic_host_tool,
    dynamic_tool,
    host_tool,
    is_dynamic,
    require,
    tool,
)
from toolcell_tools import DynamicHostTool, DynamicTool, HostTool, Tool, TypedToolAdapter, WorkspaceWriter


@tool
def plain(a: int, b: str = "") -> float:
    return a + len(b)


@tool(needs={Capability.WRITE}, timeout=5)
def save(ctx: ToolContext, path: str) -> int:
    ctx.writer.write_text(path, "")  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    assert_type(ctx.require.writer, WorkspaceWriter)
    assert_type(require(ctx.writer, Capability.WRITE), WorkspaceWriter)
    if ctx.channel is not None:
        ctx.channel.send("saved")
    ctx.web.fetch("x")  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    ctx.workspace.read_text(path)  # always there
    return 1


@tool
async def later(a: int) -> str:
    return str(a)


def tools_are_the_functions_they_wrap(ctx: ToolContext) -> None:
    assert_type(plain(1, b="x"), float)
    assert_type(save(ctx, "a"), int)
    assert_type(tool(plain.fn, name="other")(1), float)
    assert_type(plain.replace(name="third")(2), float)
    plain("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    tool(plain.fn, tmeout=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    plain.replace(needs={"read"})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def an_async_tool_is_awaited() -> None:
    assert_type(await later(1), str)


class Weather(BaseModel):
    city: str


class WeatherTool(TypedTool[Weather]):
    lifetime = "session"
    needs = {Capability.WEB}  # noqa: RUF012

    async def call(self, ctx: ToolContext, input: Weather) -> str:
        assert_type(input.city, str)
        return input.town  # type: ignore[attr-defined, no-any-return]  # pyright: ignore


class WrongTool(TypedTool[Weather]):
    def call(self, ctx: ToolContext, input: int) -> str:  # type: ignore[override]  # pyright: ignore
        return str(input)


def a_typed_tool_knows_its_parameters() -> None:
    assert_type(WeatherTool().tool, TypedToolAdapter[Weather])
    TypedTool[Weather]()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


@host_tool
async def ask(ctx: HostContext, question: str) -> str:
    ctx.writer  # type: ignore[attr-defined]  # noqa: B018  # pyright: ignore
    return question


async def a_host_tool_keeps_its_function(ctx: HostContext) -> None:
    assert_type(await ask(ctx, "why"), str)
    assert_type(host_tool(plain.fn)(1), float)
    made: HostTool[..., Any] = ask
    assert_type(made.name, str)


def dynamic_tools_are_tools() -> None:
    assert_type(dynamic_host_tool("found", handler=len), DynamicHostTool)
    dynamic_host_tool("found", handler=len, harmless=True)
    dynamic_tool("found", handler=len, harmless=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    dynamic_host_tool("found", handler=len, uses={"web"})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    made = dynamic_tool("found", parameters={"type": "object"}, handler=len)
    assert_type(made, DynamicTool)
    held: Tool[..., Any] = made
    assert_type(is_dynamic(held), bool)
    dynamic_tool("found", handler=len, output_schema={})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def a_call_gives_a_result(session: Session) -> None:
    assert_type(await session.call("save", {"path": "a"}), ToolResult)
    assert_type((await session.call(save, {"path": "a"})).decoded(int), int)
    await session.call(WeatherTool(), {"city": "Rome"})
    await session.call(3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
