"""A state directory on a disk that fills up, is read-only or slow, and whose files are removed, swapped or damaged."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests import programs
from tests.helpers import PATIENCE_S, until
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell import Record, SandboxUnavailable, Supervisor, ToolContext, UsageError, tool
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.reading import JournalReader
from toolcell.supervisor import runtime_of
from toolcell_sandbox.profile import python_paths

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("nothing_ahead")]
Supervise = Callable[..., Supervisor]
PROGRAM = Path(__file__).with_name("full.py")
MOUNT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.geteuid(), os.getegid()
def must(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
must(libc.unshare(0x00020000 | (0x10000000 if uid else 0)))
if uid:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        open(f"/proc/self/{name}", "w").write(text)
must(libc.mount(None, b"/", None, 0x44000, None))
def small_disk(path, options):
    must(libc.mount(b"tmpfs", path.encode(), b"tmpfs", 0, options.encode()))
"""
"""A mount namespace of its own, so that nothing of it is seen on the machine."""


@tool(needs={"write"})
def append(ctx: ToolContext, line: str) -> int:
    """Append a line."""
    with open("lines.txt", "a") as file:
        file.write(f"{line}\n")
    return 1


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def reader(state: Path) -> JournalReader:
    directory = StateDirectory(state)
    return JournalReader(directory.log, directory.index)


FULL = (
    MOUNT
    + """
from pathlib import Path
import anyio
from toolcell import Approved, PermissionTier, SandboxUnavailable, Supervisor, ToolContext, UsageError, tool
from toolcell.store.journal.reading import JournalReader
from toolcell.store.directory import StateDirectory
from toolcell.supervisor import runtime_of
from tests.behaviour.durable.test_disk import append

top, is_full = Path(sys.argv[1]), False
small_disk(str(top / "disk"), f"size=600k,mode=0700,uid={uid},gid={gid}")

@tool(tier=PermissionTier.ELEVATED)
def pay() -> None:
    pass

@tool(confirms=True)
def ask(ctx: ToolContext) -> bool:
    return bool(ctx.confirm("Really?", None))

def fill_up():
    try:
        while True:
            fill.write(bytes(512))
    except OSError:
        pass

async def refused(work):
    fill_up()  # a try to write the status, for example, gives room back
    try:
        result = work()
        if hasattr(result, "__await__"):
            await result
    except UsageError as error:
        assert "Free space there" in str(error), error
    else:
        raise AssertionError(f"it was done: {result!r}")

class Yes:
    async def send(self, text, *, sender):
        pass

    async def approve(self, request):
        while not is_full:
            await anyio.sleep(0.05)
        return Approved()

async def main():
    global is_full, fill
    state, kept = top / "disk" / "state", 0
    async with Supervisor([append, pay, ask], state=state, approval_timeout_s=5) as supervisor:
        asking, asked = [
            await supervisor.open_session("main", workspace=top / "ws", channel=channel) for channel in (None, Yes())
        ]
        question = (await asking.call("ask", {})).confirmation
        assert (await asked.call("ask", {})).confirmation
        suspended = [
            await supervisor.open_session("main", workspace=top / "ws", session_id=name) for name in ("p", "q")
        ]
        for each in suspended:
            await each.suspend()
        session = await supervisor.open_session("main", workspace=top / "ws", session_id="s")
        assert (await session.call("append", {"line": "first"}, idempotency_key="first")).output == 1
        fill = open(top / "disk" / "fill", "wb", buffering=0)
        fill_up()
        for _ in range(100):
            result = await session.call("append", {"line": "x" * 300})
            if result.error is not None:
                assert isinstance(result.error, SandboxUnavailable) and "could not be recorded" in result.error.message
                break
            kept += 1
        keyed = await session.call("append", {"line": "keyed"}, idempotency_key="keyed")
        assert isinstance(keyed.error, SandboxUnavailable) and "was not run" in keyed.error.message, keyed
        assert "could not be put up" in (await session.call("pay", {})).error.message
        await refused(lambda: supervisor.approvals.approve(question))
        await refused(lambda: supervisor.approvals.withdraw(question))
        await refused(lambda: supervisor.resume_session("p"))
        is_full = True
        await suspended[1].close()
        await asking.close()
        await anyio.sleep(0.5)  # the question of the closed session cannot be withdrawn, nor the answer be kept
        await refused(lambda: session.start("append", {"line": "task"}, task_id="task"))
        assert runtime_of(supervisor).services.durable.failure
        assert supervisor.suspended_sessions() == ["p"]
        assert (await session.call("append", {"line": "first"}, idempotency_key="first")).output == 1
        fill.close()
        os.unlink(fill.name)
        assert (await session.call("append", {"line": "keyed"}, idempotency_key="keyed")).output == 1
        with anyio.fail_after(120):
            while runtime_of(supervisor).services.durable.failure:
                await anyio.sleep(0.1)
    lines = (top / "ws" / "lines.txt").read_text().splitlines()
    assert lines == ["first", *["x" * 300] * kept, "keyed"], lines
    directory = StateDirectory(state)
    JournalReader(directory.log, directory.index).verify()
    async with Supervisor([append], state=state) as supervisor:
        assert supervisor.suspended_sessions() == ["p"]
        session = await supervisor.open_session("main", workspace=top / "ws", session_id="s")
        for line in ("first", "keyed"):
            assert (await session.call("append", {"line": line}, idempotency_key=line)).output == 1
    assert (top / "ws" / "lines.txt").read_text().splitlines() == lines
    print("done")

anyio.run(main)
"""
)


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )


