"""A session's missing right is denied at three levels: no handle, no row of the broker's table, no right in the kernel.

Each level is tested separately: a tool looks for handles, a tool forges requests on the raw pipe, and a tool ignores
its context and makes system calls.
"""

import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests import probes

from toolcell import (
    Capability,
    Limits,
    PermissionDenied,
    Profile,
    RecentJournal,
    Session,
    SessionKind,
    Supervisor,
    Tool,
    base_tools,
    tool,
)
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import DictHttp, DictWeb, ListChannel, ListMemory

pytestmark = pytest.mark.anyio
C = Capability
ALL = frozenset(Capability)
WORKER_HOLDS = frozenset({C.READ, C.MEMORY_READ, C.WEB})
SECRET = "the canary's song"


def tools() -> list[Tool[..., Any]]:
    """The probes, in a cell with all grants of the session, and in cells with fewer."""
    made = [*base_tools()]
    for function in (probes.handles, probes.ask, probes.attempt, probes.entries):
        name = function.__name__
        made += [tool(function, uses=ALL), tool(function, name=f"{name}_with_nothing")]
        made += [tool(function, name=f"{name}_with_read", needs={C.READ})]
        made += [tool(function, name=f"{name}_with_write", needs={C.WRITE})]
        made += [tool(function, name=f"{name}_with_exec", needs={C.EXEC})]
        made.append(tool(function, name=f"{name}_unchanging", uses=ALL, mutates=lambda arguments: False))
    return made


