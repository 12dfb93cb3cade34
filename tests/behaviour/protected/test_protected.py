"""Protected names through a supervisor: every name by every base tool that writes, and which call caused the change."""

import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell import (
    Capability,
    PermissionDenied,
    Profile,
    RecentJournal,
    SandboxUnavailable,
    Session,
    Supervisor,
    ToolContext,
    ToolResult,
    base_tools,
    tool,
)
from toolcell.dispatch.protected_names import MAX_TOLD
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell_sandbox.trees import audit, facts
from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.facts import NAME_CHARS
from toolcell_sandbox.trees.quarantine import BLOCK_BYTES, MOST_BYTES

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.few_on_trio,
    pytest.mark.usefixtures("nothing_is_left_of_the_module"),  # cells of the shared supervisor come and go meanwhile
]


@tool(needs={Capability.READ, Capability.WRITE})
def plant(ctx: ToolContext, path: str, then: str = "") -> str:
    """Make a file without the write handle; then crash, hang or raise if `then` says so."""
    target = ctx.workspace_root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("evil")
    if then == "crash":
        os.abort()
    if then == "hang":
        time.sleep(1000)
    if then == "raise":
        raise ValueError("after planting")
    if then == "leave a child" and os.fork() == 0:
        time.sleep(0.02)
        (ctx.workspace_root / ".npmrc").write_text("evil")
        time.sleep(1000)
    return "planted"


@tool(needs={Capability.READ, Capability.WRITE}, lifetime="session")
def kept(ctx: ToolContext, path: str = "", after_s: float = 0.0) -> int:
    """Make a file in a kept process, either now or in the background after the call."""
    import threading

    if path:
        target = ctx.workspace_root / path
        if after_s:
            threading.Timer(after_s, target.write_text, ["evil"]).start()
        else:
            target.write_text("evil")
    return os.getpid()


@tool(needs={Capability.READ, Capability.WRITE})
def handle(ctx: ToolContext, method: str, *, paths: list[str]) -> str:
    """Call a method of the write handle."""
    getattr(ctx.writer, method)(*paths)
    return "done"


TOOLS = [*base_tools(), plant, kept, handle]


@pytest.fixture(scope="module")
def quarantine_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quarantine") / "quarantine"


@pytest.fixture
def quarantine(quarantine_of_all: Path) -> Path:
    """The quarantine of the shared supervisor, emptied."""
    shutil.rmtree(quarantine_of_all, ignore_errors=True)
    return quarantine_of_all


@pytest.fixture(scope="module")
def options(quarantine_of_all: Path) -> dict[str, Any]:
    return {"quarantine": quarantine_of_all, "journal": RecentJournal()}


@pytest.fixture
def supervisor(shared: Supervisor, quarantine: Path) -> Supervisor:
    return shared


@pytest.fixture
async def session(supervisor: Supervisor, workspace: Path, quarantine: Path) -> AsyncIterator[Session]:
    opened = await supervisor.open_session("main", workspace=workspace, profile=ALL)
    yield opened
    await opened.close()


def told(result: ToolResult) -> str:
    """The notices of a result about protected names, which must not be an error."""
    (notice,) = [notice for notice in result.notices if notice.kind == "protected_name"]
    return notice.message


def listing(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in sorted(root.rglob("*"))}


def content(quarantine: Path) -> dict[str, str]:
    """The content of the quarantine, by name."""
    return {path.name: path.read_text() for path in quarantine.rglob("*") if path.is_file()}


def example(name: str) -> str:
    path = name.removeprefix("/").replace("**", "m").replace("*", "some")
    return f"wt/{path}" if path == ".git" else path


once = pytest.mark.parametrize(
    "anyio_backend", ["asyncio"], scope="module"
)  # a long table, which is the same on both event loops
ALL = Profile.for_kind("main").narrow(protected=["project_code"])
NAMES = {name: example(name) for name in ALL.protected}


@once
@pytest.mark.parametrize("there", [False, True], ids=["absent", "there"])
async def test_no_name_can_be_written_by_write_or_edit(session: Session, workspace: Path, there: bool) -> None:
    if there:
        for path in NAMES.values():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text("mine")
    before = listing(workspace)
    for number, (name, path) in enumerate(NAMES.items()):
        tool_name, arguments = "write", {"path": path, "content": "evil"}
        if there and number % 2:
            tool_name, arguments = "edit", {"path": path, "old_text": "mine", "new_text": "evil"}
        result = await session.call(tool_name, arguments)
        assert isinstance(result.error, PermissionDenied), (path, tool_name, result)
        assert f"protected by the name {name!r}" in result.error.message
    assert listing(workspace) == before


@once
@pytest.mark.parametrize("there", [False, True], ids=["absent", "there"])
async def test_no_name_can_be_written_by_shell(
    session: Session, workspace: Path, there: bool, quarantine: Path
) -> None:
    for path in NAMES.values():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        if there:
            (workspace / path).write_text("mine")
    before = listing(workspace)
    for path in NAMES.values():
        (workspace / f"{path}.txt").write_text("")
    result = await session.call(
        "shell", {"command": f"for path in {' '.join(NAMES.values())}; do echo evil > $path; done"}
    )
    for path in NAMES.values():
        (workspace / f"{path}.txt").unlink()
    assert listing(workspace) == before
    if there:
        output: Any = result.unwrap()
        assert output["stderr"].count("Read-only file system") == len(NAMES), output["stderr"][:2000]
        assert not quarantine.exists()
    else:
        assert f"and {len(NAMES) - 5} more" in told(result) and result.output["exit_code"] == 0
        taken = [path for path in quarantine.rglob("*") if path.is_file()]
        assert len(taken) == len(NAMES) and {path.read_text() for path in taken} == {"evil\n"}


async def test_what_a_full_quarantine_drops_for_a_call_is_told(supervise: Any, workspace: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    old = full / "toolcell-abcdefgh"
    old.mkdir(parents=True)
    with open(old / ".envrc", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, MOST_BYTES - 2 * BLOCK_BYTES)  # with its shelf, room for one block
    async with supervise(TOOLS, quarantine=full) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=ALL)
        result = await session.call("plant", {"path": ".envrc"})
        assert told(result).endswith(
            "; older entries of the quarantine that were deleted to keep it within its bounds: 1."
        )
        (record,) = supervisor.journal.of(kind="quarantined", call_id=result.call_id)
        assert record.data["dropped"] == [str(old)] and not old.exists()
        (finding,) = record.data["findings"]
        assert Path(finding["place"]).read_text() == "evil"


