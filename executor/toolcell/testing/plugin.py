"""Fixtures for pytest. They are available if toolcell is installed, and their names begin with `toolcell_`.

They are plain fixtures, for sync tests, and for async tests with any plugin. pytest imports this module at each start,
in every project, so the module imports toolcell only when a fixture is used.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from toolcell import blocking
    from toolcell.supervisor import Supervisor
    from toolcell.testing.contexts import RecordedContext
    from toolcell_tools.capability import SessionKind
    from toolcell_tools.result import ToolResult


class OpenSession(Protocol):
    """`toolcell_session(tools, kind="main", **options)`: `options` are those of `Supervisor` and `open_session`."""

    def __call__(self, tools: Any = (), kind: "SessionKind | str" = "main", **options: Any) -> "blocking.Session": ...


@pytest.fixture
def toolcell_workspace(tmp_path: Path) -> Path:
    """An empty directory to use as a session's workspace."""
    path = tmp_path / "toolcell-workspace"
    path.mkdir()
    return path


@pytest.fixture
def toolcell_context(toolcell_workspace: Path) -> "Callable[..., RecordedContext]":
    """`toolcell_context(kind, …)`: a ToolContext on that workspace, as `toolcell.testing.context` makes it, without any
    process.
    """
    from toolcell.testing.contexts import context

    return partial(context, workspace=toolcell_workspace)


@pytest.fixture
def toolcell_run(toolcell_workspace: Path) -> "Callable[..., ToolResult]":
    """`toolcell_run(tool, {…})`: one call in a real cell on that workspace, as `toolcell.testing.run_tool_blocking`."""
    from toolcell.testing.running import run_tool_blocking

    return partial(run_tool_blocking, workspace=toolcell_workspace)


@pytest.fixture
def toolcell_session(toolcell_workspace: Path) -> "Iterator[OpenSession]":
    """`toolcell_session([tool], kind, …)`: a session of a blocking supervisor with these tools, on that workspace, with
    backends in memory. It is closed after the test.
    """
    from toolcell import blocking
    from toolcell.testing.backends import DictHttp, DictWeb, ListChannel, ListMemory

    with ExitStack() as running:

        def open_session(tools: Any = (), kind: "SessionKind | str" = "main", **options: Any) -> blocking.Session:
            backends = {"channel": ListChannel(), "memory": ListMemory(), "web": DictWeb(), "http": DictHttp()}
            of_session: dict[str, Any] = {"workspace": toolcell_workspace, **backends}
            for name in ("agent_id", "session_id", "config", "profile", *of_session):
                if name in options:
                    of_session[name] = options.pop(name)
            of_supervisor: dict[str, Any] = {"max_cells": 4, "standby": 0, **options}
            supervisor = running.enter_context(blocking.Supervisor(tools, **of_supervisor))
            return supervisor.open_session(kind, **of_session)

        yield open_session


@pytest.fixture
def toolcell_supervisor() -> "Iterator[Callable[..., Supervisor]]":
    """`async with toolcell_supervisor([tool], …) as supervisor`: a Supervisor for an async test, or an async fixture
    around this one. It is an error if the test leaves it open.
    """
    from toolcell.errors import UsageError
    from toolcell.supervisor import Supervisor, runtime_of

    made: list[Supervisor] = []

    def make(tools: Any = (), **options: Any) -> Supervisor:
        of_supervisor: dict[str, Any] = {"max_cells": 4, **options}
        made.append(Supervisor(tools, **of_supervisor))
        return made[-1]

    yield make
    left = [supervisor for supervisor in made if runtime_of(supervisor).life.is_left_open]
    made.clear()
    if left:
        raise UsageError(
            f"The test never closed {left!r}. Use async with, or await aclose() in the fixture that made it."
        )
