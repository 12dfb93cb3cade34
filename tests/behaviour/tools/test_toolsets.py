"""Toolsets in a session: resolution, change over time, name clashes, failures, wrappers in calls, and the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolcell import (
    ApprovalQueue,
    PermissionDenied,
    SessionInfo,
    StaticToolset,
    Tool,
    Toolset,
    ToolsetError,
    UnknownTool,
    UsageError,
    provider_tool,
    tool,
)
from toolcell_tools.toolsets import FunctionToolset

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because nothing here waits in a special way."""
    return "asyncio"


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


def part(name: str) -> str:
    """Say goodbye."""
    return f"goodbye {name}"


def upload(name: str) -> str:
    """Upload something."""
    return f"uploaded {name}"


GREET, PART, UPLOAD = tool(greet), tool(part), tool(upload)


async def test_static_tools_come_first_then_each_toolset_in_order(supervise: Any, workspace: Path) -> None:
    toolsets = [StaticToolset("two", [PART]), StaticToolset("three", [UPLOAD])]
    async with supervise([GREET], toolsets=toolsets) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert [declaration.name for declaration in await session.tools()] == ["greet", "part", "upload"]
        for name in ("greet", "part", "upload"):
            assert (await session.call(name, {"name": "you"})).output.endswith(" you")


