"""Fixtures of the MCP tests: one supervisor for a module, and servers on it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest

from toolcell import Supervisor
from toolcell.mcp import ServerBounds, TokenList, ToolServer
from toolcell.mcp.server.http import HttpOptions
from toolcell.supervisor import runtime_of

from .examples import TOOLS


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # uvicorn knows no other; test_calls.py runs on trio too


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: Any, nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    """It makes no cells ahead of their sessions: one that became ready during a test of another supervisor would be a
    descriptor that this test seems to leave."""
    async with Supervisor(TOOLS) as running:
        runtime_of(running).pool.reserve.enabled = False
        yield running


class Serve(Protocol):
    """Serve over HTTP, with the options of ToolServer; the value is the URL."""

    def __call__(
        self, *, tokens: TokenList | None = None, bounds: ServerBounds | None = None, **options: Any
    ) -> AbstractAsyncContextManager[str]: ...


@pytest.fixture
def serve(supervisor: Supervisor, tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serving(
        *, tokens: TokenList | None = None, bounds: ServerBounds | None = None, **options: Any
    ) -> AsyncIterator[str]:
        options.setdefault("workspace", tmp_path)
        async with ToolServer(supervisor, bounds=bounds, **options) as server, anyio.create_task_group() as tasks:
            yield await tasks.start(partial(server.serve_http, tokens=tokens, options=HttpOptions(port=0)))
            tasks.cancel_scope.cancel()

    return serving
