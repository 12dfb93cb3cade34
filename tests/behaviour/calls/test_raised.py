"""What a model reads of the exceptions that tools raise: groups, causes, data and kinds, in cells and on the host."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from toolcell import (
    Capability,
    ExecutionError,
    MissingCapability,
    PermissionDenied,
    Profile,
    ProtectedName,
    RequestDenied,
    Timeout,
    ToolFailure,
    ToolResult,
    host_tool,
    tool,
)
from toolcell_tools.failures import NoTimeLeft

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """The exception as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


def group(*members: Exception, message: str = "in a group") -> Exception:
    return ExceptionGroup(message, members)


def circle() -> Exception:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    return one


FAILURE = ToolFailure("no such user; call list_users first", {"known": 3})
SAID = FAILURE.message
DENIED = MissingCapability(Capability.WRITE)
CASES: dict[str, tuple[Any, type[Any], list[str], Any]] = {
    "a group of one": (lambda: group(ValueError("bad year")), ExecutionError, ["=ValueError: bad year"], None),
    "nested groups of one": (lambda: group(group(ValueError("deep"))), ExecutionError, ["=ValueError: deep"], None),
    "several": (
        lambda: group(ValueError("a"), group(KeyError("b"), OSError("c")), message="three"),
        ExecutionError,
        ["three", "ValueError: a", "KeyError: 'b'", "OSError: c"],
        None,
    ),
    "a cause": (
        lambda: caused(RuntimeError("no year"), ValueError("invalid 'x'")),
        ExecutionError,
        ["no year", "'x'"],
        None,
    ),
    "a cause that is quoted": (
        lambda: caused(RuntimeError("no year: invalid"), ValueError("invalid")),
        ExecutionError,
        ["=RuntimeError: no year: invalid"],
        None,
    ),
    "a cause that is a group": (
        lambda: caused(RuntimeError("no"), group(ValueError("a"), KeyError("b"))),
        ExecutionError,
        ["RuntimeError: no", "ValueError: a", "KeyError: 'b'"],
        None,
    ),
    "a cause in a circle": (circle, ExecutionError, ["ValueError: one", "KeyError: 'other'"], None),
    "many members": (
        lambda: group(*[ValueError(str(one)) for one in range(500)]),
        ExecutionError,
        ["ValueError: 0"],
        None,
    ),
    "a failure in a group": (lambda: group(FAILURE), ExecutionError, [f"={SAID}"], {"known": 3}),
    "a failure with another": (
        lambda: group(KeyError("k"), FAILURE),
        ExecutionError,
        ["KeyError: 'k'", SAID],
        {"known": 3},
    ),
    "two failures": (
        lambda: group(FAILURE, ToolFailure("no room", [1])),
        ExecutionError,
        [SAID, "no room"],
        [{"known": 3}, [1]],
    ),
    "a failure as a cause": (
        lambda: caused(RuntimeError("not saved"), FAILURE),
        ExecutionError,
        ["RuntimeError: not saved", SAID],
        {"known": 3},
    ),
    "a failure that stands for another": (
        lambda: caused(ToolFailure("not saved", {"known": 4}), FAILURE),
        ExecutionError,
        ["=not saved"],
        {"known": 4},
    ),
    "a failure with a cause": (
        lambda: caused(ToolFailure("ask again"), ValueError("x")),
        ExecutionError,
        ["=ask again"],
        None,
    ),
    "a denial": (lambda: DENIED, PermissionDenied, ["'write'"], None),
    "a denial in a group": (lambda: group(group(DENIED)), PermissionDenied, ["'write'"], None),
    "a denial as a cause": (
        lambda: caused(ValueError("not saved"), DENIED),
        PermissionDenied,
        ["not saved", "'write'"],
        None,
    ),
    "a protected name": (lambda: group(ProtectedName(".git/x", ".git")), PermissionDenied, ["'.git/x'"], None),
    "a denied request": (lambda: group(RequestDenied("no host")), PermissionDenied, ["=no host"], None),
    "no time left": (lambda: group(NoTimeLeft("an hour is needed")), Timeout, ["=an hour is needed"], None),
}


@tool
def in_a_cell(case: str) -> None:
    raise CASES[case][0]()


