"""RepeatGuard: identical calls in a row are denied after a number; others are not."""

from pathlib import Path
from typing import Any

import pytest

from toolcell import PermissionDenied, RepeatGuard, Session, UsageError
from toolcell.dispatch import hooks

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: the hook awaits nothing."""
    return "asyncio"


def echo(value: Any) -> Any:
    """Give the value back."""
    return value


def status() -> str:
    """Say that the job is running."""
    return "running"


async def kinds(session: Session, *values: object, name: str = "echo") -> list[str]:
    results = [await session.call(name, {"value": value} if name == "echo" else {}) for value in values]
    return ["ok" if result.error is None else result.error.kind for result in results]


async def test_the_call_after_the_last_allowed_one_is_denied_with_what_to_do(supervise: Any, workspace: Path) -> None:
    async with supervise([echo], hooks=[RepeatGuard(2)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert await kinds(session, {"a": 1, "b": 2}, {"b": 2, "a": 1}) == ["ok", "ok"]
        error = (await session.call("echo", {"value": {"a": 1, "b": 2}})).error
        assert isinstance(error, PermissionDenied)
        assert "3 times in a row, and at most 2 such calls may run. Use what the earlier results say" in error.message


async def test_another_call_begins_a_new_count_and_another_session_has_its_own(supervise: Any, workspace: Path) -> None:
    async with supervise([echo], hooks=[RepeatGuard(2)]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        other = await supervisor.open_session("main", workspace=workspace)
        assert await kinds(session, 1, 1, 2, 1, 1) == ["ok"] * 5
        assert await kinds(other, 1, 1) == ["ok"] * 2
        assert await kinds(session, 1, 1) == ["permission_denied"] * 2


async def test_a_tool_that_is_named_may_be_repeated(supervise: Any, workspace: Path) -> None:
    async with supervise([echo, status], hooks=[RepeatGuard(1, except_tools=["status"])]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert await kinds(session, *range(4), name="status") == ["ok"] * 4
        assert await kinds(session, 1, 1) == ["ok", "permission_denied"]


async def test_the_sessions_that_it_knows_are_bounded(
    supervise: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "MOST_SESSIONS", 2)
    guard = RepeatGuard(1)
    async with supervise([echo], hooks=[guard]) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=workspace) for _ in range(3)]
        for session in sessions:
            assert await kinds(session, 1) == ["ok"]
        assert list(guard._last) == [session.id for session in sessions[1:]]


@pytest.mark.parametrize("wrong", [{"most": 0}, {"most": "3"}, {"except_tools": "status"}])
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RepeatGuard(**wrong)