def test_a_full_disk_refuses_calls_and_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for name in ("disk", "ws"):
        (tmp_path / name).mkdir()
    done = run(FULL, str(tmp_path))
    assert done.stdout == "done\n", done.stderr


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("identity", ["root", "user"] if os.geteuid() == 0 else ["user"])
def test_files_that_cannot_grow_for_a_moment_lose_no_record_of_a_call(identity: str, open_directory: Path) -> None:
    """At each part of a record, whether it is the intent, the word that the call is sent, or the end."""
    top = open_directory / identity
    (top / "workspace").mkdir(parents=True)
    command = [sys.executable, "-I", str(PROGRAM), str(top)]
    if identity == "user" and os.geteuid() == 0:
        for path in (top, top / "workspace"):
            os.chown(path, USER, USER)
        sources = str(Path(toolcell_sandbox.__file__).parents[2])
        command = [sys.executable, "-I", str(AS_USER), str(USER), *python_paths(), sources, "--", *command]
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    found, lines, records = json.loads(done.stdout)
    good = [id for id, error in found.items() if error is None]
    assert lines == ["first", *good], "a call ran, and only once, if it says so"
    assert 5 < len(good) < len(found) - 5 and set(found.values()) == {None, "sandbox_unavailable"}
    intents, ends = Counter[str](), Counter[str]()
    for id, kind, error, outcome in records:
        assert error != "interrupted", (id, outcome)
        intents[id] += kind == "intent"
        ends[id] += kind == "call"
    assert all(intents[id] == ends[id] == 1 for id in good)
    assert all(ends[id] == 1 for id in found)


READ_ONLY = (
    MOUNT
    + """
import subprocess
import anyio
from toolcell import Supervisor, UsageError, tool
from tests.behaviour.durable.test_disk import append

async def main(state):
    async with Supervisor([append], state=state):
        await anyio.sleep(0.5)  # it writes its status
state = sys.argv[1]
anyio.run(main, state)
must(libc.mount(state.encode(), state.encode(), None, 0x1000, None))
must(libc.mount(None, state.encode(), None, 0x1000 | 0x20 | 1, None))
for words in (["audit", "verify"], ["audit", "list"], ["audit", "export"], ["status"]):
    command = [sys.executable, "-m", "toolcell.cli", *words, "--state", state]
    done = subprocess.run(command, capture_output=True, text=True)
    print(words[-1], done.returncode, done.stderr.strip()[-80:])
try:
    anyio.run(main, state)
except UsageError as error:
    print(error)
"""
)