async def test_the_model_is_told_which_name_and_why_and_keeps_the_result(
    session: Session, supervisor: Supervisor, quarantine: Path, workspace: Path
) -> None:
    result = await session.call("plant", {"path": ".mcp.json"})
    assert result.error is None and result.output == "planted" and not result.notices[1:]
    (place,) = [path for path in quarantine.rglob("*") if path.is_file()]
    why = "an agent starts the servers and hooks that it names"
    message = f"'.mcp.json' was moved out of the workspace ({why})"
    assert told(result) == f"Protected names were made, changed or moved while the call ran: {message}."
    assert told(result) in result.for_model() and str(workspace) not in result.for_model()
    assert place.read_text() == "evil" and place.parent.stat().st_mode & 0o077 == 0
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    (record,) = journal.of(kind="quarantined", call_id=result.call_id)
    finding = {
        "path": f"{workspace}/.mcp.json", "name": "/.mcp.json", "what": "made", "why": why, "place": str(place),
    }  # fmt: skip
    assert record.data == {
        "tool": "plant",
        "found": 1,
        "findings": [finding],
        "dropped": [],
        "unchecked": "",
        "stuck": "",
    }
    assert not journal.of(kind="denied", call_id=result.call_id)


@pytest.mark.parametrize(
    ("method", "paths", "name"),
    [
        ("write_text", [".mcp.json", "x"], "/.mcp.json"),
        ("write_bytes", ["A/.GIT/HOOKS/x", b"x"], ".git/hooks"),
        ("mkdir", ["a/.github/workflows"], ".github/workflows"),
        ("mkdir", [".vscode/x"], "/.vscode"),
        ("replace", ["notes.txt", "conftest.py"], "conftest.py"),
        ("replace", ["x.pth", "notes.txt"], "*.pth"),
        ("unlink", ["x.pth"], "*.pth"),
        ("write_text", ["link/tasks.json", "x"], "/.vscode"),
        ("write_text", ["sub/../.envrc", "x"], ".envrc"),
    ],
)
async def test_each_method_of_the_handle_refuses_before_it_touches_anything(
    session: Session, workspace: Path, method: str, paths: list[Any], name: str
) -> None:
    (workspace / "notes.txt").write_text("notes")
    (workspace / "x.pth").write_text("mine")
    (workspace / ".vscode").mkdir()
    (workspace / "link").symlink_to(".vscode")
    (workspace / "sub").mkdir()
    before = listing(workspace)
    result = await session.call("handle", {"method": method, "paths": [str(each) for each in paths]})
    assert isinstance(result.error, PermissionDenied) and repr(name) in result.error.message, result
    assert listing(workspace) == before


async def test_ordinary_work_goes_on(session: Session, workspace: Path) -> None:
    for path in ("Makefile", "src/main.py", ".gitignore", "package.json", ".github/CODEOWNERS"):
        (await session.call("write", {"path": path, "content": "x"})).unwrap()
    made = await session.call("handle", {"method": "mkdir", "paths": [".git/objects"]})
    assert made.error is None and (workspace / ".git/objects").is_dir()


