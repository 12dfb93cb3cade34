"""Supervisors that other programs' tasks start and close: test runners, notebooks, threads, loops that end."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import misbehaving, programs
from tests.helpers import PATIENCE_S

from toolcell import Capability, MemoryRecord, SandboxUnavailableError, ToolContext, UsageError, blocking, tool
from toolcell.testing import ListMemory

ROOT = Path(__file__).parents[3]
LEFT = """
    from toolcell.testing.residue import Residue
    def left():
        return sorted(Residue.now().children)
"""
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
FILTER = "import warnings; warnings.simplefilter({})\n"

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(autouse=True)
def leftovers(supervise: object) -> None:
    """The fixture's name makes conftest look for leftovers after each test."""


def program(code: str, warnings: str = "'error'", *, is_forked: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program, which can print what is left of its children with `left()`. It receives SIGINT even if the tests
    run in the background of a shell that ignores SIGINT. `warnings` are the arguments of `warnings.simplefilter`.
    Without `is_forked`, its interpreter is new: garbage collection goes through all objects.
    """
    text = INTERRUPTIBLE + FILTER.format(warnings) + textwrap.dedent(LEFT) + textwrap.dedent(code)
    command = [*programs.PYTHON, "-c", text]
    if is_forked:
        return programs.run(command, finalize=True)
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def report(ctx: ToolContext) -> None:
    """Report the progress."""
    ctx.progress("half", 0.5)


RUNNERS = f"""
import sys
import anyio, pytest, pytest_asyncio
sys.path.insert(0, {str(ROOT)!r})
from toolcell import Supervisor, UsageError
from tests import misbehaving

async def echoes(supervisor, workspace):
    session = await supervisor.open_session("main", workspace=workspace)
    assert (await session.call("echo", {{"value": 1}})).unwrap() == 1
    await session.close()

async def entered():
    async with Supervisor([misbehaving.echo]) as supervisor:
        yield supervisor

async def started():
    supervisor = Supervisor([misbehaving.echo])
    await supervisor.start()
    yield supervisor
    await supervisor.aclose()

of_asyncio_function = pytest_asyncio.fixture(started)
of_asyncio_session = pytest_asyncio.fixture(entered, scope="session", loop_scope="session")

@pytest.fixture(scope="session", params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param

@pytest.fixture
async def of_anyio_function(anyio_backend):
    async with Supervisor([misbehaving.echo]) as supervisor:
        yield supervisor

@pytest.fixture(scope="session")
async def of_anyio_session(anyio_backend):
    supervisor = Supervisor([misbehaving.echo])
    await supervisor.start()
    yield supervisor
    await supervisor.aclose()

@pytest.mark.asyncio
async def test_asyncio_function(of_asyncio_function, tmp_path):
    await echoes(of_asyncio_function, tmp_path)

@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.asyncio(loop_scope="session")
async def test_asyncio_session(of_asyncio_session, tmp_path, time):
    await echoes(of_asyncio_session, tmp_path)

@pytest.mark.asyncio
async def test_asyncio_on_the_wrong_loop(of_asyncio_session, tmp_path):
    with pytest.raises(UsageError, match="the same loop_scope"):
        await echoes(of_asyncio_session, tmp_path)

@pytest.mark.asyncio
async def test_the_plugin_s_own(toolcell_supervisor, toolcell_workspace):
    async with toolcell_supervisor([misbehaving.echo]) as supervisor:
        await echoes(supervisor, toolcell_workspace)

@pytest.mark.anyio
async def test_anyio_function(of_anyio_function, tmp_path):
    await echoes(of_anyio_function, tmp_path)

@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.anyio
async def test_anyio_session(of_anyio_session, tmp_path, time):
    await echoes(of_anyio_session, tmp_path)
"""


def test_fixtures_of_pytest_asyncio_and_anyio_of_function_and_session_scope(tmp_path: Path) -> None:
    (tmp_path / "test_runners.py").write_text(RUNNERS)
    plugins = ["pytest_asyncio.plugin", "anyio.pytest_plugin", "toolcell.testing.plugin"]  # and no other
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    options = ["-o", "asyncio_default_fixture_loop_scope=function", "-o", "filterwarnings=error"]
    done = subprocess.run(
        [*command, *options, *(word for plugin in plugins for word in ("-p", plugin))],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0 and "11 passed" in done.stdout, done.stdout


def test_a_notebook_starts_in_one_cell_and_stops_in_another(tmp_path: Path) -> None:
    code = """
        import sys, json, nbformat
        from nbclient import NotebookClient
        book = nbformat.read(sys.stdin, as_version=4)
        NotebookClient(book, timeout=30).execute()
        shown = [out["data"]["text/plain"] for cell in book.cells for out in cell.get("outputs", ())]
        print(json.dumps(shown))
    """
    homes = dict.fromkeys(("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        input=(ROOT / "examples" / "notebook.ipynb").read_text(),
        env={**os.environ, **homes},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["42", "<Supervisor 1 tool · 0 sessions · not running>"]


ENDS = {
    "asyncio.run": "asyncio.run(main())",
    "trio.run": "import trio; trio.run(main)",
    "loop.close": "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close(); gc.collect()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_loop_that_ends_without_aclose_leaves_no_process_and_python_warns(end: str, tmp_path: Path) -> None:
    code = f"""
        import asyncio, gc
        from toolcell import Supervisor, base_tools
        async def main():
            supervisor = Supervisor(base_tools())
            await supervisor.start()
            session = await supervisor.open_session("main", workspace={str(tmp_path)!r})
            assert (await session.call("shell", {{"command": "true"}})).error is None
            assert left()
        {ENDS[end]}
        print(left())
    """
    done = program(code, "'always', ResourceWarning", is_forked=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert "was not closed: await aclose()" in done.stderr, done.stderr


def test_what_was_started_in_a_run_of_the_loop_that_is_over_says_so_and_closes_quietly(tmp_path: Path) -> None:
    code = f"""
        import asyncio
        from toolcell import Supervisor, UsageError
        supervisor = Supervisor()
        asyncio.run(supervisor.start())
        for use in (lambda: supervisor.open_session("main", workspace={str(tmp_path)!r}), supervisor.start):
            try:
                asyncio.run(use())
            except UsageError as error:
                assert "Its event loop ended without aclose()" in str(error), error
            else:
                raise AssertionError("it was used")
        asyncio.run(supervisor.aclose())
        print(left())
    """
    done = program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("runner", ["asyncio.run(main())", "import trio; trio.run(main)"])
def test_an_interrupt_ends_it_wherever_it_is_closed(runner: str, tmp_path: Path) -> None:
    code = f"""
        import anyio, asyncio, os, signal, threading
        from toolcell import Supervisor, base_tools
        async def main():
            supervisor = Supervisor(base_tools())
            await supervisor.start()
            try:
                session = await supervisor.open_session("main", workspace={str(tmp_path)!r})
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                await session.call("shell", {{"command": "sleep 20"}})
            finally:
                await supervisor.aclose()
        try:
            {runner}
        except KeyboardInterrupt:
            print(left())
    """
    done = program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


# -- without an event loop -------------------------------------------------------------------------------------------


def test_blocking_is_started_and_closed_by_any_thread_any_number_of_times(workspace: Path) -> None:
    supervisor = blocking.Supervisor([misbehaving.echo])
    supervisor.close()
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(supervisor.start) for _ in range(4)]:
            done.result()
        session = supervisor.open_session("main", workspace=workspace)
        assert session.call("echo", {"value": 1}).unwrap() == 1
        for done in [threads.submit(supervisor.close) for _ in range(4)]:
            done.result()
    supervisor.close()
    with pytest.raises(UsageError, match="not running"):
        supervisor.open_session("main", workspace=workspace)
    with pytest.raises(UsageError, match="Make another one"):
        supervisor.start()


def test_a_blocking_start_that_fails_leaves_no_thread_and_may_be_tried_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = blocking.Supervisor([misbehaving.echo])
    threads = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(SandboxUnavailableError):
            supervisor.start()
    deadline = time.monotonic() + PATIENCE_S
    while threading.active_count() > threads:  # a worker thread of anyio ends by itself
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    with supervisor:
        assert supervisor.open_session("main", workspace=workspace).call("echo", {"value": 1}).unwrap() == 1


def test_an_interrupt_ends_a_blocking_call_and_the_next_one_runs(tmp_path: Path) -> None:
    code = f"""
        import os, signal, threading, time
        from toolcell import base_tools
        from toolcell.blocking import Supervisor
        with Supervisor(base_tools()) as supervisor:
            session = supervisor.open_session("main", workspace={str(tmp_path)!r})
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                session.call("shell", {{"command": "sleep 20"}})
            except KeyboardInterrupt:
                began = time.monotonic()
                while "busy" in repr(supervisor) and time.monotonic() - began < 10:
                    time.sleep(0.01)
            print("busy" in repr(supervisor), session.call("shell", {{"command": "echo on"}}).output["stdout"])
    """
    done = program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False on\n\n", "")


def test_a_callback_cannot_close_what_would_wait_for_it(workspace: Path) -> None:
    heard: list[str] = []

    def close(_message: str, _fraction: float | None) -> None:
        try:
            supervisor.close()
        except UsageError as error:
            heard.append(str(error))

    with blocking.Supervisor([report]) as supervisor:
        session = supervisor.open_session("main", workspace=workspace)
        session.call("report", on_progress=close)
    assert "in another thread" in heard[0]


@tool(needs={Capability.MEMORY_WRITE})
def remember(ctx: ToolContext) -> None:
    """Remember something."""
    assert ctx.memory_writer is not None
    ctx.memory_writer.store("a")


class Interrupted(ListMemory):
    """A memory whose `store` is interrupted."""

    async def store(self, record: MemoryRecord, *, namespace: str) -> str:
        raise KeyboardInterrupt


def test_a_backend_that_ends_the_loop_is_named_when_the_supervisor_is_closed(workspace: Path) -> None:
    supervisor = blocking.Supervisor([remember])
    supervisor.start()
    session = supervisor.open_session("main", workspace=workspace, memory=Interrupted())
    with pytest.raises(CancelledError):
        session.call("remember")
    with pytest.raises(BaseExceptionGroup) as raised:
        supervisor.close()
    assert raised.group_contains(KeyboardInterrupt)
    supervisor.close()


def test_a_program_that_forgets_to_close_it_exits_and_leaves_no_record(tmp_path: Path) -> None:
    code = f"""
        import os
        from toolcell import base_tools
        from toolcell.blocking import Supervisor
        supervisor = Supervisor(base_tools())
        supervisor.start()
        session = supervisor.open_session("main", workspace={str(tmp_path)!r})
        assert session.call("shell", {{"command": "true"}}).error is None
        print(os.getpid())
    """
    done = program(code)
    assert (done.returncode, done.stderr) == (0, "")
    records = os.listdir(Path(os.environ["XDG_RUNTIME_DIR"]) / "toolcell")
    assert not [name for name in records if name.startswith(done.stdout.strip())]