def test_a_state_that_is_read_only_can_be_read_and_is_refused_to_a_supervisor(state: Path) -> None:
    done = run(READ_ONLY, str(state))
    *read, refusal = done.stdout.splitlines()
    assert read == ["verify 0 ", "list 0 ", "export 0 ", "status 1 "], done.stdout + done.stderr
    assert "Read-only file system" in refusal and "read-only: use another directory" in refusal


@pytest.mark.parametrize("what", ["removed", "replaced", "cut"])
async def test_calls_are_refused_when_the_log_is_gone(
    supervise: Supervise, workspace: Path, state: Path, what: str
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("append", {"line": "a"})).error is None
        log = StateDirectory(state).log
        if what == "cut":
            os.truncate(log, 10)
        else:
            log.rename(state / "moved")
            if what == "replaced":
                log.write_bytes((state / "moved").read_bytes())
        assert (await session.call("append", {"line": "b"})).error is None  # it is noticed within a second
        durable = runtime_of(supervisor).services.durable
        assert durable is not None
        await until(lambda: f"was {what}" in durable.failure)
        refused = await session.call("append", {"line": "c"})
        assert isinstance(refused.error, SandboxUnavailable) and f"was {what}" in refused.error.message
    assert (workspace / "lines.txt").read_text() == "a\nb\n"