@host_tool
async def on_the_host(case: str) -> None:
    raise CASES[case][0]()


@pytest.mark.parametrize("name", ["in_a_cell", "on_the_host"])
async def test_a_model_reads_the_words_of_what_was_raised_in_groups_and_as_causes(
    supervise: Any, workspace: Path, name: str
) -> None:
    async with supervise([in_a_cell, on_the_host]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        results: dict[str, ToolResult] = {case: await session.call(name, {"case": case}) for case in CASES}
    for case, (_, kind, said, data) in CASES.items():
        error: Any = results[case].error
        assert isinstance(error, kind), (case, error)
        for words in said:
            whole = words.startswith("=")
            assert error.message == words[1:] if whole else words in error.message, (case, error)
        assert len(error.message) <= 4_000, case
        if isinstance(error, ExecutionError):
            assert error.data == data, case
        if case.startswith("a denial"):
            assert error.model_dump()["missing"] == (Capability.WRITE,), case


@pytest.mark.parametrize("name", ["in_a_cell", "on_the_host"])
async def test_where_texts_are_hidden_a_group_or_a_cause_does_not_show_them(
    supervise: Any, workspace: Path, name: str
) -> None:
    async with supervise([in_a_cell, on_the_host]) as supervisor:
        profile = Profile.for_kind("main").replace(exceptions="type")
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        said = {case: str((await session.call(name, {"case": case})).error) for case in CASES}
    assert "ValueError was raised. Its text is not shown." in said["a group of one"]
    for case in ("several", "a cause", "a cause that is a group", "a failure with another", "a denial as a cause"):
        assert "was raised" in said[case] and "not saved" not in said[case], case
        assert not any(text in said[case] for text in ("bad year", "three", "invalid", "'k'", "'b'")), case
    assert SAID in said["a failure as a cause"] and "not saved" not in said["a failure as a cause"]


@tool
async def exits(how: str) -> None:
    await fails_in_a_task(how)


@host_tool
async def in_a_task(how: str) -> str:
    return await fails_in_a_task(how)


async def fails_in_a_task(how: str) -> str:
    async def fail() -> None:
        raise SystemExit(7) if how == "exits" else FAILURE

    if how == "exits":
        raise BaseExceptionGroup("of an exit", [SystemExit(7)])
    try:
        async with asyncio.TaskGroup() as tasks:  # an empty body: the failure arrives while the group waits
            tasks.create_task(fail())
    except* ToolFailure:
        if how == "raises":
            raise
    return "handled"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_group_that_fails_does_not_cancel_the_caller_of_a_host_tool(
    supervise: Any, workspace: Path
) -> None:
    async with supervise([in_a_task, exits]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        failed = await session.call("in_a_task", {"how": "raises"})
        assert failed.error.message == SAID and failed.error.data == {"known": 3}
        assert (await session.call("in_a_task", {"how": "handles"})).unwrap() == "handled"
        assert (await session.call("exits", {"how": "exits"})).error.exit_code == 7
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0


def unfolding(member: BaseException, *, depth: int) -> BaseException:
    """A group whose two members are one group, whose two members are one group, and so on."""
    for _ in range(depth):
        member = BaseExceptionGroup("shared", [member, member])
    return member


def chained(*, length: int) -> BaseException:
    error: BaseException = ValueError("first")
    for _ in range(length):
        error = caused(ValueError("next"), error)
    return error


@pytest.mark.parametrize(
    "error",
    [
        unfolding(ValueError("x"), depth=50),
        unfolding(ValueError("x"), depth=500),
        ExceptionGroup("wide", [ValueError("x")] * 20_000),
        chained(length=20_000),
    ],
    ids=["shared", "deep", "wide", "chained"],
)
async def test_no_group_or_chain_of_a_host_tool_holds_up_the_supervisor(
    supervise: Any, workspace: Path, error: BaseException
) -> None:
    @host_tool
    async def fail() -> None:
        """Fail."""
        raise error

    async with supervise([fail]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        started = time.process_time()
        result = await session.call("fail", {})
        took = time.process_time() - started
    assert isinstance(result.error, ExecutionError) and result.error.message
    assert took < 1.5, f"{took:.1f} s of processor time"
