"""Artifacts of the files that a call changes in its workspace, whatever way it takes."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolcell import Session, Supervisor, ToolContext, base_tools, load_config, tool

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


@tool(needs={"write"})
def opens(ctx: ToolContext, path: str, text: str) -> str:
    """Write with open(), not with the handle."""
    with open(ctx.workspace_root / path, "w") as file:
        file.write(text)
    return "written"


@tool(needs={"write"})
def many(ctx: ToolContext, count: int) -> int:
    """Make many files."""
    for number in range(count):
        (ctx.workspace_root / f"{number:04}.txt").write_text("x")
    return count


@pytest.fixture
async def main(supervise: Any, workspace: Path) -> AsyncIterator[Session]:
    async with supervise([opens, many, *base_tools()], file_artifacts=True) as supervisor:
        yield await supervisor.open_session("main", workspace=workspace)


async def changed(session: Session, name: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call(name, arguments)
    return {each.path: each for each in result.artifacts}


async def test_files_of_shell_and_of_open_are_artifacts_with_size_digest_and_diff(
    main: Session, workspace: Path
) -> None:
    (workspace / "kept.txt").write_text("one\ntwo\n")
    (workspace / "gone.txt").write_text("bye\n")
    (workspace / "same.txt").write_text("same\n")
    made = await changed(main, "shell", command="mkdir d; echo new > d/e.txt; echo three >> kept.txt; rm gone.txt")
    assert {path: each.kind for path, each in made.items()} == {
        "d/e.txt": "created",
        "gone.txt": "deleted",
        "kept.txt": "modified",
    }
    assert made["d/e.txt"].size == 4
    assert made["d/e.txt"].digest == f"sha256:{hashlib.sha256(b'new' + bytes([10])).hexdigest()}"
    assert made["kept.txt"].diff == "--- a/kept.txt\n+++ b/kept.txt\n@@ -1,2 +1,3 @@\n one\n two\n+three"
    assert made["gone.txt"].diff is not None and "-bye" in made["gone.txt"].diff
    opened = await changed(main, "opens", path="same.txt", text="same\nand more\n")
    assert [(each.path, each.kind) for each in opened.values()] == [("same.txt", "modified")]
    assert "+and more" in opened["same.txt"].diff
    assert main.artifacts[-1].path == "same.txt"


async def test_a_handle_and_the_look_make_one_artifact_of_one_file(main: Session) -> None:
    result = await main.call("write", {"path": "a.txt", "content": "x\n"})
    (artifact,) = result.artifacts
    assert (artifact.path, artifact.kind, artifact.size) == ("a.txt", "created", 2)
    assert artifact.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x"


async def test_a_call_that_fails_has_the_artifacts_too(main: Session) -> None:
    result = await main.call("shell", {"command": "echo x > left.txt; sleep 9", "timeout_s": 0.2})
    assert [each.path for each in result.artifacts] == ["left.txt"]
    made = await changed(main, "shell", command="head -c 100000 /dev/urandom > big.bin; ln -s /etc/passwd link")
    assert [(each.path, each.size, each.diff) for each in made.values()] == [("big.bin", 100_000, None)]


async def test_the_artifacts_of_one_call_are_bounded_and_the_result_says_so(main: Session) -> None:
    result = await main.call("many", {"count": 250})
    assert len(result.artifacts) == 200
    assert [notice.message for notice in result.notices] == ["The call changed 250 files. The first 200 are artifacts."]


async def test_a_call_that_waits_for_another_has_not_its_files(main: Session) -> None:
    calls = [("shell", {"command": f"sleep 0.1; echo x > {name}.txt"}) for name in "abc"]
    results = await main.call_many(calls)
    assert [[each.path for each in result.artifacts] for result in results] == [["a.txt"], ["b.txt"], ["c.txt"]]


async def test_a_worker_changes_nothing_and_looks_at_nothing(main: Session, workspace: Path) -> None:
    worker = await main.open_child("worker")
    (workspace / "a.txt").write_text("x")
    assert (await worker.call("read", {"path": "a.txt"})).artifacts == []


async def test_a_settings_file_may_ask_for_it(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "toolcell.toml").write_text("[supervisor]\nfile_artifacts = true\n")
    async with Supervisor(base_tools(), config=load_config(file=tmp_path / "toolcell.toml")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert list(await changed(session, "shell", command="echo x > a.txt")) == ["a.txt"]


async def test_without_the_option_only_handles_make_artifacts(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    assert await changed(session, "shell", command="echo x > a.txt") == {}


TOOLS = base_tools()
