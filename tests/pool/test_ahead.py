"""Cells that are made before their session comes: the same cells in the end, and nobody's until then."""

import errno
import fcntl
import os
import signal
import subprocess
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell import Limits, PermissionDenied, Profile, SandboxUnavailable, Supervisor, base_tools, tool
from toolcell.pool.ahead import KINDS
from toolcell.pool.cell import Cell
from toolcell.pool.pool import Pool
from toolcell.supervisor import runtime_of
from toolcell.wire.messages import Exited, Failed
from toolcell_sandbox import late_paths
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.view import View

from .found import find

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.root, pytest.mark.trick]


def tried(action: Callable[..., object], *arguments: object) -> str:
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


@tool(needs=["read", "write"])
def seen(name: str) -> dict[str, Any]:
    """What there is, and what can be done.

    Args:
        name: A file to make in the workspace.
    """
    null = os.open("/dev/null", os.O_RDONLY)
    with open("/proc/self/status") as status:
        of_status = dict(line.split(":\t") for line in status.read().splitlines() if ":\t" in line)
    with open("/proc/self/mountinfo") as mounts:
        mounted = sorted(line.split()[4] + " " + line.split()[5] for line in mounts)
    return {
        "made": tried(Path(name).write_text, "x"),
        "owner": os.stat(".").st_uid == os.getuid(),
        "cwd": os.getcwd(),
        "root": sorted(os.listdir("/")),
        "scratch": sorted(os.listdir("/tmp")),
        "mounted": mounted,
        "host": tried(open, "/etc/shadow"),
        "system": tried(os.mkdir, "/usr/made"),
        "top": tried(os.mkdir, "/made"),
        "device": tried(fcntl.ioctl, null, termios.TCGETS, b"\0" * 64),  # Landlock says EACCES, the device ENOTTY
        "init": tried(os.kill, 1, signal.SIGTERM),
        "status": {name: of_status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
        "descriptors": len(os.listdir("/proc/self/fd")),
        "environment": sorted(os.environ),
    }


@tool
def mark(value: str) -> list[str]:
    """Give the attributes of the scratch, and leave one.

    Args:
        value: Which.
    """
    found = os.listxattr("/tmp")
    os.setxattr("/tmp", "user.mark", value.encode())
    return found


class Reads:
    """A tool that reads a file as it is loaded."""

    __name__ = "reads"

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> str:
        """Give what was read."""
        return str(self.__dict__["text"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self.path,)


class Leaves:
    """A tool that leaves a file as it is loaded, where nothing is."""

    __name__ = "leaves"

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> str:
        """Do nothing."""
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _left, (self.path,)


class Awaits:
    """A tool that waits for a file as it is loaded."""

    __name__ = "awaits"

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> str:
        """Do nothing."""
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _awaited, (self.path,)


def _awaited(path: str) -> Awaits:
    while not os.path.exists(path):
        time.sleep(0.01)
    return Awaits(path)


def _left(path: str) -> Leaves:
    if not os.path.exists(path):
        Path(path).touch()
    return Leaves(path)


def _loaded(path: str) -> Reads:
    made = Reads(path)
    made.__dict__["text"] = Path(path).read_text()
    return made


TOOLS: list[Any] = [seen, find, mark, *base_tools()]


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with Supervisor(tools=TOOLS) as supervisor:
        yield supervisor


async def stocked(supervisor: Supervisor) -> list[Cell]:
    """The cells that are there before anybody needs them, when there are all that will be."""
    pool = runtime_of(supervisor).pool
    with anyio.fail_after(PATIENCE_S):
        while pool.reserve._timer is not None or not all(cell.idle for cell in pool.reserve.cells.values()):
            await anyio.sleep(0.01)
    return list(pool.reserve.cells.values())


async def first_call(
    supervisor: Supervisor, workspace: Path, kind: str = "main", **options: Any
) -> tuple[Cell, dict[str, Any]]:
    """The cell that served the first call of a new session, and what that saw; the second one sees the same."""
    session = await supervisor.open_session(kind, workspace=workspace, **options)
    first, second = [(await session.call("seen", {"name": name})).unwrap() for name in ("one", "two")]
    (cell,) = [cell for cell in runtime_of(supervisor).pool.cells.values() if cell.spec.key.session_id == session.id]
    assert first == second
    assert isinstance(first, dict)
    await session.close()
    return cell, first


async def test_a_session_gets_a_cell_that_was_there_before_it_and_is_like_any_other(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    _, plain = await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    assert ready.spec.key.session_id == "" and str(tmp_path) not in Path(f"/proc/{ready.pid}/mountinfo").read_text()
    other = tmp_path / "other"
    other.mkdir()
    cell, found = await first_call(supervisor, other)
    assert cell is ready
    assert found["cwd"] == str(other)
    assert (other / "one").read_text() == "x" and (other / "one").stat().st_uid == other.stat().st_uid
    shown = {"cwd", "mounted", "scratch"}
    assert {name: found[name] for name in found if name not in shown} == {
        name: plain[name] for name in plain if name not in shown
    }
    assert [line.replace("/other ", " ") for line in found["mounted"]] == plain["mounted"]
    assert found["device"] == "EACCES" and found["host"] == "ENOENT" and found["top"] == "EROFS"
    assert await stocked(supervisor), "there is another one for the next session"


@pytest.mark.parametrize("place", ["/srv", "/tmp", "/mnt/a/b"])
async def test_a_workspace_may_lie_anywhere(supervisor: Supervisor, tmp_path: Path, place: str) -> None:
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    made = Path(place, f"toolcell-reserve-{os.getpid()}")
    made.mkdir(parents=True)
    try:
        os.chown(made, 12345, 12345)  # of somebody else than the last one
        cell, found = await first_call(supervisor, made)
        assert cell is ready and found["made"] == "done" and found["owner"]
        assert (made / "one").stat().st_uid == 12345
    finally:
        subprocess.run(["rm", "-rf", str(made)], check=True)


async def test_a_worker_only_reads_in_such_a_cell(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a line")

    async def reads() -> Cell:
        session = await supervisor.open_session("worker", workspace=tmp_path)
        assert "a line" in str((await session.call("read", {"path": "note.txt"})).unwrap())
        refused = await session.call("write", {"path": "note.txt", "content": "x"})
        assert isinstance(refused.error, PermissionDenied)
        (cell,) = [
            cell for cell in runtime_of(supervisor).pool.cells.values() if cell.spec.key.session_id == session.id
        ]
        assert os.statvfs(f"/proc/{cell.pid}/root{tmp_path}").f_flag & os.ST_RDONLY
        await session.close()
        return cell

    await reads()
    (ready,) = await stocked(supervisor)
    assert await reads() is ready


async def test_one_of_each_kind_is_there(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a line")

    async def works() -> set[int]:
        session = await supervisor.open_session("main", workspace=tmp_path)
        calls = {"read": {"path": "note.txt"}, "seen": {"name": "x"}, "shell": {"command": "true"}}
        for name, arguments in calls.items():
            (await session.call(name, arguments)).unwrap()
        used = {cell.pid for cell in runtime_of(supervisor).pool.cells.values()}
        await session.close()
        return used

    used = await works()
    ready = {cell.pid for cell in await stocked(supervisor)}
    assert len(ready) == len(used) <= KINDS
    assert await works() == ready


async def test_protected_names_are_protected_in_it(supervisor: Supervisor, tmp_path: Path) -> None:
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    hooks = tmp_path / "project" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("theirs")
    session = await supervisor.open_session("main", workspace=tmp_path / "project")
    assert (await session.call("seen", {"name": ".git/hooks/pre-commit"})).unwrap()["made"] == "EROFS"
    assert ready in runtime_of(supervisor).pool.cells.values()
    refused = await session.call("write", {"path": ".git/hooks/post-commit", "content": "x"})
    assert isinstance(refused.error, PermissionDenied)
    assert os.listdir(hooks) == ["pre-commit"] and (hooks / "pre-commit").read_text() == "theirs"


@pytest.mark.parametrize("change", ["env", "pass_env", "limits", "host name"])
async def test_a_session_of_another_kind_does_not_get_it(
    supervisor: Supervisor, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = Profile.for_kind("main").replace(pass_env=("TOOLCELL_TEST",))
    await first_call(supervisor, tmp_path, profile=profile)
    (ready,) = await stocked(supervisor)
    if change == "env":
        profile = profile.replace(env={"MORE": "1"})
    elif change == "pass_env":
        monkeypatch.setenv("TOOLCELL_TEST", "new")
    elif change == "limits":
        profile = profile.replace(limits=profile.limits.narrow(profile.limits))
        profile = profile.replace(limits=type(profile.limits)(cpu_s=7.0))
    else:
        profile = profile.replace(hostname="another")
    cell, found = await first_call(supervisor, tmp_path, profile=profile)
    assert cell is not ready
    assert ("MORE" in found["environment"]) == (change == "env")
    assert ("TOOLCELL_TEST" in found["environment"]) == (change == "pass_env")


async def test_a_workspace_that_holds_paths_of_the_system_is_bound_in_a_cell_of_its_own(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Such as a virtual environment in a project."""
    inside = tmp_path / "environment"
    inside.mkdir()
    (inside / "module").write_text("text")
    profile = Profile.for_kind("main")
    profile = profile.replace(system=(*profile.system, str(inside)))
    for _ in range(2):
        cell, found = await first_call(supervisor, tmp_path, profile=profile)
        assert str(inside) in "\n".join(found["mounted"]) and found["made"] == "done"
        assert cell not in await stocked(supervisor)


async def starting(supervisor: Supervisor, like: Cell) -> Cell:
    """A cell of this one's kind that is being made ahead."""
    pool = runtime_of(supervisor).pool
    with anyio.fail_after(PATIENCE_S):
        for ready in await stocked(supervisor):
            ready.kill()
        while pool.reserve.cells:
            await anyio.sleep(0.01)
        pool.reserve.want(like.spec)
        pool.reserve.soon()
        while not pool.reserve.cells:
            await anyio.sleep(0)
    (coming,) = pool.reserve.cells.values()
    assert coming.starting
    return coming


async def test_a_session_takes_one_that_is_being_made(supervisor: Supervisor, tmp_path: Path) -> None:
    first, plain = await first_call(supervisor, tmp_path)
    coming = await starting(supervisor, first)
    cell, found = await first_call(supervisor, tmp_path)
    assert cell is coming and found == {**plain, "made": "done"}


async def test_one_that_dies_as_it_is_made_costs_the_session_that_took_it_nothing(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    first, _ = await first_call(supervisor, tmp_path)
    coming = await starting(supervisor, first)
    session = await supervisor.open_session("main", workspace=tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.call, "seen", {"name": "x"})
        with anyio.fail_after(PATIENCE_S):
            while coming.binding is None or not coming.pid:
                await anyio.sleep(0)
        os.kill(coming.pid, signal.SIGKILL)
    (await session.call("seen", {"name": "x"})).unwrap()
    assert coming not in runtime_of(supervisor).pool.cells.values()
    assert await stocked(supervisor), "it was not the fault of its kind"


async def test_a_session_that_no_cell_can_be_told_of_does_not_make_its_kind_unfit(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    first, _ = await first_call(supervisor, tmp_path)
    coming = await starting(supervisor, first)
    with anyio.fail_after(PATIENCE_S):
        while not coming.pid:
            await anyio.sleep(0)
    session = await supervisor.open_session("main", workspace=tmp_path, agent_id="\ud800")
    error = (await session.call("seen", {"name": "x"})).error
    assert isinstance(error, SandboxUnavailable) and "surrogates" in error.message
    assert coming.doomed, "it is killed, not left to itself"
    with anyio.fail_after(PATIENCE_S):
        while coming in runtime_of(supervisor).pool.cells.values() or psutil.pid_exists(coming.pid):
            await anyio.sleep(0.01)
    await first_call(supervisor, tmp_path)
    assert await stocked(supervisor)


@pytest.mark.parametrize("taken", [False, True])
async def test_tools_that_need_their_session_to_be_loaded_are_not_loaded_ahead_again(
    tmp_path: Path, taken: bool
) -> None:
    (tmp_path / "table").write_text("of the workspace")
    tools: list[Any] = [tool(Reads(str(tmp_path / "table")), name="reads", needs=["read"])]
    async with Supervisor(tools=tools) as owner:
        pool = runtime_of(owner).pool

        async def reads() -> None:
            session = await owner.open_session("main", workspace=tmp_path)
            assert (await session.call("reads", {})).unwrap() == "of the workspace"
            await session.close()

        await reads()
        with anyio.fail_after(PATIENCE_S):
            while not pool.reserve.cells:
                await anyio.sleep(0)
        assert list(pool.reserve.cells) == [2]
        if taken:
            await reads()
        assert await stocked(owner) == []
        last = pool.maker.last_id
        assert last == (3 if taken else 2)
        await reads()
        assert await stocked(owner) == [] and pool.maker.last_id == last + 1


async def test_tools_that_wait_for_their_session_as_they_are_loaded_are_waited_for_once(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("of the workspace")
    tools: list[Any] = [tool(Awaits(str(tmp_path / "table")), name="awaits", needs=["read"])]
    profile = Profile.for_kind("main").replace(limits=Limits(start_s=10.0))
    async with Supervisor(tools=tools) as owner:
        pool = runtime_of(owner).pool

        async def awaits() -> None:
            session = await owner.open_session("main", workspace=tmp_path, profile=profile)
            (await session.call("awaits", {})).unwrap()
            await session.close()

        await awaits()
        with anyio.fail_after(PATIENCE_S):
            while not pool.reserve.cells:
                await anyio.sleep(0)
        (coming,) = pool.reserve.cells.values()
        due = coming._watchdog
        assert due is not None
        await anyio.sleep(0.5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(awaits)
            with anyio.fail_after(PATIENCE_S):
                while coming.binding is None:
                    await anyio.sleep(0)
            assert coming._watchdog is due, "the time that it has to start does not begin anew"
        assert coming.doomed
        assert await stocked(owner) == []
        last = pool.maker.last_id
        await awaits()
        assert await stocked(owner) == [] and pool.maker.last_id == last + 1


@pytest.mark.parametrize("end", ["starts", "dies"])
async def test_the_next_is_begun_when_one_has_started_or_died_and_no_clock_ticks_meanwhile(
    tmp_path: Path, end: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "table").touch()
    (tmp_path / "workspace").mkdir()
    main = Profile.for_kind("main").replace(readable=(str(data),))
    tools: list[Any] = [tool(Awaits(str(data / "table")), name="awaits", needs=["read"])]
    async with Supervisor(tools=tools) as owner:
        pool = runtime_of(owner).pool
        for profile in (main, main.replace(limits=Limits(cpu_s=7.0))):
            session = await owner.open_session("main", workspace=tmp_path / "workspace", profile=profile)
            (await session.call("awaits", {})).unwrap()
        specs = [cell.spec for cell in pool.cells.values()]
        with anyio.fail_after(PATIENCE_S):
            for ready in await stocked(owner):
                ready.kill()
            while pool.reserve.cells:
                await anyio.sleep(0.01)
            (data / "table").unlink()
            for spec in specs:
                pool.reserve.want(spec)
            pool.reserve.soon()
            while not pool.reserve.cells or pool.reserve._timer is not None:
                await anyio.sleep(0.001)
        (coming,) = pool.reserve.cells.values()
        if end == "starts":
            (data / "table").touch()
        else:
            coming.kill()
            with anyio.fail_after(PATIENCE_S):
                while coming in pool.reserve.cells.values() or not pool.reserve.cells:
                    await anyio.sleep(0.001)
            (data / "table").touch()
        assert len(await stocked(owner)) == (2 if end == "starts" else 1)


async def test_a_session_gets_none_whose_call_process_has_died(supervisor: Supervisor, tmp_path: Path) -> None:
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    os.kill(ready.pid, signal.SIGSTOP)  # so that nothing but its last word tells
    ready.on_process(Exited(1, -signal.SIGKILL, 0.0, 0))
    assert ready.doomed
    with anyio.fail_after(PATIENCE_S):
        assert (await first_call(supervisor, tmp_path))[0] is not ready


async def test_a_call_does_not_go_to_a_cell_whose_call_process_dies_while_its_paths_are_put_in_place(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place = Pool.on_lacking

    def dying(pool: Pool, cell: Cell) -> None:
        put_in_place(pool, cell)
        (waits,) = Path(f"/proc/{cell.pid}/task/{cell.pid}/children").read_text().split()
        os.kill(cell.pid, signal.SIGSTOP)  # so that nothing but its last word tells
        os.kill(int(waits), signal.SIGKILL)
        cell.on_process(Exited(1, -signal.SIGKILL, 0.0, 0))

    monkeypatch.setattr(Pool, "on_lacking", dying)
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    session = await supervisor.open_session("main", workspace=tmp_path)
    with anyio.fail_after(PATIENCE_S):
        (await session.call("seen", {"name": "x"})).unwrap()
    assert ready not in runtime_of(supervisor).pool.cells.values()


async def test_one_that_dies_is_missed_by_nobody(supervisor: Supervisor, tmp_path: Path) -> None:
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    (waits,) = [int(pid) for pid in Path(f"/proc/{ready.pid}/task/{ready.pid}/children").read_text().split()]
    os.kill(waits, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        while psutil.pid_exists(ready.pid) or runtime_of(supervisor).pool.reserve.cells:
            await anyio.sleep(0.01)
    assert (await first_call(supervisor, tmp_path))[0] is not ready


async def test_one_that_dies_while_its_session_comes_costs_that_session_nothing(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    os.kill(ready.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(ready.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # so that the pool has not heard of it
    cell, _ = await first_call(supervisor, tmp_path)
    assert cell is not ready


async def test_a_doorkeeper_that_dies_is_replaced(supervisor: Supervisor, tmp_path: Path) -> None:
    """It is the zygote's one child that is not in a pid namespace of its own."""
    await first_call(supervisor, tmp_path)
    (ready,) = await stocked(supervisor)
    (zygote,) = runtime_of(supervisor).pool.fleet.zygotes
    below = [child.pid for child in psutil.Process(zygote.pid).children()]
    (doorkeeper,) = [
        pid for pid in below if os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
    ]
    os.kill(doorkeeper, signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(doorkeeper))
    cell, _found = await first_call(supervisor, tmp_path)
    assert cell is ready


async def test_they_die_with_their_zygote_and_with_the_supervisor(tmp_path: Path) -> None:
    async with Supervisor(tools=TOOLS) as supervisor:
        await first_call(supervisor, tmp_path)
        (ready,) = await stocked(supervisor)
        os.kill(runtime_of(supervisor).pool.fleet.zygotes[0].pid, signal.SIGKILL)
        with anyio.fail_after(PATIENCE_S):
            while psutil.pid_exists(ready.pid) or runtime_of(supervisor).pool.reserve.cells:
                await anyio.sleep(0.01)
        await first_call(supervisor, tmp_path)
        (ready,) = await stocked(supervisor)
    assert not psutil.pid_exists(ready.pid)


async def test_nothing_of_an_earlier_session_is_in_it(supervisor: Supervisor, tmp_path: Path) -> None:
    place = tmp_path / "place-of-the-first"
    place.mkdir()
    above = await supervisor.open_session(
        "main", workspace=place, agent_id="root-of-the-first", user_id="user-of-the-first"
    )
    first = await above.open_child("branch", agent_id="agent-of-the-first", context="context-of-the-first")
    words = [f"{what}-of-the-first" for what in ("place", "agent", "root", "user", "context")]
    for word in words:
        assert (await first.call("find", {"backwards": word[::-1]})).unwrap(), "it is in the cell whose it is"
    (ready,) = await stocked(supervisor)
    second = await supervisor.open_session("main", workspace=tmp_path)
    for word in (*words, first.id):
        assert (await second.call("find", {"backwards": word[::-1]})).unwrap() == 0
    assert ready in runtime_of(supervisor).pool.cells.values()


async def test_a_workspace_that_is_gone_by_then_is_told_as_ever(supervisor: Supervisor, tmp_path: Path) -> None:
    await first_call(supervisor, tmp_path)
    await stocked(supervisor)
    other = tmp_path / "other"
    other.mkdir()
    session = await supervisor.open_session("main", workspace=other)
    other.rmdir()
    result = await session.call("seen", {"name": "x"})
    assert result.error is not None and "other" in str(result.error)


async def test_what_the_first_call_does_to_the_scratch_does_not_last(supervisor: Supervisor, tmp_path: Path) -> None:
    """Its cell is ended: the next one finds what every cell has."""
    for ahead in (False, True, True, True, True):
        ready = await stocked(supervisor)
        session = await supervisor.open_session("main", workspace=tmp_path)
        assert (await session.call("mark", {"value": "first"})).unwrap() == []
        assert [cell.spec.key.session_id for cell in ready] == [session.id] * ahead
        assert (await session.call("mark", {"value": "second"})).unwrap() == []
        await session.close()


@pytest.mark.parametrize("umask", [0o077, 0o777])
async def test_a_cell_made_ahead_can_be_bound_whatever_the_umask_of_the_program(umask: int, tmp_path: Path) -> None:
    place = Path(f"/srv/toolcell-umask-{os.getpid()}")
    place.mkdir()
    before = os.umask(umask)
    try:
        async with Supervisor(tools=TOOLS) as supervisor:
            os.umask(before)
            await first_call(supervisor, tmp_path)
            (ready,) = await stocked(supervisor)
            assert (await first_call(supervisor, place))[0] is ready
    finally:
        os.umask(before)
        subprocess.run(["rm", "-rf", str(place)], check=True)


async def test_a_path_that_cannot_be_put_in_place_costs_nobody_anything(tmp_path: Path) -> None:
    """As loading a tool has left a file where a directory is to be: the session's own cell has its paths before."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    tools: list[Any] = [tool(Leaves(str(place)), name="leaves", needs=["read"])]
    try:
        (place / "workspace").mkdir()
        async with Supervisor(tools=tools) as supervisor:
            for workspace in (tmp_path, place / "workspace"):
                ready = await stocked(supervisor)
                zygotes = [zygote.pid for zygote in runtime_of(supervisor).pool.fleet.zygotes]
                session = await supervisor.open_session("main", workspace=workspace)
                (await session.call("leaves", {})).unwrap()
                assert all(cell.doomed for cell in set(ready) & set(runtime_of(supervisor).pool.cells.values()))
                assert [zygote.pid for zygote in runtime_of(supervisor).pool.fleet.zygotes] == zygotes
            assert ready
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)


async def test_tools_may_read_what_the_profile_shows_as_they_are_loaded(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "table").write_text("of the profile")
    other = tmp_path / "workspace"
    other.mkdir()
    tools: list[Any] = [tool(Reads(str(data / "table")), name="reads"), *TOOLS]
    profile = Profile.for_kind("main").replace(readable=(str(data),))
    async with Supervisor(tools=tools) as supervisor:
        for ahead in (False, True):
            ready = await stocked(supervisor)
            session = await supervisor.open_session("main", workspace=other, profile=profile)
            assert (await session.call("reads", {})).unwrap() == "of the profile"
            used = list(runtime_of(supervisor).pool.cells.values())
            assert (used == ready) == ahead
            await session.close()


async def test_a_pool_whose_zygotes_keep_dying_makes_none_meanwhile_and_closes(tmp_path: Path) -> None:
    async with Supervisor(tools=TOOLS) as supervisor:
        cell, _ = await first_call(supervisor, tmp_path)
        pool = runtime_of(supervisor).pool
        await stocked(supervisor)
        session = await supervisor.open_session("main", workspace=tmp_path)
        with anyio.fail_after(PATIENCE_S):
            while pool.fleet.zygotes:
                for zygote in pool.fleet.zygotes:
                    zygote.kill()
                await session.call("seen", {"name": "x"}, timeout=0.01)
        pool.reserve.want(cell.spec)
        pool.reserve.soon()
        await anyio.sleep(0.1)
        assert not pool.reserve.cells


async def test_word_of_a_cell_that_has_died_since_is_no_news(supervisor: Supervisor) -> None:
    runtime_of(supervisor).pool.fleet._on_failed(12345, Failed("finish the cell", "it is gone", "", ""))
    runtime_of(supervisor).pool.fleet._on_bound(12345)


async def test_there_is_none_where_there_is_no_room_for_it(tmp_path: Path) -> None:
    async with Supervisor(tools=TOOLS, max_cells=3) as supervisor:
        await first_call(supervisor, tmp_path)
        (ready,) = await stocked(supervisor)
        sessions = [await supervisor.open_session("main", workspace=tmp_path) for _ in range(3)]
        for session in sessions:
            (await session.call("seen", {"name": "x"})).unwrap()
        assert ready in runtime_of(supervisor).pool.cells.values()
        assert await stocked(supervisor) == [] and len(runtime_of(supervisor).pool.cells) == 3


async def test_there_is_none_without_standby(tmp_path: Path) -> None:
    async with Supervisor(tools=TOOLS, standby=False) as supervisor:
        await first_call(supervisor, tmp_path)
        assert await stocked(supervisor) == []


def test_the_rules_about_files_are_verified_when_the_paths_have_come() -> None:
    """A lock that was not closed is noticed."""
    lock = late_paths.Lock(Profile(), View((), (), ""))
    with pytest.raises(SandboxError, match="ioctl on a device"):
        lock.verify(())
    assert lock._layer is not None
    os.close(lock._layer._ruleset)