async def test_a_disk_that_fails_to_synchronise_refuses_all_later_calls(
    supervise: Supervise, workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of fdatasync(2), a second one may succeed although the bytes are lost."""
    real = os.fdatasync
    failures = [OSError(5, "Input/output error")]

    def fails_once(fd: int) -> None:
        if failures:
            raise failures.pop()
        real(fd)

    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        durable = runtime_of(supervisor).services.durable
        assert durable is not None
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fails_once)
            assert (await session.call("append", {"line": "a"})).error is None
            await until(lambda: "cannot be made durable: Input/output error" in durable.failure)
        refused = await session.call("append", {"line": "b"})
        assert isinstance(refused.error, SandboxUnavailable) and "start the supervisor again" in refused.error.message
    async with supervise([append], state=state):
        pass


async def test_records_become_durable_while_further_ones_are_written(
    supervise: Supervise, workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the log at each fdatasync(2), against the size at the return of a call, under constant load."""
    real, log = os.fdatasync, state / "journal.log"
    synced: list[int] = []

    def noted(fd: int) -> None:
        size = os.fstat(fd).st_size if os.path.samestat(os.fstat(fd), os.stat(log)) else -1
        real(fd)
        synced.append(size)

    monkeypatch.setattr(os, "fdatasync", noted)
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(3):
            await session.call("append", {"line": "a"})
            written, deadline = log.stat().st_size, time.monotonic() + PATIENCE_S
            while max(synced, default=0) < written:
                assert time.monotonic() < deadline
                await session.call("append", {"line": "a"})
    assert len(synced) <= 8, "and not for each call"


async def test_results_under_keys_are_durable_as_often_as_the_journal(
    supervise: Supervise, workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, names = os.fdatasync, list[str]()

    def noted(fd: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", noted)
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("append", {"line": "a"}, idempotency_key="k")
        with anyio.fail_after(PATIENCE_S):
            while "state.sqlite-wal" not in names:
                await anyio.sleep(0.05)


async def test_each_record_is_one_write(
    supervise: Supervise, workspace: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolcell.store.journal import log as module

    real, sizes = os.write, list[int]()

    def counted(fd: int, data: bytes) -> int:
        sizes.append(len(data))
        return real(fd, data)

    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with monkeypatch.context() as patched:
            patched.setattr(module, "write", counted)
            await session.call("append", {"line": "a"}, call_id="c")
        found = [each for each in reader(state).entries() if each.record.call_id == "c"]
    assert [each.record.kind for each in found] == ["intent", "queued", "sent", "call"]
    assert len(sizes) == 4 and sum(sizes) == found[-1].end - (found[0].end - sizes[0])


async def test_a_damaged_index_is_made_again(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("append", {"line": "a"}, call_id="c")
    directory = StateDirectory(state)
    directory.index.write_bytes(b"no database" * 1000)
    for words in (["show", "c"], ["list"]):
        done = run("from toolcell.cli.app import toolcell; toolcell()", "audit", *words, "--state", str(state))
        assert done.returncode == 0 and "append" in done.stdout, done.stderr
    done = run("from toolcell.cli.app import toolcell; toolcell()", "audit", "verify", "--state", str(state))
    assert done.returncode == 1 and "Remove journal.sqlite" in done.stderr
    async with supervise([append], state=state):
        pass
    assert (state / "journal.sqlite.damaged").exists()
    reader(state).verify()


async def test_a_database_of_another_program_is_named(supervise: Supervise, state: Path) -> None:
    async with supervise([append], state=state):
        pass
    (state / "state.sqlite").unlink()
    with closing(sqlite3.connect(state / "state.sqlite")) as database:
        database.executescript("".join(f"CREATE TABLE {table} (x);" for table in ("calls", "requests", "sessions")))
    with pytest.raises(UsageError, match=r"state.sqlite: it is the file of another .*Restore a copy of state.sqlite"):
        async with supervise([append], state=state):
            pytest.fail("it started")


async def test_a_damaged_database_of_which_nothing_can_be_read_is_named(supervise: Supervise, state: Path) -> None:
    async with supervise([append], state=state):
        pass
    (state / "state.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(UsageError, match=r"state.sqlite: file is not a database.*Restore a copy of state.sqlite"):
        async with supervise([append], state=state):
            pytest.fail("it started")
    (state / "state.sqlite").unlink()
    async with supervise([append], state=state):
        pass


async def test_a_program_that_holds_a_lock_on_the_results_does_not_hold_up_the_supervisor(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        with closing(sqlite3.connect(StateDirectory(state).database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            error = (await session.call("append", {"line": "a"}, idempotency_key="k")).error
            assert isinstance(error, SandboxUnavailable) and "end that program" in error.cure
            with pytest.raises(UsageError, match=r"database is locked\. Another program holds its lock"):
                session.start("append", {"line": "a"})
        assert (await session.call("append", {"line": "a"}, idempotency_key="k")).output == 1
    assert (workspace / "lines.txt").read_text() == "a\n"


async def test_a_result_that_cannot_be_read_does_not_run_again(
    supervise: Supervise, workspace: Path, state: Path
) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        await session.call("append", {"line": "a"}, idempotency_key="k")
    with closing(sqlite3.connect(StateDirectory(state).database, isolation_level=None)) as database:
        database.execute("UPDATE calls SET result = '{'")
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="s")
        error = (await session.call("append", {"line": "a"}, idempotency_key="k")).error
        assert error is not None and error.outcome == "outcome unknown" and "cannot be read" in error.message
    assert (workspace / "lines.txt").read_text() == "a\n"


async def test_a_fork_of_the_program_writes_nothing(supervise: Supervise, workspace: Path, state: Path) -> None:
    async with supervise([append], state=state) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        await session.call("append", {"line": "a"})
        child = os.fork()
        if child == 0:
            try:
                supervisor.journal.write(Record("log", "s", data={"message": "of the fork"}))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        await session.call("append", {"line": "b"})
    reader(state).verify()
    assert not any(each.record.data.get("message") == "of the fork" for each in reader(state).entries())
