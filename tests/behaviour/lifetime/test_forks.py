"""Programs that fork while a supervisor runs: os.fork, multiprocessing, executors, servers that preload their app."""

import textwrap
from pathlib import Path

import pytest
from tests import programs

pytestmark = pytest.mark.usefixtures("warm")
HANG_S = 120.0
PRELUDE = """
import asyncio, concurrent.futures, gc, multiprocessing, os, sys, threading, time
from pathlib import Path
import anyio
from toolcell import Supervisor, UsageError, base_tools, blocking

root = Path(sys.argv[1])
first, second, other = (root / name for name in ("first", "second", "other"))
for each in (first, second, other):
    each.mkdir()
forked = multiprocessing.get_context("fork")
QUICK = {"command": "echo quick"}
HELD = {"command": "touch begun; until [ -e go ]; do sleep 0.05; done; echo held", "timeout_s": 600}

def said(result):
    return result.output["stdout"].strip() if result.error is None else result.error

def have_begun():
    return (first / "begun").exists() and (second / "begun").exists()

def let_them_end():
    (first / "go").touch()
    (second / "go").touch()

def status(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def refused(use):
    try:
        use()
    except UsageError as error:
        return "in the child" in str(error) or error
    return False

def with_own_supervisor():
    with blocking.Supervisor(base_tools()) as own:
        return said(own.open_session("main", workspace=other).call("shell", QUICK))

async def with_own_async_supervisor():
    async with Supervisor(base_tools()) as own:
        session = await own.open_session("main", workspace=other)
        return said(await session.call("shell", QUICK))
"""
BLOCKING = """
supervisor = blocking.Supervisor(base_tools())
unstarted = blocking.Supervisor(base_tools())
supervisor.start()
session = supervisor.open_session("main", workspace=first)
task = supervisor.open_session("main", workspace=second).start("shell", HELD, timeout=600)
ended = []
caller = threading.Thread(target=lambda: ended.append(said(session.call("shell", HELD, timeout=600))))
caller.start()
while not have_begun():
    time.sleep(0.01)

def work(_=None):
    uses = {
        "call": lambda: session.call("shell", QUICK),
        "open_child": lambda: session.open_child("worker"),
        "tools": session.tools,
        "close_session": session.close,
        "open_session": lambda: supervisor.open_session("main", workspace=other),
        "start": supervisor.start,
        "status": supervisor.status,
        "result": task.result,
        "cancel": task.cancel,
    }
    used = [name for name, use in uses.items() if refused(use) is not True]
    supervisor.close()
    gc.collect()
    return used, with_own_supervisor()

def tell_and_exit():
    print("child", *work(), flush=True)
    sys.exit(5)
"""
AFTER = """
let_them_end()
caller.join()
print("parent", *ended, said(task.result()), said(session.call("shell", QUICK)))
"""
FORK = """
pid = os.fork()
if pid == 0:
    tell_and_exit()
print("status", status(pid))
"""
WAYS = {
    "os.fork": (FORK, "child [] quick\nstatus 5\n"),
    "a fork of a fork": (
        """
        pid = os.fork()
        if pid == 0:
            pid = os.fork()
            if pid == 0:
                tell_and_exit()
            sys.exit(status(pid))
        print("status", status(pid))
        """,
        "child [] quick\nstatus 5\n",
    ),
    "another thread": (
        """
        def fork():
            pid = os.fork()
            if pid == 0:
                try:
                    tell_and_exit()
                finally:
                    os._exit(6)
            print("status", status(pid))
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        """,
        "child [] quick\nstatus 6\n",
    ),
    "multiprocessing.Process": (
        """
        process = forked.Process(target=tell_and_exit)
        process.start()
        process.join()
        print("status", process.exitcode)
        """,
        "child [] quick\nstatus 5\n",
    ),
    "multiprocessing.Pool": (
        """
        with forked.Pool(2) as pool:
            print(pool.map(work, range(2), chunksize=1))
        """,
        "[([], 'quick'), ([], 'quick')]\n",
    ),
    "ProcessPoolExecutor": (
        """
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=forked) as executor:
            print(list(executor.map(work, range(2))))
        """,
        "[([], 'quick'), ([], 'quick')]\n",
    ),
}


