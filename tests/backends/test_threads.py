"""Where no thread can be started, that is an error of its own, and never mistaken for one of the work."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell import ExecutionError, Supervisor, host_tool
from toolcell.backends.threads import NoThread, Threads, in_thread

pytestmark = pytest.mark.anyio


async def test_a_thread_that_cannot_be_started_is_an_error_of_its_own_and_one_of_the_work_is_not() -> None:
    def fails() -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(RuntimeError, match="can't start") as raised:
        await in_thread(fails)
    assert not isinstance(raised.value, NoThread)
    assert await in_thread(lambda: 1) == 1


@host_tool
def starts_threads() -> None:
    """Fail as a thread does that cannot be started."""
    raise RuntimeError("can't start new thread")


@host_tool
async def uses_a_backend() -> None:
    """Fail as a backend does that has no thread."""
    raise NoThread


async def test_a_host_tool_that_has_run_is_never_said_to_have_had_no_room(
    supervise: Callable[..., Supervisor], workspace: Path
) -> None:
    async with supervise([starts_threads, uses_a_backend]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for name in ("starts_threads", "uses_a_backend"):
            assert isinstance((await session.call(name)).error, ExecutionError)


async def test_each_backend_has_threads_of_its_own() -> None:
    one, other = Threads(1), Threads(1)
    is_in, may_leave = Event(), Event()

    def waits() -> bool:
        is_in.set()
        return may_leave.wait(3600)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run, waits)
            while not is_in.is_set():
                await anyio.sleep(0.01)
            await other.run(may_leave.set)