@dataclass
class Stage:
    """A Main session and a Worker below it, with the same workspace and recording backends."""

    supervisor: Supervisor
    journal: RecentJournal
    main: Session
    worker: Session
    workspace: Path
    channel: ListChannel
    memory: ListMemory
    web: DictWeb
    http: DictHttp

    async def attempt(self, session: Session, name: str, target: Any = None, cell: str = "attempt") -> str:
        arguments = {"name": name} if target is None else {"name": name, "target": target}
        return str((await session.call(cell, arguments)).unwrap())


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def stage(
    anyio_backend: str, nothing_is_left_of_the_module: None, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    journal = RecentJournal()
    workspace = tmp_path_factory.mktemp("workspace")
    channel, memory, web = ListChannel(), ListMemory(), DictWeb({"https://page.example.org/": b"a page"})
    http, profile = DictHttp({"GET https://api.example.org/": b"an answer"}), Profile.for_kind("main")
    async with Supervisor(tools=tools(), journal=journal, http=http) as supervisor:
        main = await supervisor.open_session(
            "main",
            workspace=workspace,
            channel=channel,
            memory=memory,
            web=web,
            profile=profile.replace(http=("GET api.example.org",)),
        )
        worker = await main.open_child("worker")
        yield Stage(supervisor, journal, main, worker, workspace, channel, memory, web, http)


@pytest.fixture(autouse=True)
def files(stage: Stage) -> Iterator[None]:
    """The workspace before each test. It must be the same afterwards, unless the test says otherwise."""
    for path in stage.workspace.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    (stage.workspace / "file").write_text("as it was")
    (stage.workspace / "file").chmod(0o644)
    (stage.workspace / "directory").mkdir()
    stage.channel.sent.clear()
    stage.memory.records.clear()
    stage.memory.searched.clear()
    stage.web.asked.clear()
    stage.http.asked.clear()
    yield


def assert_untouched(stage: Stage) -> None:
    assert sorted(path.name for path in stage.workspace.iterdir()) == ["directory", "file"]
    assert (stage.workspace / "file").read_text() == "as it was"
    assert (stage.workspace / "file").stat().st_mode & 0o7777 == 0o644


# -- the first level: no handle ----------------------------------------------------------------------------------------


async def test_a_worker_gets_no_handle_beyond_its_three_capabilities_whatever_a_tool_uses(stage: Stage) -> None:
    found = (await stage.worker.call("handles")).unwrap()
    there = {name for name, present in found.items() if present}
    assert there == {"workspace", "memory", "web"}


async def test_a_main_session_gets_every_handle_that_the_tool_names(stage: Stage) -> None:
    found = (await stage.main.call("handles")).unwrap()
    there = {name for name, present in found.items() if present}
    assert there == {"workspace", "writer", "shell", "channel", "memory", "memory_writer", "web", "http"}


@pytest.mark.parametrize(
    ("cell", "handles"),
    [
        ("handles_with_nothing", set[str]()),
        ("handles_with_read", {"workspace"}),
        ("handles_with_write", {"writer"}),
        ("handles_with_exec", {"shell"}),
        ("handles_unchanging", {"workspace", "shell", "memory", "web"}),
    ],
)
async def test_a_main_session_gets_no_handle_that_the_tool_does_not_name(
    stage: Stage, cell: str, handles: set[str]
) -> None:
    found = (await stage.main.call(cell)).unwrap()
    assert {name for name, present in found.items() if present} == handles


@pytest.mark.parametrize("cell", ["handles_with_write", "handles_with_exec"])
async def test_a_tool_that_needs_what_a_worker_lacks_never_runs(stage: Stage, cell: str) -> None:
    result = await stage.worker.call(cell)
    assert isinstance(result.error, PermissionDenied)
    assert result.usage.wall_s == 0.0, "it was refused before it reached a cell"


# -- the second level: no row in the broker's table --------------------------------------------------------------------

OPERATIONS: dict[str, tuple[Capability, dict[str, Any]]] = {
    "channel.send": (C.CHANNEL, {"text": "forged"}),
    "memory.search": (C.MEMORY_READ, {"query": "forged", "limit": 5}),
    "memory.store": (C.MEMORY_WRITE, {"text": "forged", "kind": "fact", "tags": []}),
    "web.search": (C.WEB, {"query": "page", "limit": 5}),
    "web.fetch": (C.WEB, {"url": "https://page.example.org/", "max_bytes": 100}),
    "http.request": (C.HTTP, {"method": "GET", "url": "https://api.example.org/"}),
    "http.leave": (C.HTTP, {"watch": 1}),
}
NO_OPERATIONS = [
    "channel.approve",
    "channel.SEND",
    "memory",
    "",
    "__class__",
    "session.open_child",
    "web.fetch\0",
    "x" * 500,
]


def assert_backends_saw_nothing(stage: Stage) -> None:
    assert stage.channel.sent == []
    assert stage.memory.records == [] and stage.memory.searched == []
    assert stage.web.asked == []
    assert stage.http.asked == []


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("who", ["worker", "main"])
async def test_a_forged_request_for_what_was_granted_is_served_so_that_the_refusals_mean_something(
    stage: Stage, who: str, operation: str
) -> None:
    capability, arguments = OPERATIONS[operation]
    session: Session = getattr(stage, who)
    answer = (await session.call("ask", {"operation": operation, "arguments": arguments})).unwrap()
    assert answer["ok"] is (capability in session.grants), answer


@pytest.mark.parametrize("operation", [name for name, (needs, _) in OPERATIONS.items() if needs not in WORKER_HOLDS])
async def test_a_forged_request_of_a_worker_is_refused_and_on_record_and_its_call_goes_on(
    stage: Stage, operation: str
) -> None:
    result = await stage.worker.call("ask", {"operation": operation, "arguments": OPERATIONS[operation][1]})
    answer = result.unwrap()
    assert answer["ok"] is False and answer["value"]["kind"] == "permission_denied"
    assert_backends_saw_nothing(stage)
    denied = stage.journal.of(kind="denied", call_id=result.call_id)
    assert [(record.session_id, record.data["operation"]) for record in denied] == [(stage.worker.id, operation)]
    assert stage.journal.of(kind="incident", call_id=result.call_id) == []


@pytest.mark.parametrize("cell", ["ask_with_nothing", "ask_with_read", "ask_with_write", "ask_with_exec"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_forged_request_for_what_this_call_was_not_granted_is_refused_in_a_main_session_too(
    stage: Stage, operation: str, cell: str
) -> None:
    assert OPERATIONS[operation][0] in stage.main.grants
    result = await stage.main.call(cell, {"operation": operation, "arguments": OPERATIONS[operation][1]})
    answer = result.unwrap()
    assert answer["ok"] is False and answer["value"]["kind"] == "permission_denied"
    assert_backends_saw_nothing(stage)
    denied = stage.journal.of(kind="denied", call_id=result.call_id)
    assert [record.data["operation"] for record in denied] == [operation]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_so_is_one_of_a_call_that_said_that_it_changes_nothing(stage: Stage, operation: str) -> None:
    capability, arguments = OPERATIONS[operation]
    answer = (await stage.main.call("ask_unchanging", {"operation": operation, "arguments": arguments})).unwrap()
    assert answer["ok"] is (capability in WORKER_HOLDS)
    assert stage.channel.sent == [] and stage.memory.records == []


@pytest.mark.parametrize("operation", NO_OPERATIONS)
async def test_an_operation_that_does_not_exist_is_answered_like_one_that_is_not_granted(
    stage: Stage, operation: str
) -> None:
    result = await stage.worker.call("ask", {"operation": operation, "arguments": {}})
    unknown = result.unwrap()
    refused = (await stage.worker.call("ask", {"operation": "channel.send", "arguments": {}})).unwrap()
    assert unknown["ok"] is refused["ok"] is False
    assert unknown["value"]["kind"] == refused["value"]["kind"]
    assert unknown["value"]["message"] == refused["value"]["message"].replace("'channel.send'", repr(operation[:64]))
    assert len(stage.journal.of(kind="denied", call_id=result.call_id)) == 1


async def test_a_granted_operation_with_nonsense_as_arguments_is_a_refusal_and_no_failure_of_the_supervisor(
    stage: Stage,
) -> None:
    nonsense: list[dict[str, Any]] = [
        {},
        {"text": 7},
        {"text": None},
        {"text": ["x"]},
        {"text": {}},
        {"text": "x" * 300_000},
        {"text": "é" * 200_000},
    ]
    for arguments in nonsense:
        answer = (await stage.main.call("ask", {"operation": "channel.send", "arguments": arguments})).unwrap()
        assert answer["ok"] is False and answer["value"]["kind"] == "execution", answer
    asked = {"method": "GET", "url": "https://api.example.org/"}
    oddities: list[dict[str, Any]] = [
        {"body": "text"}, {"body": None}, {"body": [1]}, {"headers": []}, {"headers": {"a": 1}}, {"url": 7},
    ]  # fmt: skip
    for odd in oddities:
        answer = (await stage.main.call("ask", {"operation": "http.request", "arguments": asked | odd})).unwrap()
        assert answer["ok"] is False and answer["value"]["kind"] == "execution", answer
    assert_backends_saw_nothing(stage)


# -- the third level: no right -----------------------------------------------------------------------------------------

READ_ONLY_FILE = [
    ("write", "EROFS"),
    ("append", "EROFS"),
    ("open_truncating", "EROFS"),
    ("truncate", "EROFS"),
    ("rename", "EROFS"),
    ("rename_to_scratch", "EXDEV"),
    ("rename_from_scratch", "EXDEV"),
    ("unlink", "EROFS"),
    ("chmod", "EROFS"),
    ("chown", "EROFS"),
    ("utime", "EROFS"),
    ("setxattr", "EROFS"),
    ("link", "EROFS"),
    ("link_to_scratch", "EXDEV"),
]
READ_ONLY_PLACE = [
    ("write", "EROFS"),
    ("create", "EROFS"),
    ("mkdir", "EROFS"),
    ("symlink", "EROFS"),
    ("mkfifo", "EROFS"),
    ("mknod", "EROFS"),
]
SYSTEM_FILE = "/usr/lib/os-release"


@pytest.mark.parametrize(("name", "refusal"), READ_ONLY_FILE)
async def test_a_worker_cannot_change_a_file_of_the_workspace(stage: Stage, name: str, refusal: str) -> None:
    assert await stage.attempt(stage.worker, name, str(stage.workspace / "file")) == refusal
    assert_untouched(stage)


@pytest.mark.parametrize(("name", "refusal"), READ_ONLY_PLACE)
@pytest.mark.parametrize("place", ["workspace", "/", "/usr", "/usr/bin", "/bin", "/etc", "/lib"])
async def test_a_worker_can_make_nothing_anywhere(stage: Stage, place: str, name: str, refusal: str) -> None:
    directory = str(stage.workspace) if place == "workspace" else place
    made = os.path.join(directory, f"made-{secrets.token_hex(4)}")
    assert await stage.attempt(stage.worker, name, made) == refusal
    assert not os.path.lexists(made)
    assert_untouched(stage)


@pytest.mark.parametrize(("name", "refusal"), READ_ONLY_FILE)
async def test_a_worker_cannot_change_a_file_of_the_system(stage: Stage, name: str, refusal: str) -> None:
    before = os.stat(SYSTEM_FILE)
    if name in ("append", "truncate"):
        refusal = "EACCES"  # the file is not its own, which the kernel finds out first
    assert await stage.attempt(stage.worker, name, SYSTEM_FILE) == refusal
    after = os.stat(SYSTEM_FILE)
    assert (before.st_ino, before.st_mtime_ns, before.st_mode) == (after.st_ino, after.st_mtime_ns, after.st_mode)


async def test_a_worker_can_write_in_its_scratch_so_that_the_refusals_mean_something(stage: Stage) -> None:
    for name in ("write", "create", "mkdir", "symlink", "mkfifo"):
        assert await stage.attempt(stage.worker, name, "/tmp/made") == "done"
    assert await stage.attempt(stage.worker, "mknod", "/tmp/made") == "EACCES"


EXECUTING = ["execve", "posix_spawn", "subprocess"]


@pytest.mark.parametrize("name", EXECUTING)
async def test_a_worker_cannot_execute_a_program(stage: Stage, name: str) -> None:
    assert await stage.attempt(stage.worker, name, "/usr/bin/true") == "EACCES"


@pytest.mark.parametrize("name", EXECUTING)
@pytest.mark.parametrize("cell", ["attempt_with_nothing", "attempt_with_read", "attempt_with_write"])
async def test_a_cell_without_exec_cannot_execute_a_program_in_a_main_session(
    stage: Stage, cell: str, name: str
) -> None:
    assert await stage.attempt(stage.main, name, "/usr/bin/true", cell) == "EACCES"


@pytest.mark.parametrize("name", EXECUTING)
async def test_a_cell_with_exec_can(stage: Stage, name: str) -> None:
    assert await stage.attempt(stage.main, name, "/usr/bin/true", "attempt_unchanging") == "done"
    assert await stage.attempt(stage.main, name, "/usr/bin/true", "attempt_with_exec") == "done"


FAMILIES = [name for name in dir(socket) if name.startswith("AF_") and name != "AF_UNSPEC"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_can_make_a_socket_of_any_family(stage: Stage, who: str, family: str) -> None:
    assert await stage.attempt(getattr(stage, who), "socket", family) == "EAFNOSUPPORT"


KERNEL = [
    ("socketpair_datagram", None, "EAFNOSUPPORT"),
    ("mount", "/tmp", "EPERM"),
    ("bind", "/usr", "EPERM"),
    ("remount", "/", "EPERM"),
    ("umount", "/proc", "EPERM"),
    ("pivot_root", "/tmp", "EPERM"),
    ("chroot", "/tmp", "EPERM"),
    ("unshare", 0x10000000, "EPERM"),  # CLONE_NEWUSER
    ("unshare", 0x00020000, "EPERM"),  # CLONE_NEWNS
    ("unshare", 0x40000000, "EPERM"),  # CLONE_NEWNET
    ("setns", "/proc/self/ns/mnt", "EPERM"),
    ("setns", "/proc/self/ns/user", "EPERM"),
    ("ptrace", 1, "EPERM"),
    ("setuid", 0, "EPERM" if os.geteuid() == 0 else "EINVAL"),  # in a user namespace there is no such uid
    ("setgroups", None, "EPERM"),
    ("sethostname", None, "EPERM"),
    ("nice", None, "EACCES"),
    ("memfd", None, "EPERM"),
    ("mlock", None, "EPERM"),
]


@pytest.mark.parametrize(("name", "target", "refusal"), KERNEL, ids=[f"{name}-{target}" for name, target, _ in KERNEL])
@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_gets_at_the_kernel(stage: Stage, who: str, name: str, target: Any, refusal: str) -> None:
    assert await stage.attempt(getattr(stage, who), name, target) == refusal


@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_can_signal_its_init_or_see_the_supervisor(stage: Stage, who: str) -> None:
    session: Session = getattr(stage, who)
    assert await stage.attempt(session, "kill", 1) == "EPERM"
    assert await stage.attempt(session, "kill", os.getpid()) == "ESRCH"
    assert await stage.attempt(session, "pidfd_open", os.getpid()) == "ESRCH"
    assert await stage.attempt(session, "ptrace", os.getpid()) in ("EPERM", "ESRCH")
    assert await stage.attempt(session, "list", f"/proc/{os.getpid()}") == "ENOENT"


HIDDEN = [
    "/etc/shadow",
    "/etc/hostname",
    "/sys/kernel",
    "/dev/mem",
    "/dev/kmsg",
    "/var",
    "/run",
    "/boot",
    # of the directories on the way to the interpreter and to these tests, a cell sees nothing else
    *(
        each
        for each in ("/home", "/mnt")
        if not any(path.startswith(each) for path in (sys.base_prefix, sys.prefix, __file__))
    ),
]


@pytest.mark.parametrize("path", [*HIDDEN, "/proc/kcore", "/proc/sys", "/proc/cmdline", "/proc/net/tcp"])
@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_finds_what_is_not_bound_in(stage: Stage, who: str, path: str) -> None:
    assert await stage.attempt(getattr(stage, who), "stat", path) == "ENOENT"


@pytest.fixture
def canary() -> Iterator[Path]:
    """A secret in the home directory of the supervisor's user."""
    path = Path.home() / f".toolcell-test-{secrets.token_hex(8)}"
    path.write_text(SECRET)
    yield path
    path.unlink()


@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_can_read_the_home_of_the_supervisors_user(stage: Stage, canary: Path, who: str) -> None:
    session: Session = getattr(stage, who)
    for path in (str(canary), f"/proc/self/root{canary}", f"{stage.workspace}/../../../../../..{canary}"):
        assert await stage.attempt(session, "read", path) == "ENOENT"
    names = (await session.call("entries", {"path": str(canary.parent)})).unwrap()
    hidden = {path.name for path in Path.home().iterdir()} - set(names)
    assert canary.name in hidden and not [name for name in names if name.startswith(".ssh")]


OF_THE_INIT = [
    ("read", "environ"),
    ("read", "mem"),
    ("read", "maps"),
    ("read", "auxv"),
    ("list", "fd"),
    ("list", "root"),
]


@pytest.mark.parametrize(
    ("name", "entry"), [*OF_THE_INIT, ("readlink", "exe"), ("readlink", "cwd"), ("setns", "ns/mnt")]
)
@pytest.mark.parametrize("who", ["worker", "main"])
async def test_no_session_can_look_into_its_init(stage: Stage, who: str, name: str, entry: str) -> None:
    assert await stage.attempt(getattr(stage, who), name, f"/proc/1/{entry}") == "ENOENT"


# -- and within one session --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["attempt_with_read", "attempt_unchanging"])
@pytest.mark.parametrize(("name", "refusal"), READ_ONLY_FILE)
async def test_a_main_call_that_only_reads_cannot_write(stage: Stage, name: str, refusal: str, cell: str) -> None:
    assert await stage.attempt(stage.main, name, str(stage.workspace / "file"), cell) == refusal
    assert_untouched(stage)


@pytest.mark.parametrize("cell", ["attempt_with_nothing", "attempt_with_exec"])
async def test_a_call_without_read_and_write_does_not_see_the_workspace(stage: Stage, cell: str) -> None:
    for name in ("read", "stat", "write"):
        assert await stage.attempt(stage.main, name, str(stage.workspace / "file"), cell) == "ENOENT"
    assert await stage.attempt(stage.main, "list", str(stage.workspace), cell) == "ENOENT"
    assert_untouched(stage)


async def test_a_main_call_that_writes_can_so_that_the_refusals_mean_something(stage: Stage) -> None:
    for name in ("append", "chmod", "utime", "rename", "write", "unlink"):
        target = str(stage.workspace / "file")
        assert await stage.attempt(stage.main, name, target, "attempt_with_write") == "done", name


async def test_a_call_that_writes_cannot_make_a_device(stage: Stage) -> None:
    made = str(stage.workspace / "made")
    assert await stage.attempt(stage.main, "mknod", made, "attempt_with_write") == "EACCES"
    assert not os.path.lexists(made)


async def test_a_link_out_of_the_workspace_leads_nowhere(stage: Stage) -> None:
    for target in ("/etc/shadow", "/root/.profile", f"/proc/{os.getpid()}/environ"):
        (stage.workspace / "link").symlink_to(target)
        assert await stage.attempt(stage.worker, "read", str(stage.workspace / "link")) == "ENOENT"
        (stage.workspace / "link").unlink()


# -- nothing widens ----------------------------------------------------------------------------------------------------

WIDE = Profile.for_kind("main")
NARROW = WIDE.replace(grants=frozenset({"read"}), limits=Limits(wall_s=2.0, memory_bytes=96 * 1024 * 1024, processes=8))


async def test_a_profile_with_every_grant_does_not_widen_a_worker(stage: Stage, tmp_path: Path) -> None:
    session = await stage.supervisor.open_session("worker", workspace=stage.workspace, profile=WIDE)
    child = await stage.main.open_child("worker", profile=WIDE.replace(writable=(str(tmp_path),)))
    for worker in (session, child):
        assert worker.grants == WORKER_HOLDS
        assert isinstance((await worker.call("write", {"path": "made", "content": "x"})).error, PermissionDenied)
        assert await stage.attempt(worker, "write", str(stage.workspace / "file")) == "EROFS"
        assert await stage.attempt(worker, "execve", "/usr/bin/true") == "EACCES"
        answer = (await worker.call("ask", {"operation": "channel.send", "arguments": {"text": "x"}})).unwrap()
        assert answer["ok"] is False
        await worker.close()
    assert await stage.attempt(stage.worker, "write", str(tmp_path / "made")) == "ENOENT"
    assert_untouched(stage)
    assert list(tmp_path.iterdir()) == []


async def test_a_writable_path_of_a_workers_profile_is_not_writable(stage: Stage, tmp_path: Path) -> None:
    worker = await stage.main.open_child("worker", profile=WIDE.replace(writable=(str(tmp_path),)))
    assert await stage.attempt(worker, "write", str(tmp_path / "made")) in ("EROFS", "EACCES", "ENOENT")
    assert list(tmp_path.iterdir()) == []
    await worker.close()


async def test_a_profile_of_the_worker_kind_with_every_grant_widens_no_worker(supervise: Any, workspace: Path) -> None:
    async with supervise(tools=tools(), profiles={SessionKind.WORKER: WIDE}) as supervisor:
        worker = await supervisor.open_session("worker", workspace=workspace)
        assert worker.grants == WORKER_HOLDS
        (workspace / "file").write_text("as it was")
        result = await worker.call("attempt", {"name": "write", "target": str(workspace / "file")})
        assert result.output == "EROFS"


@pytest.mark.parametrize("kind", ["branch", "worker"])
@pytest.mark.parametrize("profile", [None, WIDE], ids=["no profile", "a wide profile"])
async def test_a_child_of_a_narrow_branch_holds_no_more_than_the_branch(
    stage: Stage, kind: str, profile: Profile | None
) -> None:
    branch = await stage.main.open_child("branch", profile=NARROW)
    assert branch.grants == {C.READ}
    child = await branch.open_child(kind, profile=profile)
    assert child.grants <= branch.grants
    assert isinstance((await child.call("write", {"path": "made", "content": "x"})).error, PermissionDenied)
    assert isinstance((await child.call("memory_search", {"query": "x"})).error, PermissionDenied)
    assert await stage.attempt(child, "write", str(stage.workspace / "file")) == "EROFS"
    await branch.close()
    assert_untouched(stage)


@pytest.mark.parametrize("kind", ["branch", "worker"])
@pytest.mark.parametrize("profile", [None, WIDE], ids=["no profile", "a wide profile"])
async def test_a_child_of_a_narrow_branch_is_held_to_the_limits_of_the_branch(
    stage: Stage, kind: str, profile: Profile | None
) -> None:
    branch = await stage.main.open_child("branch", profile=NARROW)
    child = await branch.open_child(kind, profile=profile)
    exceeded = [
        field
        for field in ("wall_s", "memory_bytes", "processes")
        if getattr(child.profile.limits, field) > getattr(branch.profile.limits, field)
    ]
    assert exceeded == []
    await branch.close()


@pytest.mark.parametrize("kind", ["branch", "worker"])
async def test_a_child_of_a_narrow_branch_sees_no_path_that_the_branch_does_not(
    stage: Stage, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    branch = await stage.main.open_child("branch", profile=NARROW)
    assert await stage.attempt(branch, "read", str(tmp_path / "secret")) == "ENOENT"
    child = await branch.open_child(kind, profile=WIDE.replace(readable=(str(tmp_path),)))
    assert await stage.attempt(child, "read", str(tmp_path / "secret")) == "ENOENT"
    await branch.close()


async def test_a_tool_cannot_raise_the_limits_of_its_session(stage: Stage, supervise: Any, workspace: Path) -> None:
    greedy = tool(probes.entries, name="greedy", limits={"processes": 10_000, "memory_bytes": 1 << 40, "wall_s": 9_999})
    async with supervise(tools=[greedy]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("greedy", {"path": str(workspace)})).error is None
        routes = core_of(session).routes
        route = routes.to(routes.offer(runtime_of(supervisor).settings.tools["greedy"]))
        assert route.limits.is_within(session.profile.limits)