def run(tmp_path: Path, *codes: str) -> tuple[int, str, str]:
    """Run a program that consists of these codes. Returns its exit status and what it printed."""
    text = PRELUDE + "".join(map(textwrap.dedent, codes))
    done = programs.run([*programs.PYTHON, "-c", text, str(tmp_path)], timeout=HANG_S, finalize=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_a_child_uses_no_inherited_blocking_supervisor_and_the_parents_calls_go_on(way: str, tmp_path: Path) -> None:
    fork, printed = WAYS[way]
    done = run(tmp_path, BLOCKING, fork, AFTER)
    assert done == (0, f"{printed}parent held held quick\n", "")


def test_a_child_leaves_with_and_exits_and_the_parent_keeps_its_processes_and_files(tmp_path: Path) -> None:
    code = """
        with blocking.Supervisor(base_tools(), model_bytes=1000) as supervisor:
            session = supervisor.open_session("main", workspace=first)
            artifact = session.call("shell", {"command": "seq 10000"}).artifacts[0]
            kept = Path(artifact.uri.removeprefix("file://"))
            text = kept.read_bytes()
            pid = os.fork()
            if pid:
                print("status", status(pid), said(session.call("shell", QUICK)), kept.read_bytes() == text)
        gc.collect()
        print("left", flush=True)
        sys.exit(0 if pid else 5)
    """
    assert run(tmp_path, code) == (0, "left\nstatus 5 quick True\nleft\n", "")


def test_workers_of_a_server_that_preloads_its_app_use_supervisors_of_their_own(tmp_path: Path) -> None:
    """As `gunicorn --preload` does: the app is imported in the master, which forks the workers."""
    code = """
        def serve(out):
            answers = [refused(lambda: session.call("shell", QUICK))]
            unstarted.start()
            own = unstarted.open_session("main", workspace=other)
            answers += [said(own.call("shell", QUICK)) for _ in range(3)]
            os.write(out, f"{answers}\\n".encode())

        read, write = os.pipe()
        workers = []
        for _ in range(2):
            workers.append(os.fork())
            if workers[-1] == 0:
                serve(write)
                sys.exit(0)
        os.close(write)
        print(*map(status, workers))
        print(os.fdopen(read).read(), end="")
    """
    line = "[True, 'quick', 'quick', 'quick']\n"
    done = run(tmp_path, BLOCKING, code, AFTER)
    assert done == (0, f"0 0\n{line}{line}parent held held quick\n", "")


ASYNCIO = """
async def main():
    async with Supervisor(base_tools()) as supervisor:
        sessions = [await supervisor.open_session("main", workspace=each) for each in (first, second)]
        await asyncio.to_thread(time.sleep, 0)
        calls = [asyncio.create_task(each.call("shell", HELD, timeout=600)) for each in sessions]
        while not have_begun():
            await asyncio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            {leave}
        print("status", await asyncio.to_thread(status, pid))
        let_them_end()
        print(*[said(await each) for each in calls])
        print(said(await sessions[0].call("shell", QUICK)))
        await supervisor.aclose()
        print("closed")

asyncio.run(main())
"""
TRIO = """
import trio

async def main():
    async with Supervisor(base_tools()) as supervisor, trio.open_nursery() as nursery:
        sessions = [await supervisor.open_session("main", workspace=each) for each in (first, second)]
        await trio.to_thread.run_sync(time.sleep, 0)
        ended = []

        async def call(session):
            ended.append(said(await session.call("shell", HELD, timeout=600)))

        for each in sessions:
            nursery.start_soon(call, each)
        while not have_begun():
            await trio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            {leave}
        print("status", await trio.to_thread.run_sync(status, pid))
        let_them_end()
        while len(ended) < 2:
            await trio.sleep(0.01)
        print(*ended)
        print(said(await sessions[0].call("shell", QUICK)))
        await supervisor.aclose()
        print("closed")

trio.run(main)
"""
AWAITED = """
            for each in calls:
                try:
                    print(await each)
                except UsageError as error:
                    print("in the child" in str(error), flush=True)
            return
"""


@pytest.mark.parametrize(
    ("program", "leave", "printed"),
    [
        (ASYNCIO, "return", "status 0\n"),
        (ASYNCIO, "raise ValueError('of the child')", "status 1\n"),
        (ASYNCIO, "sys.exit(5)", "status 5\n"),
        (ASYNCIO, AWAITED, "True\nTrue\nstatus 0\n"),
        (TRIO, "return", "status 1\n"),  # the calls in the child's nursery raise UsageError
        (TRIO, "raise ValueError('of the child')", "status 1\n"),
        (TRIO, "sys.exit(5)", "status 1\n"),
    ],
)
def test_a_child_of_an_async_program_leaves_everything_and_the_parent_notices_nothing(
    program: str, leave: str, printed: str, tmp_path: Path
) -> None:
    status, out, _errors = run(tmp_path, program.format(leave=leave.strip()))
    assert (status, out) == (0, f"{printed}held held\nquick\nclosed\n")


@pytest.mark.parametrize("program", [ASYNCIO, TRIO])
def test_a_child_of_an_async_program_uses_supervisors_of_its_own_on_other_event_loops(
    program: str, tmp_path: Path
) -> None:
    leave = """
            for use in (
                lambda: sessions[0].call("shell", QUICK),
                supervisor.start,
                lambda: supervisor.open_session("main", workspace=other),
                with_own_async_supervisor,
            ):
                try:
                    print(await use())
                except UsageError as error:
                    print("in the child" in str(error))
            await supervisor.aclose()
            print(with_own_supervisor())
            thread = threading.Thread(target=lambda: print(anyio.run(with_own_async_supervisor), flush=True))
            thread.start()
            thread.join()
            os._exit(5)
    """
    status, out, errors = run(tmp_path, program.format(leave=leave.strip()))
    child = "True\n" * 4 + "quick\n" * 2
    assert (status, out, errors) == (0, f"{child}status 5\nheld held\nquick\nclosed\n", "")


def test_a_child_that_lives_on_does_not_keep_a_kept_process_from_hearing_that_it_must_end(tmp_path: Path) -> None:
    code = """
        from toolcell import Capability, TypedTool
        from pydantic import BaseModel

        class Nothing(BaseModel):
            pass

        class Connection(TypedTool[Nothing]):
            '''A connection that is closed at the end.'''
            name, lifetime, needs = "connection", "session", {Capability.WRITE}

            def call(self, ctx, input):
                self.writer = ctx.writer
                return "open"

            def teardown(self):
                self.writer.write_text("closed", "")

        async def main():
            async with Supervisor([Connection()]) as supervisor:
                session = await supervisor.open_session("main", workspace=first)
                print((await session.call("connection", {})).output)
                read, write = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(write)
                    os.read(read, 1)
                    os._exit(5)
                await session.close()
            print((first / "closed").exists())
            os.close(write)
            print(status(pid))

        asyncio.run(main())
    """
    assert run(tmp_path, code) == (0, "open\nTrue\n5\n", "")


def test_a_child_neither_uses_nor_closes_the_parents_files_of_state(tmp_path: Path) -> None:
    code = """
        state = root / "state"
        with blocking.Supervisor(base_tools(), state=state) as supervisor:
            session = supervisor.open_session("main", workspace=first, session_id="s")
            kept = session.call("shell", QUICK, idempotency_key="before").call_id
            approvals = supervisor.approvals
            pid = os.fork()
            if pid == 0:
                print(refused(approvals.pending), refused(lambda: supervisor.approvals), flush=True)
                sys.exit(5)
            print("status", status(pid), approvals.pending())
            print(said(session.call("shell", QUICK, idempotency_key="after")))
        with blocking.Supervisor(base_tools(), state=state) as supervisor:
            session = supervisor.open_session("main", workspace=first, session_id="s")
            print(session.call("shell", QUICK, idempotency_key="before").call_id == kept)
    """
    assert run(tmp_path, code) == (0, "True True\nstatus 5 []\nquick\nTrue\n", "")