async def test_a_toolset_that_changes_offers_and_takes_back(supervise: Any, workspace: Path) -> None:
    logged_in = False

    async def tools(session: SessionInfo) -> list[Tool[..., Any]]:
        return [PART, UPLOAD] if logged_in else [PART]

    async with supervise([GREET], toolsets=[FunctionToolset("site", tools)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("part", {"name": "you"})).output == "goodbye you"
        error = (await session.call("upload", {"name": "it"})).error
        assert isinstance(error, UnknownTool)
        logged_in = True
        assert (await session.call("upload", {"name": "it"})).output == "uploaded it", (
            "asked again before it is unknown"
        )
        assert [declaration.name for declaration in await session.tools()] == ["greet", "part", "upload"]
        logged_in = False
        await session.tools()
        assert isinstance((await session.call("upload", {"name": "it"})).error, UnknownTool)


async def test_the_code_of_a_tool_may_change_from_one_request_to_the_next(supervise: Any, workspace: Path) -> None:
    number = 1

    def tools(session: SessionInfo) -> list[Any]:
        mine = number

        def count() -> int:
            """Count."""
            return mine

        return [count]

    async with supervise(toolsets=[FunctionToolset("counter", tools)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.tools()
        assert (await session.call("count")).output == 1
        number = 2
        await session.tools()
        assert (await session.call("count")).output == 2


async def test_what_is_offered_depends_on_the_session(supervise: Any, workspace: Path) -> None:
    def tools(session: SessionInfo) -> Sequence[Tool[..., Any]]:
        assert session.workspace_root == workspace and session.config == {"plan": "pro"}
        return [UPLOAD] if session.agent_id == "ann" else []

    async with supervise([GREET], toolsets=[FunctionToolset("by user", tools)]) as supervisor:
        options = {"workspace": workspace, "config": {"plan": "pro"}}
        ann = await supervisor.open_session("main", agent_id="ann", **options)
        bob = await supervisor.open_session("main", agent_id="bob", **options)
        assert [one.name for one in await ann.tools()] == ["greet", "upload"]
        assert [one.name for one in await bob.tools()] == ["greet"]
        assert isinstance((await bob.call("upload", {"name": "it"})).error, UnknownTool)


async def test_a_broken_toolset_is_named_and_the_others_tools_still_run(supervise: Any, workspace: Path) -> None:
    working = True

    def tools(session: SessionInfo) -> Sequence[Tool[..., Any]]:
        if not working:
            raise ConnectionError("the server is gone")
        return [UPLOAD]

    async with supervise([GREET], toolsets=[FunctionToolset("remote", tools)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        working = False
        with pytest.raises(ToolsetError, match=r"toolset 'remote': ConnectionError: the server is gone") as caught:
            await session.tools()
        assert caught.value.toolset == "remote" and isinstance(caught.value.__cause__, ConnectionError)
        assert (await session.call("greet", {"name": "you"})).output == "hello you"
        error = (await session.call("upload", {"name": "it"})).error
        assert isinstance(error, UnknownTool) and "toolset 'remote'" in error.message
        working = True
        await session.tools()
        working = False
        assert (await session.call("upload", {"name": "it"})).output == "uploaded it", "the last answer stands"


async def test_two_tools_of_one_name_are_an_error_that_names_both_origins(supervise: Any, workspace: Path) -> None:
    other = tool(part, name="greet")
    async with supervise([GREET], toolsets=[StaticToolset("other", [other])]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with pytest.raises(ToolsetError, match=r"'greet': .*test_toolsets:greet and .*:part of toolset 'other'"):
            await session.tools()


async def test_a_name_of_a_providers_tool_is_taken_too(supervise: Any, workspace: Path) -> None:
    search = provider_tool("greet", provider="openai", definition={"type": "web_search"})
    async with supervise([search], toolsets=[StaticToolset("other", [GREET])]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with pytest.raises(ToolsetError, match=r"'greet': the provider openai and .*:greet of toolset 'other'"):
            await session.tools()


async def test_prefixed_and_renamed_tools_run_under_their_new_names(supervise: Any, workspace: Path) -> None:
    first = StaticToolset("one", [GREET]).prefixed("one")
    second = StaticToolset("two", [GREET, PART]).renamed({"salute": "greet"})
    async with supervise([GREET], toolsets=[first, second]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        declared = {declaration.name: declaration for declaration in await session.tools()}
        assert list(declared) == ["greet", "one_greet", "salute", "part"]
        assert len({declared[name].fingerprint for name in ("greet", "one_greet", "salute")}) == 3
        for name in ("greet", "one_greet", "salute"):
            result = await session.call(name, {"name": "you"})
            assert (result.output, result.tool) == ("hello you", name)


async def test_the_same_tools_keep_their_cell_from_request_to_request(supervise: Any, workspace: Path) -> None:
    """This includes new objects of the same function. Each cell has a separate scratch, and so another device
    number.
    """

    def where() -> int:
        """Return the cell of this call."""
        import os

        return os.stat("/tmp").st_dev

    same = StaticToolset("one", [where]).prefixed("one")
    anew = FunctionToolset("two", lambda session: [tool(where, name="two_where")])
    for toolset, name in ((same, "one_where"), (anew, "two_where")):
        async with supervise(toolsets=[toolset]) as supervisor:
            session, other = [await supervisor.open_session("main", workspace=workspace) for _ in range(2)]
            found = set()
            for _ in range(3):
                await session.tools()
                found.add((await session.call(name)).unwrap())
            assert len(found) == 1
            assert (await other.call(name)).unwrap() not in found, "another cell is seen to be another one"


async def test_approval_required_by_a_wrapper(supervise: Any, workspace: Path) -> None:
    toolset = StaticToolset("one", [GREET, PART]).approval_required(lambda session, one: one.name == "part")
    async with supervise(toolsets=[toolset]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("greet", {"name": "you"})).output == "hello you"
        assert isinstance((await session.call("part", {"name": "you"})).error, PermissionDenied)


async def test_toolsets_are_closed_with_the_supervisor_the_last_first(supervise: Any, workspace: Path) -> None:
    closed: list[str] = []

    class Closing(Toolset):
        def __init__(self, name: str) -> None:
            self._name = name

        @property
        def name(self) -> str:
            return self._name

        async def tools(self, session: SessionInfo) -> Sequence[Tool[..., Any]]:
            return []

        async def close(self) -> None:
            closed.append(self._name)
            if self._name == "two":
                raise OSError("cannot close")

    toolsets = [Closing("one").cached(), Closing("two"), Closing("three").prefixed("x")]
    with pytest.raises(ExceptionGroup) as caught:
        async with supervise([GREET], toolsets=toolsets) as supervisor:
            await supervisor.open_session("main", workspace=workspace)
    assert closed == ["three", "two", "one"]
    assert "closing toolset 'two'" in caught.value.exceptions[0].__notes__[0]


async def test_unknown_tools_are_answered_with_up_to_three_near_names(supervise: Any, workspace: Path) -> None:
    near = [tool(greet, name=name) for name in ("greet", "greets", "greeting", "greeted")]
    async with supervise([], toolsets=[StaticToolset("one", near)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("gret", {})).error
        assert isinstance(error, UnknownTool) and len(error.suggestions) == 3 and "greet" in error.suggestions


async def test_what_is_no_toolset_is_refused_at_once(supervise: Any) -> None:
    with pytest.raises(UsageError, match="not a Toolset"):
        supervise([], toolsets=[GREET])
    assert len(ApprovalQueue()) == 0
