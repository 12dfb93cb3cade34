"""Artifacts for the files that a call changes, whatever it writes them with."""

import ctypes
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from toolcell import Capability, Profile, Session, Supervisor, ToolContext, ToolResult, base_tools, tool
from toolcell_sandbox.kernel import inotify
from toolcell_tools import Artifact

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
MAIN = Profile.for_kind("main")


@tool(needs={Capability.WRITE})
def scribble(ctx: ToolContext) -> None:
    """Write with open()."""
    with (Path(ctx.workspace_root) / "a.txt").open("a") as file:
        file.write("two\n")


@tool(needs={Capability.WRITE})
def lying(ctx: ToolContext) -> ToolResult:
    """Report a file of another digest and kind."""
    (Path(ctx.workspace_root) / "plot.png").write_bytes(b"png")
    return ToolResult(artifacts=[Artifact("plot.png", "plot", "sha256:0", 99, "image/png")])


@tool(needs={Capability.WRITE})
def broken(ctx: ToolContext) -> None:
    """Write, then raise."""
    (Path(ctx.workspace_root) / "half").touch()
    raise LookupError


@tool(needs={Capability.WRITE}, annotations=None)
def slow(name: str, ctx: ToolContext) -> None:
    """Write a file, and wait for another."""
    import time

    (Path(ctx.workspace_root) / name).touch()
    while len(list(Path(ctx.workspace_root).glob("slow*"))) < 2:
        time.sleep(0.01)


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: str, nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    async with Supervisor([*base_tools(), scribble, lying, broken, slow]) as made:
        yield made


@pytest.fixture
async def session(supervisor: Supervisor, tmp_path: Path) -> AsyncIterator[Session]:
    opened = await supervisor.open_session("main", workspace=tmp_path)
    yield opened
    if opened.state == "active":
        await opened.close()


def made(result: ToolResult) -> dict[str, str]:
    return {each.path: each.kind for each in result.artifacts}


async def test_open_and_commands_are_reported_with_size_digest_and_diff(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    result = await session.call("scribble", {})
    assert (result.error, result.notices) == (None, ())
    (changed,) = result.artifacts
    assert (changed.path, changed.kind, changed.size) == ("a.txt", "modified", 8)
    assert changed.digest == Artifact.from_bytes("a.txt", b"one\ntwo\n", "text/plain").digest
    assert changed.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+two"
    moved = await session.call("shell", {"command": "mv a.txt b.txt; mkdir d; seq 3 > d/c; ln -s b.txt l"})
    assert made(moved) == {"a.txt": "deleted", "b.txt": "created", "d/c": "created", "l": "created"}
    assert moved.told_changes() == "deleted a.txt\ncreated b.txt (8 bytes)\ncreated d/c (6 bytes)\ncreated l"
    assert made(await session.call("shell", {"command": "cat b.txt; ls"})) == {}
    left = await session.close()
    assert {each.path for each in left.artifacts} == {"a.txt", "b.txt", "d/c", "l"}
    assert not any(each.diff for each in left.artifacts)


async def test_what_a_tool_reports_is_corrected_and_keeps_its_own_words(session: Session) -> None:
    (plot,) = (await session.call("lying", {})).artifacts
    assert (plot.kind, plot.media_type, plot.size) == ("plot", "image/png", 3)
    assert plot.digest == Artifact.from_bytes("plot.png", b"png", "image/png").digest
    (written,) = (await session.call("write", {"path": "w", "content": "x\n"})).artifacts
    assert (written.kind, written.diff) == ("created", "--- a/w\n+++ b/w\n@@ -0,0 +1 @@\n+x")


async def test_a_failed_call_reports_its_files(session: Session) -> None:
    result = await session.call("broken", {})
    assert result.is_error and made(result) == {"half": "created"}


async def test_changes_of_others_between_calls_are_not_reported(session: Session, tmp_path: Path) -> None:
    await session.call("scribble", {})
    (tmp_path / "mine").touch()
    assert made(await session.call("scribble", {})) == {"a.txt": "modified"}


async def test_overlapping_calls_report_each_others_changes(supervisor: Supervisor, tmp_path: Path) -> None:
    results: list[ToolResult] = []

    async def call(name: str) -> None:
        session = await supervisor.open_session("main", workspace=tmp_path)
        results.append(await session.call("slow", {"name": name}))
        await session.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "slow1")
        tasks.start_soon(call, "slow2")
    assert any(made(result).keys() == {"slow1", "slow2"} for result in results)
    assert {path for result in results for path in made(result)} == {"slow1", "slow2"}


async def test_without_a_queue_of_the_kernel_the_files_are_found_by_listing(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of the user holds for all programs; to reach it here would disturb them."""

    def refuse(*_arguments: object) -> int:
        ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(inotify, "_init", refuse)
    (tmp_path / "a.txt").write_text("one\n")
    for _ in range(2):
        result = await session.call("scribble", {})
        assert (made(result), result.notices) == ({"a.txt": "modified"}, ())


async def test_more_changes_than_the_profile_lists_are_counted(supervisor: Supervisor, tmp_path: Path) -> None:
    few = MAIN.replace(changed_files=3)
    session = await supervisor.open_session("main", workspace=tmp_path, profile=few)
    result = await session.call("shell", {"command": "mkdir -p .git/objects; touch .git/objects/o; touch a b c d"})
    await session.close()
    assert made(result) == dict.fromkeys("abc", "created")
    (notice,) = result.notices
    assert notice.kind == "changed_files"
    assert notice.message == "The call changed 5 files, and the result lists 3 of them."


async def test_the_directory_of_long_outputs_hides_nothing(session: Session, tmp_path: Path) -> None:
    """Neither files that a call puts there nor, with them, the supervisor's own."""
    command = "mkdir -p .toolcell/outputs; cd .toolcell; touch x outputs/0123456789abcdef.txt; seq 200000"
    result = await session.call("shell", {"command": command})
    assert list((tmp_path / ".toolcell" / "outputs").iterdir()), "the output was saved"
    created = {path for path, kind in made(result).items() if kind == "created"}
    assert created == {".toolcell/x", ".toolcell/outputs/0123456789abcdef.txt"}
    assert made(await session.call("shell", {"command": "touch a"})) == {"a": "created"}


async def test_a_profile_turns_diffs_or_all_of_it_off(supervisor: Supervisor, tmp_path: Path) -> None:
    for changes, paths in (("list", ["a.txt"]), ("off", [])):
        profile = MAIN.replace(changes=changes)
        session = await supervisor.open_session("main", workspace=tmp_path, profile=profile)
        result = await session.call("scribble", {})
        await session.close()
        assert [each.path for each in result.artifacts] == paths
        assert not any(each.diff for each in result.artifacts)


async def test_a_session_that_may_not_write_is_not_looked_at(supervisor: Supervisor, tmp_path: Path) -> None:
    tracked = supervisor._runtime.changes  # pyright: ignore[reportPrivateUsage]
    before = len(tracked._roots)  # pyright: ignore[reportPrivateUsage]
    session = await supervisor.open_session("worker", workspace=tmp_path)
    await session.call("read", {"path": "absent"})
    await session.close()
    assert len(tracked._roots) == before  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("field", "value"), [("changes", "some"), ("changed_files", 0), ("changed_files", True)])
def test_only_known_options_are_taken(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"Profile.{field} is not"):
        MAIN.replace(**{field: value})


def test_a_child_reports_at_least_what_its_parent_does() -> None:
    from toolcell.sessions.grants import within

    child = within(MAIN.replace(changes="off", changed_files=1), MAIN)
    assert (child.changes, child.changed_files) == ("diff", 200)