async def test_a_commit_works_and_a_hook_does_not(session: Session, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    who = "git -c user.name=a -c user.email=b"
    command = f"echo text > file && git add -A && {who} commit -qm first && git log --format=%s && git config core.x y"
    result = await session.call("shell", {"command": command})
    output: Any = result.unwrap()
    assert output["stdout"] == "first\n" and "'.git/config' was left as it was" in told(result)
    assert "core.x" in told(result) and "\tx = y" not in (workspace / ".git/config").read_text()
    output = (await session.call("shell", {"command": "echo evil > .git/hooks/pre-commit"})).unwrap()
    assert "Read-only" in output["stderr"]


@pytest.mark.parametrize(
    ("then", "kind"),
    [("crash", "crashed"), ("hang", "timeout"), ("raise", "execution"), ("leave a child", "")],
)
async def test_the_audit_comes_however_the_call_ends(
    session: Session, supervisor: Supervisor, workspace: Path, quarantine: Path, then: str, kind: str
) -> None:
    timeout = 0.5 if then == "hang" else None
    result = await session.call("plant", {"path": "a/.envrc", "then": then}, timeout=timeout)
    assert (result.error.kind if result.error is not None else "") == kind and "'a/.envrc'" in told(result)
    assert listing(workspace) == {"a": ""} and content(quarantine)[".envrc"] == "evil"
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    assert journal.of(kind="quarantined", call_id=result.call_id)
    await anyio.sleep(0.1)  # a child that was left would have planted its own by now
    assert listing(workspace) == {"a": ""}


async def test_a_call_that_nobody_waits_for_is_audited_behind(
    session: Session, supervisor: Supervisor, workspace: Path, quarantine: Path
) -> None:
    with anyio.move_on_after(0.5):
        await session.call("plant", {"path": ".envrc", "then": "hang"})
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    with anyio.fail_after(PATIENCE_S):
        while not journal.of(kind="quarantined", session_id=session.id):
            await anyio.sleep(0.01)
    assert listing(workspace) == {} and content(quarantine) == {".envrc": "evil"}
    assert (await session.call("write", {"path": "a.txt", "content": "x"})).error is None


async def test_a_supervisor_that_is_left_audits_what_still_ran(
    supervise: Any, workspace: Path, quarantine: Path
) -> None:
    journal = RecentJournal()
    async with supervise(TOOLS, quarantine=quarantine, journal=journal) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(0.5):
                await session.call("plant", {"path": ".envrc", "then": "hang"})
            tasks.cancel_scope.cancel()
    assert listing(workspace) == {} and content(quarantine) == {".envrc": "evil"}
    assert len(journal.of(kind="quarantined")) == 1


@pytest.mark.parametrize("leaves", ["session", "supervisor"])
async def test_what_a_kept_process_plants_after_its_last_call_is_found_when_it_ends(
    supervise: Any, workspace: Path, quarantine: Path, leaves: str
) -> None:
    journal = RecentJournal()
    async with supervise(TOOLS, quarantine=quarantine, journal=journal) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("kept", {"path": ".envrc", "after_s": 2.0})  # when the call is over and audited
        assert result.error is None
        with anyio.fail_after(PATIENCE_S):
            while not (workspace / ".envrc").exists():
                await anyio.sleep(0.01)
        if leaves == "session":
            await session.close()
            with anyio.fail_after(PATIENCE_S):
                while not journal.of(kind="quarantined"):
                    await anyio.sleep(0.01)
            (workspace / ".envrc").write_text("the user's own")
    assert content(quarantine) == {".envrc": "evil"}
    assert listing(workspace) == ({".envrc": "the user's own"} if leaves == "session" else {})
    (record,) = journal.of(kind="quarantined")
    assert (record.data["tool"], record.call_id) == ("kept", result.call_id)


async def test_a_file_of_the_users_own_is_left_alone_once_the_kept_process_is_gone(
    supervise: Any, workspace: Path
) -> None:
    async with supervise(TOOLS) as supervisor:
        first = await supervisor.open_session("main", workspace=workspace)
        (await first.call("kept")).unwrap()
        await first.close()
        with anyio.fail_after(PATIENCE_S):
            while runtime_of(supervisor).protection.awaits_kept:
                await anyio.sleep(0.01)
        (workspace / ".envrc").write_text("mine")
        second = await supervisor.open_session("main", workspace=workspace)
        assert (await second.call("write", {"path": "a.txt", "content": "x"})).error is None
        assert (workspace / ".envrc").read_text() == "mine"


async def test_what_the_user_makes_between_calls_is_left_alone_and_then_held(session: Session, workspace: Path) -> None:
    (await session.call("write", {"path": "a.txt", "content": "x"})).unwrap()
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode/tasks.json").write_text("mine")
    (await session.call("write", {"path": "a.txt", "content": "y"})).unwrap()
    output: Any = (await session.call("shell", {"command": "echo evil > .vscode/tasks.json"})).unwrap()
    assert "Read-only file system" in output["stderr"]
    replaced = workspace / "new"
    replaced.write_text("mine too")
    replaced.rename(workspace / ".vscode/tasks.json")  # as editors save: the mount that held the old one is gone
    output = (await session.call("shell", {"command": "echo evil > .vscode/tasks.json"})).unwrap()
    assert "Read-only file system" in output["stderr"]
    assert (workspace / ".vscode/tasks.json").read_text() == "mine too"


async def test_calls_that_wait_for_their_turn_do_not_answer_for_each_other(
    session: Session, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: dict[str, str] = {}
    settle = ProtectedTree.settle

    def settle_slowly(*arguments: Any) -> Any:
        time.sleep(0.05)  # so long that a cell which is free for the next call would have been given it
        return settle(*arguments)

    monkeypatch.setattr(ProtectedTree, "settle", settle_slowly)

    async def call(name: str, arguments: dict[str, str]) -> None:
        errors[arguments["path"]] = " ".join(each.kind for each in (await session.call(name, arguments)).notices)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "plant", {"path": ".envrc"})
        for number in range(4):
            tasks.start_soon(call, "write", {"path": f"{number}.txt", "content": "x"})
    assert errors == {".envrc": "protected_name", **{f"{number}.txt": "" for number in range(4)}}
    assert sorted(listing(workspace)) == [f"{number}.txt" for number in range(4)]


async def test_a_lifted_name_is_lifted_for_that_session_alone(supervisor: Supervisor, workspace: Path) -> None:
    profile = ALL.lifting("conftest.py")
    free = await supervisor.open_session("main", workspace=workspace, profile=profile)
    assert (await free.call("write", {"path": "conftest.py", "content": "x"})).error is None
    assert (await free.call("plant", {"path": "sub/conftest.py"})).error is None
    assert told(await free.call("plant", {"path": ".envrc"}))
    session = await supervisor.open_session("main", workspace=workspace, profile=ALL)
    assert (await session.call("write", {"path": "conftest.py", "content": "y"})).error is not None
    strict = Profile.for_kind("branch").replace(protected=("Makefile",))
    child = await free.open_child("branch", profile=strict)
    assert set(child.profile.protected) == {*profile.protected, "Makefile"}
    assert (await child.call("write", {"path": "Makefile", "content": "x"})).error is not None
    assert (await free.call("write", {"path": "Makefile", "content": "x"})).error is None


async def test_a_kept_process_answers_for_what_appears_while_it_lives(
    session: Session, workspace: Path, quarantine: Path
) -> None:
    (workspace / ".vscode").mkdir()
    first = (await session.call("kept")).unwrap()
    result = await session.call("kept", {"path": ".envrc"})
    assert told(result) and listing(workspace) == {".vscode": ""}
    assert (await session.call("kept", {"path": ".npmrc", "after_s": 2.0})).unwrap() == first
    await until(lambda: ".npmrc" in listing(workspace))
    await anyio.sleep(0.3)
    assert ".npmrc" in listing(workspace)  # nobody looks while nothing is called
    assert "'.npmrc'" in told(await session.call("write", {"path": "a.txt", "content": "x"}))
    assert listing(workspace) == {".vscode": "", "a.txt": "x"} and content(quarantine).keys() == {".envrc", ".npmrc"}
    assert (await session.call("kept")).unwrap() == first


async def test_what_the_first_kept_process_makes_after_its_first_call_is_found_by_the_next(
    session: Session, workspace: Path, quarantine: Path
) -> None:
    assert (await session.call("kept", {"path": ".npmrc", "after_s": 2.0})).error is None
    await until(lambda: ".npmrc" in listing(workspace))
    assert ".npmrc" in listing(workspace)
    assert "'.npmrc'" in told(await session.call("write", {"path": "a.txt", "content": "x"}))
    assert listing(workspace) == {"a.txt": "x"} and content(quarantine).keys() == {".npmrc"}


async def test_what_an_audit_could_not_move_is_moved_before_the_next_call_runs(
    session: Session, workspace: Path, quarantine: Path
) -> None:
    quarantine.write_text("a file is in its place")
    planted = await session.call("plant", {"path": ".envrc"})
    assert planted.error is None and "could not be moved away" in told(planted)
    refused = await session.call("write", {"path": "b.txt", "content": "x"})
    assert refused.error is not None and refused.error.kind == "sandbox_unavailable"
    assert refused.error.mechanism == "protected_names" and "remove it" in refused.error.cure
    assert listing(workspace) == {".envrc": "evil"}
    quarantine.unlink()
    assert (await session.call("write", {"path": "b.txt", "content": "x"})).error is None
    assert listing(workspace) == {"b.txt": "x"} and content(quarantine) == {".envrc": "evil"}


async def test_the_journal_has_the_first_of_many_findings_and_their_number(
    session: Session, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolcell.dispatch import protected_names

    monkeypatch.setattr(protected_names, "MAX_RECORDED", 2)
    assert "'3.pth'" in told(await session.call("shell", {"command": "touch 1.pth 2.pth 3.pth"}))
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    data = journal.of(kind="quarantined")[-1].data
    assert (data["found"], len(data["findings"])) == (3, 2)


async def test_of_many_findings_the_model_is_told_the_first_and_how_many_more(session: Session) -> None:
    few = await session.call("shell", {"command": f"touch {' '.join(f'{n}.pth' for n in range(MAX_TOLD))}"})
    many = await session.call("shell", {"command": f"touch {' '.join(f'{n}.pth' for n in range(MAX_TOLD + 2))}"})
    assert told(few).count(".pth' was moved") == MAX_TOLD and " more." not in told(few)
    assert told(many).count(".pth' was moved") == MAX_TOLD and told(many).endswith("; and 2 more.")


async def test_a_session_that_only_reads_pays_nothing_and_one_without_names_neither(
    supervisor: Supervisor, workspace: Path
) -> None:
    worker = await supervisor.open_session("worker", workspace=workspace)
    free = await supervisor.open_session(
        "main", workspace=workspace, profile=Profile.for_kind("main").replace(protected=())
    )
    for each, name in ((worker, "read"), (free, "write")):
        routes = core_of(each).routes
        assert routes.to(routes.offer(runtime_of(supervisor).settings.tools[name])).guarded is None
    assert (await free.call("plant", {"path": ".envrc"})).error is None


async def test_a_call_that_could_not_be_audited_in_time_keeps_its_result_and_is_looked_at_behind(
    session: Session, supervisor: Supervisor, workspace: Path, quarantine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr(audit, "AFTER_S", -1.0)
        result = await session.call("plant", {"path": "a/.envrc"})
    assert result.unwrap() == "planted"
    (notice,) = result.notices
    assert notice.kind == "unchecked" and "took too long" in notice.message and str(workspace) not in notice.message
    with anyio.fail_after(PATIENCE_S):
        while not content(quarantine):
            await anyio.sleep(0.01)
    assert content(quarantine) == {".envrc": "evil"} and listing(workspace) == {"a": ""}
    journal = supervisor.journal
    assert isinstance(journal, RecentJournal)
    with anyio.fail_after(PATIENCE_S):
        while len(journal.of(kind="quarantined", call_id=result.call_id)) < 2:
            await anyio.sleep(0.01)
    first, second = journal.of(kind="quarantined", call_id=result.call_id)
    assert first.data["unchecked"] and (second.data["found"], second.data["unchecked"]) == (1, "")


async def test_what_the_user_makes_while_a_look_goes_on_behind_is_left_alone(
    session: Session, workspace: Path, quarantine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "conftest.py").write_text("mine")
    await anyio.sleep(0.01 + facts.COARSE_NS / 1e9)
    with monkeypatch.context() as hurried:
        hurried.setattr(audit, "AFTER_S", -1.0)
        assert (await session.call("plant", {"path": ".envrc"})).notices
    await anyio.sleep(0.1)
    (workspace / ".npmrc").write_text("mine")
    with anyio.fail_after(PATIENCE_S):
        while not content(quarantine):
            await anyio.sleep(0.01)
    assert listing(workspace) == {".npmrc": "mine", "conftest.py": "mine"}


async def test_a_profile_may_deny_what_could_not_be_audited(
    supervisor: Supervisor, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = Profile.for_kind("main").replace(unchecked="deny")
    session = await supervisor.open_session("main", workspace=workspace, profile=strict)
    monkeypatch.setattr(audit, "AFTER_S", -1.0)
    result = await session.call("write", {"path": "a.txt", "content": "x"})
    assert isinstance(result.error, PermissionDenied) and result.error.reason.startswith("unchecked")
    assert result.output is None and result.notices[0].kind == "unchecked"
    child = await session.open_child("branch", profile=Profile.for_kind("branch"))
    assert child.profile.unchecked == "deny"


async def test_a_name_that_one_profile_protects_is_held_against_a_kept_process_of_another(
    supervisor: Supervisor, workspace: Path, quarantine: Path
) -> None:
    (workspace / "Makefile.old").write_text("mine")
    first = await supervisor.open_session("main", workspace=workspace)
    (await first.call("kept", {"path": "Makefile", "after_s": 2.0})).unwrap()
    with anyio.fail_after(PATIENCE_S):
        while not (workspace / "Makefile").exists():
            await anyio.sleep(0.01)
    strict = Profile.for_kind("main")
    strict = strict.replace(protected=(*strict.protected, "Makefile*"))
    second = await supervisor.open_session("main", workspace=workspace, profile=strict)
    result = await second.call("write", {"path": "a.txt", "content": "x"})
    assert result.error is None and "'Makefile'" in told(result)
    assert content(quarantine).keys() >= {"Makefile"}
    (await first.call("kept", {"path": "Makefile"})).unwrap()
    assert told(await second.call("write", {"path": "a.txt", "content": "y"}))
    assert not (workspace / "Makefile").exists()


async def test_a_tree_of_many_entries_is_looked_at_off_the_loop(session: Session, workspace: Path) -> None:
    wide = workspace / "wide"
    wide.mkdir()
    (wide / "0.txt").touch()
    for number in range(1, 40_000):
        os.link(wide / "0.txt", wide / f"{number}.txt")
    longest, before, all_before = 0.0, time.thread_time(), time.process_time()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            command = "touch wide/one-more wide/.envrc"
            assert told(await session.call("shell", {"command": command}))
            tasks.cancel_scope.cancel()

        tasks.start_soon(call)
        while True:
            await anyio.sleep(0.001)
            now = time.thread_time()
            longest, before = max(longest, now - before), now
    assert longest < (time.process_time() - all_before) / 2, "most of the work is done in another thread"
    assert not (wide / ".envrc").exists()


async def test_what_others_plant_in_a_shared_workspace_breaks_no_cell(supervisor: Supervisor, workspace: Path) -> None:
    """A file that another session's call has just made is not part of a cell, because it is soon moved away."""
    (workspace / "conftest.py").write_text("mine")
    kinds: set[str] = set()

    async def plant_again_and_again(number: int) -> None:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(15):
            await session.call("plant", {"path": f"{number}/.envrc", "then": "leave a child"})

    async def write_again_and_again(number: int) -> None:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(15):
            error = (await session.call("write", {"path": f"{number}.txt", "content": "x"})).error
            kinds.add(error.kind if error is not None else "")

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(plant_again_and_again, number)
            tasks.start_soon(write_again_and_again, number)
    assert kinds <= {"", "permission_denied"}
    assert (workspace / "conftest.py").read_text() == "mine"


RUNS = "git config core.fsmonitor ./evil"


@pytest.mark.parametrize("there", [False, True], ids=["of an earlier call", "there before"])
async def test_a_setting_that_may_run_something_takes_no_other_setting_with_it(
    session: Session, workspace: Path, there: bool
) -> None:
    made = "git init -q d && cd d && git remote add origin https://example.org/d.git && git config user.name Ada"
    if there:
        await anyio.run_process(["sh", "-ec", made], cwd=workspace)
    else:
        assert not (await session.call("shell", {"command": made})).notices
    command = f"cd d && {RUNS} && git config user.email ada@example.org && git config alias.co checkout"
    result = await session.call("shell", {"command": command})
    without = "settings that are not known to be harmless: 'core.fsmonitor', 'alias.co'"
    assert told(result).endswith(f"'d/.git/config' was kept without {without}.")
    listed = await anyio.run_process(["git", "-C", str(workspace / "d"), "config", "--local", "--list", "--name-only"])
    keys = listed.stdout.decode().split()
    assert {"remote.origin.url", "user.name", "user.email"} <= set(keys)
    assert not {"core.fsmonitor", "alias.co"} & set(keys)
    again = await session.call("shell", {"command": "cd d && git remote get-url origin && git config user.email"})
    assert again.unwrap()["stdout"] == "https://example.org/d.git\nada@example.org\n" and not again.notices


async def test_where_git_may_track_what_was_moved_away_the_notice_says_what_git_shows(
    session: Session, workspace: Path
) -> None:
    said = "shows as deleted: do not commit that"
    assert said not in told(await session.call("shell", {"command": "touch .envrc"}))
    await anyio.run_process(["git", "init", "-q", str(workspace / "d")])
    assert said in told(await session.call("shell", {"command": "touch d/sub.txt d/.envrc"}))
    assert said not in told(await session.call("shell", {"command": "touch d/.git/hooks/pre-push"}))


async def test_settings_that_a_call_has_in_a_repository_that_it_made_are_cut_down_too(
    session: Session, workspace: Path
) -> None:
    command = "git init -q d && cd d && git config core.hooksPath .husky/_ && git config user.name Ada"
    result = await session.call("shell", {"command": command})
    assert "'d/.git/config' was kept without" in told(result) and "'core.hookspath'" in told(result)
    text = (workspace / "d/.git/config").read_text()
    assert "Ada" in text and "husky" not in text


async def test_the_host_sees_no_change_of_a_repositorys_settings_while_the_call_runs(
    session: Session, workspace: Path
) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    settings = workspace / ".git/config"
    before = settings.read_text()
    command = "git config user.name Ada && git config user.name && touch made && sleep 1"
    results: list[ToolResult] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await session.call("shell", {"command": command}))

        tasks.start_soon(call)
        with anyio.fail_after(PATIENCE_S):
            while not (workspace / "made").exists():
                await anyio.sleep(0.01)
        assert settings.read_text() == before
    output: Any = results[0].unwrap()
    assert output["stdout"] == "Ada\n" and not results[0].notices
    assert settings.read_text() == f"{before}[user]\n\tname = Ada\n" and not settings.is_symlink()
    assert os.listdir(workspace / ".git").count("config.lock") == 0


async def test_a_repository_that_was_there_is_moved_and_removed(session: Session, workspace: Path) -> None:
    for name in ("a", "b"):
        await anyio.run_process(["git", "init", "-q", str(workspace / name)])
        (workspace / name / ".git/hooks/pre-commit").write_text("mine")
    moved = await session.call("shell", {"command": "mv a c && cd c && git remote add x y && git status --short"})
    assert not moved.notices and not (workspace / "a").exists()
    assert "[remote" in (workspace / "c/.git/config").read_text()
    again = await session.call("shell", {"command": "cd c && git config user.name Ada && rm -rf ../b"})
    assert "'b/.git', of which a part could not be removed by the call, is removed now" in told(again)
    assert "Ada" in (workspace / "c/.git/config").read_text() and os.listdir(workspace) == ["c"]
    assert (workspace / "c/.git/hooks/pre-commit").read_text() == "mine"


async def test_a_copy_of_a_repository_has_its_settings(session: Session, workspace: Path) -> None:
    git = ["git", "-C", str(workspace / "r"), "config"]
    await anyio.run_process(["git", "init", "-q", str(workspace / "r")])
    await anyio.run_process([*git, "remote.origin.url", "https://git.example.org/x"])
    plain = await session.call("shell", {"command": "cp -r r plain && tar c r | tar x --one-top-level=b"})
    assert not plain.notices and not plain.stderr.text, plain
    for at in ("plain", "b/r"):
        assert (workspace / at / ".git/config").read_text() == (workspace / "r/.git/config").read_text()
        assert not (workspace / at / ".git/config").is_symlink()
    await anyio.run_process([*git, "core.sshCommand", "mine"])
    result = await session.call("shell", {"command": "cp -r r c && ln -s /etc/passwd c/.git/config.worktree"})
    assert "'c/.git/config' was kept without" in told(result) and "core.sshcommand" in told(result)
    text = (workspace / "c/.git/config").read_text()
    assert "git.example.org" in text and "mine" not in text and os.listdir(workspace / "c/.git").count("config") == 1
    assert not os.path.lexists(workspace / "c/.git/config.worktree")
    assert "mine" in (workspace / "r/.git/config").read_text()
    again = await session.call("shell", {"command": "cd c && git remote -v && git config user.name Ada"})
    assert not again.notices and "git.example.org" in again.display


IN_THE_COPY = """import os
os.chdir(os.path.dirname(os.readlink("r/.git/config")))
{}
"""


@pytest.mark.parametrize(
    "does",
    [
        "for _ in range(1500): os.mkdir('d'), os.chdir('d')",
        "os.makedirs('a/b/c'), os.chmod('a/b', 0), os.chmod('a', 0)",
        "open('0', 'w').close(), [os.link('0', str(n)) for n in range(1, 11_000)]",  # more than are tidied up
        "for _ in range(1500): os.mkdir('d'), os.chdir('d')\nopen('/proc/self/cwd/../x', 'w').close()",
    ],
)
@pytest.mark.parametrize("sets", [False, True])
async def test_what_a_call_leaves_beside_its_copy_of_gits_settings_ends_no_audit(
    session: Session, workspace: Path, does: str, *, sets: bool
) -> None:
    git = ["git", "-C", str(workspace / "r"), "config"]
    await anyio.run_process(["git", "init", "-q", str(workspace / "r")])
    await anyio.run_process([*git, "core.sshCommand", "mine"])
    (workspace / "evil.py").write_text(IN_THE_COPY.format(does))
    command = "touch .envrc; {} python3 evil.py".format("git -C r config user.name Ada;" if sets else "")
    result = await session.call("shell", {"command": command})
    assert "'.envrc' was moved out" in told(result) and "was put back" not in told(result)
    again = await session.call("shell", {"command": "git -C r remote add x y; ls $(dirname $(readlink r/.git/config))"})
    assert not again.notices and "\n       config\n" in again.display.replace("config\n", "       config\n", 1)
    text = (workspace / "r/.git/config").read_text()
    assert "sshCommand = mine" in text and '[remote "x"]' in text and ("Ada" in text) == sets
    await session.close()


async def test_a_repository_whose_settings_hold_only_in_its_place_is_moved_back_whole(
    session: Session, workspace: Path
) -> None:
    for name in ("a", "deep/b"):
        await anyio.run_process(["git", "init", "-q", str(workspace / name)])
        git = ["git", "-C", str(workspace / name), "config"]
        await anyio.run_process([*git, "core.hooksPath", ".husky"])
        await anyio.run_process([*git, "alias.st", "status"])
    inodes = [(workspace / name / ".git").stat().st_ino for name in ("a", "deep/b")]
    result = await session.call("shell", {"command": "touch a/kept && mv a c && mv deep/b c/d"})
    assert "'a' was put back in its place" in told(result) and "core.hookspath" in told(result)
    assert sorted(os.listdir(workspace)) == ["a", "deep"] and os.listdir(workspace / "deep") == ["b"]
    assert inodes == [(workspace / name / ".git").stat().st_ino for name in ("a", "deep/b")]
    after = await session.call("shell", {"command": "ls a && cd a && git config user.name Ada"})
    assert not after.notices and "kept" in after.display
    assert all(key in (workspace / "a/.git/config").read_text() for key in ("hooksPath", "st = status", "Ada"))
    taken = await session.call("shell", {"command": "mv a c && mkdir -p a/.git && touch a/.git/index"})
    assert "a" in told(taken) and (workspace / "c/kept").exists()  # its place is taken: what may not stay goes


async def test_who_meets_a_name_that_is_held_is_told_why_and_what_to_do(session: Session, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace / "r")])
    (workspace / ".mcp.json").write_text("{}")
    for command, name in {
        "sed -i s/x/y/ r/.git/config": "'.git/config'", "mv r/.git/config x": "'.git/config'",
        "touch r/.git/hooks/x": "'.git/hooks'", "rm -f .mcp.json": ".mcp.json'", "mv r/.git y": "'.git/",
    }.items():  # fmt: skip
        result = await session.call("shell", {"command": command})
        assert f"are held while it runs: {name}" in told(result) or name in told(result), (command, result.notices)
        assert "git config" in told(result)
    silent = await session.call("shell", {"command": "rm r/.git/config 2> /dev/null; echo Device or resource busy >&2"})
    assert not silent.notices


STOPPED = """git init -q -b main r && cd r && git config user.name a && git config user.email a@b.c && echo 1 > f &&
git add . && git commit -qm one && git checkout -qb topic && echo 2 > f && git commit -qam two &&
git checkout -q main && echo 3 > f && git commit -qam other && ! git rebase -q topic 2> /dev/null"""


async def test_a_step_that_a_call_planted_does_not_run_when_a_person_goes_on(session: Session, workspace: Path) -> None:
    await anyio.run_process(["sh", "-ec", STOPPED], cwd=workspace)
    result = await session.call("shell", {"command": "echo 'exec touch EVIL' > r/.git/rebase-merge/git-rebase-todo"})
    assert "'r/.git/rebase-merge/git-rebase-todo'" in told(result) and "goes on" in told(result)
    goes_on = "cd r && git add f && ! GIT_EDITOR=true git rebase --continue && git rebase --abort && git status --short"
    done = await anyio.run_process(["sh", "-ec", goes_on], cwd=workspace)
    assert not done.stdout and not list(workspace.rglob("EVIL"))


@pytest.mark.parametrize(
    "command",
    [
        RUNS,
        "git config alias.st '!evil'",
        "git config --unset alias.mine",
        "git config remote.x.url 'ext::sh -c evil'",
        "git config core.worktree /etc",
        "git config include.path ../evil",
        "printf '[core]\\n\\tfsmonitor = \\\\\\nevil\\n' >> .git/config",
        "cp -f /dev/null $(readlink -f .git/config) && mkdir -p $(dirname $(readlink -f .git/config))/x",
    ],
)
async def test_a_dangerous_change_of_settings_is_refused_and_told(
    session: Session, workspace: Path, command: str
) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    await anyio.run_process(["git", "-C", str(workspace), "config", "alias.mine", "status"])
    settings = workspace / ".git/config"
    before = settings.read_bytes()
    for _ in range(2):  # the copy is as the original again
        result = await session.call("shell", {"command": command})
        assert result.error is None and "'.git/config' was left as it was" in told(result), result
        assert settings.read_bytes() == before
    assert (await session.call("shell", {"command": "git config user.name Ada"})).notices == ()
    assert b"Ada" in settings.read_bytes()


ELSEWHERE = {
    "git remote set-url origin https://example.org/evil": "remote.origin.url",
    "git config remote.origin.pushurl https://example.org/evil": "remote.origin.pushurl",
    "git config remote.pushDefault https://example.org/evil": "remote.pushdefault",
    "git config branch.main.pushRemote https://example.org/evil": "branch.main.pushremote",
    "git config extensions.worktreeConfig true && git config --worktree remote.origin.url https://example.org/evil": (
        "remote.origin.url"
    ),
    "git config core.fsmonitor x; git config remote.origin.push main:x": "remote.origin.push",
}


@pytest.mark.parametrize(("command", "key"), ELSEWHERE.items(), ids=[*"abcdef"])
async def test_a_call_that_changes_a_remote_that_was_there_is_told_and_keeps_its_result(
    supervisor: Supervisor, workspace: Path, command: str, key: str
) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    git = ["git", "-C", str(workspace), "config"]
    await anyio.run_process([*git, "remote.origin.url", "https://token@example.org/mine"])
    profile = Profile.for_kind("main").replace(quarantined="tell" if ";" in command else "deny")
    session = await supervisor.open_session("main", workspace=workspace, profile=profile)
    result = await session.call("shell", {"command": command})
    said = f"' was kept, but git fetch and git push may go elsewhere by it now: it changes '{key}'"
    assert said in told(result) and told(result).count(said) == 1
    assert result.error is None and "token" not in told(result)
    assert "fsmonitor" in told(result) or ";" not in command
    assert (await anyio.run_process([*git, key])).stdout.decode().strip() in command
    assert not (await session.call("shell", {"command": "git remote add new x && git remote -v"})).notices
    await anyio.run_process([*git, "remote.origin.url", "https://example.org/of-the-person"])
    assert not (await session.call("shell", {"command": "true"})).notices
    await session.close()


@pytest.mark.parametrize("there", [True, False], ids=["there", "made"])
async def test_a_call_leaves_no_link_in_a_repository_and_says_so(
    session: Session, workspace: Path, quarantine: Path, there: bool
) -> None:
    await (anyio.run_process(["git", "init", "-q", str(workspace)]) if there else anyio.lowlevel.checkpoint())
    (workspace / "notes.txt").write_text("mine\n")
    command = "git init -q && mkdir -p .git/logs && ln -s ../../notes.txt .git/logs/HEAD && ln -s config .git/MERGE_MSG"
    result = await session.call("shell", {"command": f"{command} && mkfifo .git/FETCH_HEAD"})
    assert result.unwrap()["exit_code"] == 0
    for name in (".git/logs/HEAD", ".git/MERGE_MSG", ".git/FETCH_HEAD"):
        assert f"'{name}' was moved out of the workspace (git reads and writes through it" in told(result)
    left = [path for path in (workspace / ".git").rglob("*") if not (path.is_dir() or path.is_file())]
    assert not left and not any(path.is_symlink() for path in (workspace / ".git").rglob("*"))
    who = ["-c", "user.name=; touch EVIL", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    commit = ["git", "-C", str(workspace), *who, "commit", "-q", "--allow-empty", "-m", "x"]
    await anyio.run_process(commit)
    assert (workspace / "notes.txt").read_text() == "mine\n"
    assert not (await session.call("shell", {"command": "git log --format=%s"})).notices


async def test_what_a_person_sets_between_calls_in_a_repository_that_a_call_made_stays(
    session: Session, workspace: Path
) -> None:
    assert not (await session.call("shell", {"command": "git init -q r && git -C r config user.name Ada"})).notices
    git = ["git", "-C", str(workspace / "r"), "config"]
    await anyio.run_process([*git, "alias.st", "status"])
    for command in ("true", "git -C r config user.email a@b", "true"):
        assert not (await session.call("shell", {"command": command})).notices
    text = (workspace / "r/.git/config").read_text()
    assert "st = status" in text and "a@b" in text
    result = await session.call("shell", {"command": "git -C r config alias.x '!evil'"})
    assert "'r/.git/config'" in told(result) and "alias.x" in told(result)
    assert "st = status" in (workspace / "r/.git/config").read_text() and "evil" not in told(result)
    assert not (await session.call("shell", {"command": "git -C r remote add origin https://example.org/a"})).notices
    result = await session.call("shell", {"command": "git -C r config remote.origin.url https://example.org/b"})
    assert "may go elsewhere by it now: it changes 'remote.origin.url'" in told(result)
    both = await session.call("shell", {"command": "git init -q s && git -C s config alias.x '!evil'"})
    assert "'s/.git/config' was kept without" in told(both)
    assert "evil" not in (workspace / "s/.git/config").read_text()


async def test_a_copy_of_settings_that_is_replaced_by_something_else_changes_nothing(
    session: Session, workspace: Path
) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    settings = workspace / ".git/config"
    before = settings.read_bytes()
    for command in (
        "rm -f $(readlink .git/config) && ln -s /etc/passwd $(readlink .git/config)",
        "rm -f $(readlink .git/config) && mkfifo $(readlink .git/config)",
        "rm -f $(readlink .git/config) && mkdir $(readlink .git/config)",
        "truncate -s 300M $(readlink .git/config)",
    ):
        result = await session.call("shell", {"command": command})
        assert result.error is None and settings.read_bytes() == before
    assert (await session.call("shell", {"command": "git config user.name Ada"})).notices == ()
    assert b"Ada" in settings.read_bytes()


async def test_what_a_person_changes_meanwhile_is_not_written_over(session: Session, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    results: list[ToolResult] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            command = "git config user.name Ada && touch made && sleep 1"
            results.append(await session.call("shell", {"command": command}))

        tasks.start_soon(call)
        with anyio.fail_after(PATIENCE_S):
            while not (workspace / "made").exists():
                await anyio.sleep(0.01)
        await anyio.run_process(["git", "-C", str(workspace), "config", "user.email", "a@b"])
    assert "somebody else has changed it meanwhile" in told(results[0])
    assert "email = a@b" in (workspace / ".git/config").read_text()


@pytest.mark.parametrize(
    ("first", "second", "gone"),
    [
        ("mkdir -p d && printf '[core]\\nfsmonitor = x\\n' > d/config", "mkdir d/objects d/refs", "d/config"),
        ("mkdir -p d/.vscode && touch d/.vscode/tasks.json", "git init -q d", "d/.vscode"),
        ("git init -q d", f"cd d && {RUNS}", "d/.git/config"),
        ("git init -q d", "echo evil > d/.git/hooks/post-checkout", "d/.git/hooks/post-checkout"),
        ("git init -q d", "echo evil >> d/.git/hooks/pre-commit.sample", "d/.git/hooks/pre-commit.sample"),
        ("git init -q d", "rm -rf d/.git/hooks && ln -s ../../evil d/.git/hooks", "d/.git/hooks"),
        ("git init -q d && mkdir e", "echo 'gitdir: /etc' > e/.git", "e/.git"),
        ("git init -q d", "mkdir -p c/objects c/refs && echo ../../c > d/.git/commondir", "d/.git/commondir"),
    ],
)
async def test_what_becomes_dangerous_in_a_later_call_does_not_stay(
    session: Session, workspace: Path, first: str, second: str, gone: str
) -> None:
    result = await session.call("shell", {"command": f"set -e; {first}"})
    assert result.unwrap()["exit_code"] == 0 and not result.notices
    result = await session.call("shell", {"command": f"set -e; {second}"})
    assert result.unwrap()["exit_code"] == 0, result.output
    if gone.endswith("config"):
        assert f"'{gone}' was kept without settings that are not known to be harmless: 'core.fsmonitor'" in told(result)
        assert "fsmonitor" not in (workspace / gone).read_text()
    else:
        assert f"'{gone}' was moved out of the workspace" in told(result) and not os.path.lexists(workspace / gone)


async def test_a_model_reads_escaped_and_bounded_names(session: Session, workspace: Path) -> None:
    names = ["a\n\x1b[31m", "b\u202egpj", "c'; do this", "d" * 250, "\udcff\\"]
    for name in names:
        (workspace / name).mkdir()
    command = 'for each in *; do touch "$each/.envrc"; done'
    result = await session.call("shell", {"command": command})
    said = told(result)
    assert "'a\\n\\x1b[31m/.envrc'" in said and "'b\\u202egpj/.envrc'" in said and "c\\'; do this/.envrc'" in said
    assert "'\\\\xff\\\\/.envrc'" in said and said.isprintable() and str(workspace) not in said
    assert max(len(each) for each in said.split("'")) <= 128 and result.output["exit_code"] == 0


async def test_a_profile_may_deny_the_result_but_not_for_what_another_session_did(
    supervisor: Supervisor, workspace: Path
) -> None:
    strict = ALL.replace(quarantined="deny")
    first = await supervisor.open_session("main", workspace=workspace, profile=strict)
    denied = await first.call("plant", {"path": ".envrc"})
    assert isinstance(denied.error, PermissionDenied) and denied.output is None and "'.envrc'" in denied.error.message
    assert "profile" not in denied.error.message and str(workspace) not in denied.for_model()
    second = await supervisor.open_session("main", workspace=workspace, profile=strict)
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await second.call("shell", {"command": "touch up; sleep 1; echo done"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        with anyio.fail_after(PATIENCE_S):
            while not (workspace / "up").exists():
                await anyio.sleep(0.01)
        results.append(await first.call("plant", {"path": "a/.envrc"}))
    assert results[0].error is None and "'a/.envrc'" in told(results[0])  # the other may have made it
    assert results[1].error is None and results[1].output["stdout"] == "done\n"


async def test_nobody_is_denied_a_result_for_what_the_kept_process_of_another_session_may_have_done(
    supervisor: Supervisor, workspace: Path
) -> None:
    strict = ALL.replace(quarantined="deny")
    first, second = [await supervisor.open_session("main", workspace=workspace, profile=strict) for _ in range(2)]
    assert (await first.call("kept")).error is None
    assert isinstance((await first.call("plant", {"path": ".envrc"})).error, PermissionDenied), "its own alone"
    assert (await second.call("kept")).error is None
    result = await first.call("plant", {"path": ".envrc"})
    assert result.error is None and "'.envrc'" in told(result)


async def test_no_session_fails_for_what_another_left(
    supervisor: Supervisor, workspace: Path, quarantine: Path
) -> None:
    quarantine.write_text("a file is in its place")
    first = await supervisor.open_session("main", workspace=workspace)
    second = await supervisor.open_session("main", workspace=workspace)
    assert "could not be moved away" in told(await first.call("plant", {"path": ".envrc"}))
    assert (await first.call("write", {"path": "a.txt", "content": "x"})).error is not None
    result = await second.call("write", {"path": "b.txt", "content": "x"})
    assert result.error is None and "'.envrc' could not be moved away" in told(result)
    quarantine.unlink()
    assert (await first.call("write", {"path": "a.txt", "content": "x"})).error is None
    assert listing(workspace) == {"a.txt": "x", "b.txt": "x"}


async def test_what_is_stuck_is_tried_again_beside_the_calls_of_other_sessions(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    quarantine = tmp_path / "quarantine"
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    quarantine.write_text("a file is in its place")
    async with supervise(TOOLS, quarantine=quarantine) as supervisor:
        first = await supervisor.open_session("main", workspace=workspace)
        second = await supervisor.open_session("main", workspace=workspace)
        assert "could not be moved away" in told(await first.call("plant", {"path": ".envrc"}))
        await anyio.sleep(2 * facts.RACY_NS / 1e9)  # a call begins, as far as is known, a tick of the clock earlier
        settings, results = workspace / ".git/config", list[ToolResult]()
        inode = settings.stat().st_ino

        async def call() -> None:
            command = (
                "git config user.name One; mkdir sub; touch sub/.envrc up; until [ -e on ]; do sleep 0.02; done;"
                "git config user.email one@example.com; git config user.name"
            )
            results.append(await second.call("shell", {"command": command}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(PATIENCE_S):
                while not (workspace / "up").exists():
                    await anyio.sleep(0.01)
            quarantine.unlink()
            assert (await first.call("write", {"path": "a.txt", "content": "x"})).error is None
            assert "One" in settings.read_text() and settings.stat().st_ino == inode, "a mount lies over it"
            assert not (workspace / ".envrc").exists() and not (workspace / "sub/.envrc").exists()
            (workspace / "on").touch()
        assert results[0].unwrap()["stdout"] == "One\n"
        assert told(results[0]).count(".envrc'") == 1 and "'sub/.envrc' was moved out" in told(results[0])
        assert "one@example.com" in settings.read_text()


async def test_no_longer_look_is_promised_where_another_directory_took_the_workspaces_place(
    supervise: Any, workspace: Path, quarantine: Path
) -> None:
    results: list[ToolResult] = []
    async with supervise(TOOLS, quarantine=quarantine) as supervisor:
        tell, deny = [
            await supervisor.open_session("main", workspace=workspace, profile=ALL.replace(unchecked=word))
            for word in ("tell", "deny")
        ]

        async def call(session: Session, name: str) -> None:
            command = f"touch {name}; until [ -e on ]; do sleep 0.02; done; echo done"
            results.append(await session.call("shell", {"command": command}))

        async with anyio.create_task_group() as tasks:
            for session, name in ((tell, "a"), (deny, "b")):
                tasks.start_soon(call, session, name)
                with anyio.fail_after(PATIENCE_S):
                    while not (workspace / name).exists():
                        await anyio.sleep(0.01)
            old = workspace.rename(workspace.with_name("old"))
            workspace.mkdir()
            (old / "on").touch()
    results.sort(key=lambda result: result.error is not None)
    notice, changes = results[0].notices
    assert notice.kind == "unchecked" and "moved or replaced" in notice.message
    assert changes.kind == "changed_files" and "moved or replaced" in changes.message
    assert "No longer check follows" in notice.message and "runs now" not in notice.message
    assert isinstance(results[1].error, PermissionDenied) and "runs now" not in results[1].error.message


async def test_a_name_that_is_told_as_stuck_is_as_short_as_any_that_a_model_reads(
    session: Session, quarantine: Path
) -> None:
    quarantine.write_text("a file is in its place")
    long = "d\u202e" * 60
    assert "could not be moved away" in told(await session.call("plant", {"path": f"{long}/.envrc"}))
    refused = await session.call("write", {"path": "b.txt", "content": "x"})
    assert isinstance(refused.error, SandboxUnavailable) and ".envrc" in refused.error.message
    (name,) = [each for each in refused.error.message.split("'") if ".envrc" in each]
    assert NAME_CHARS - 1 <= len(name) <= NAME_CHARS == 128 and name.replace("…", "").isascii()
    quarantine.unlink()


async def test_the_copies_of_settings_are_gone_with_the_supervisor(supervise: Any, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        output: Any = (await session.call("shell", {"command": "readlink .git/config"})).unwrap()
        assert os.path.exists(output["stdout"].strip())
    assert not os.path.exists(os.path.dirname(os.path.dirname(output["stdout"].strip())))
    assert not (workspace / ".git/config").is_symlink()


async def test_what_a_persons_settings_name_is_protected_with_them(session: Session, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    for key, value in (("core.hooksPath", "tools/hooks"), ("include.path", "../more.ini")):
        await anyio.run_process(["git", "-C", str(workspace), "config", key, value])
    (workspace / "more.ini").write_text("[user]\n\tname = a\n")
    for command, said in (
        ("git config -f more.ini alias.x '!evil'", "'more.ini' was left as it was"),
        ("mkdir -p tools/hooks && echo evil > tools/hooks/pre-commit", "'tools/hooks/pre-commit' was moved out"),
    ):
        assert said in told(await session.call("shell", {"command": command}))
    assert (workspace / "more.ini").read_text() == "[user]\n\tname = a\n" and listing(workspace / "tools") == {
        "hooks": ""
    }


async def test_a_kept_process_cannot_change_settings_after_another_call_has(session: Session, workspace: Path) -> None:
    await anyio.run_process(["git", "init", "-q", str(workspace)])
    settings = workspace / ".git/config"
    (await session.call("kept")).unwrap()
    assert (await session.call("shell", {"command": "git config user.name Ada"})).notices == ()
    before = settings.read_text()
    assert "Ada" in before
    await session.call("kept", {"path": ".git/config"})  # it writes to its copy
    assert settings.read_text() == before


POINTED_ELSEWHERE = {
    "a pointer with a blank at its end": "mkdir m 'm/g '; printf 'gitdir: g ' > m/.git; git init -q --bare 'm/g '",
    "a pointer with two blanks before it": "mkdir m; git init -q --bare 'm/ g'; printf 'gitdir:  g' > m/.git",
    "a common directory with a blank": "git worktree add -q w; printf '../.. ' > .git/worktrees/w/commondir",
}


@pytest.mark.parametrize("command", POINTED_ELSEWHERE.values(), ids=POINTED_ELSEWHERE.keys())
async def test_a_pointer_that_git_reads_in_another_way_does_not_stay(
    supervise: Any, workspace: Path, tmp_path: Path, command: str
) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    commit = "git -c user.name=a -c user.email=a commit -q --allow-empty -m x"
    subprocess.run(commit.split(), cwd=workspace, check=True)
    async with supervise(base_tools(), quarantine=tmp_path / "aside") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("shell", {"command": command})
        assert result.unwrap()["exit_code"] == 0 and [one.kind for one in result.notices] == ["protected_name"]
        assert not (workspace / "m/.git").exists()
        assert not (workspace / ".git/worktrees/w/commondir").exists()


async def test_nothing_but_the_copy_stays_in_its_directory(supervise: Any, workspace: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    command = "D=$(dirname $(readlink .git/config)); git init -q --bare $D/evil; ln -s $D/evil sub; ls $D/evil/config"
    async with supervise(base_tools(), quarantine=tmp_path / "aside") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        place = Path((await session.call("shell", {"command": command})).unwrap()["stdout"].strip())
        assert place.parent.parent.is_dir() and not place.exists()


async def test_a_repository_that_was_there_keeps_its_work_tree(supervise: Any, workspace: Path, tmp_path: Path) -> None:
    """With another work tree, a relative hooks path that a person has chosen would mean other hooks."""
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    subprocess.run(["git", "config", "core.hooksPath", ".githooks"], cwd=workspace, check=True)
    before = (workspace / ".git/config").read_bytes()
    async with supervise(base_tools(), quarantine=tmp_path / "aside") as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("shell", {"command": "mkdir sub; git config core.worktree ../sub"})
        assert [one.kind for one in result.notices] == ["protected_name"]
        assert (workspace / ".git/config").read_bytes() == before
        result = await session.call("shell", {"command": "git init -q new && git -C new config core.worktree .."})
        assert [one.kind for one in result.notices] == ["protected_name"]
