"""Long outputs in files: where they go, which are removed, and what a full disk leaves."""

import json
import stat
import sys
from pathlib import Path

import anyio
import pytest

from toolcell import ExecutionError, ToolResult
from toolcell.dispatch.overflow import MOST_JSON, NoRoom, Overflow

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


def long(letter: str = "x", length: int = 1_000) -> ToolResult:
    return ToolResult(output=letter * length)


def test_a_result_is_surely_short_by_the_size_of_its_frame() -> None:
    overflow = Overflow(100 * MOST_JSON)
    assert overflow.sure_bytes == 100


async def test_a_result_that_a_model_can_take_and_an_error_stay_as_they_are(workspace: Path) -> None:
    overflow = Overflow(1_000)
    short = long(length=998)  # and two quotes
    failed = ToolResult(output="x" * 5_000, error=ExecutionError(message="no"))
    assert await overflow.spilled(short, workspace) is short
    assert await overflow.spilled(failed, workspace) is failed
    assert list(workspace.iterdir()) == []


async def test_a_long_output_is_whole_in_the_workspace_where_git_does_not_see_it(workspace: Path) -> None:
    overflow = Overflow(100)
    saved: list[tuple[Path, str]] = []
    overflow.on_saved = lambda root, path: saved.append((root, path))
    [artifact] = (await overflow.spilled(long(), workspace)).artifacts
    file = workspace / artifact.path
    assert file.read_text() == "x" * 1_000 and stat.S_IMODE(file.stat().st_mode) & 0o022 == 0
    assert (artifact.kind, artifact.size, artifact.media_type) == ("output", 1_000, "text/plain")
    assert (workspace / ".toolcell/.gitignore").read_text() == "*\n"
    assert saved == [(workspace, artifact.path)]


async def test_data_is_written_as_json_in_lines(workspace: Path) -> None:
    [artifact] = (await Overflow(10).spilled(ToolResult(output=[1, {"a": "é"}] * 5), workspace)).artifacts
    assert artifact.media_type == "application/json"
    text = (workspace / artifact.path).read_text()
    assert json.loads(text) == [1, {"a": "é"}] * 5 and text.count("\n") > 5


async def test_without_a_workspace_the_file_is_in_a_store_that_goes_at_the_end() -> None:
    overflow = Overflow(100)
    [artifact] = (await overflow.spilled(long(), None)).artifacts
    assert artifact.kind == "stored" and artifact.read() == b"x" * 1_000
    overflow.close()
    with pytest.raises(FileNotFoundError):
        artifact.read()


@pytest.mark.parametrize("what", ["file", "link"])
async def test_what_a_tool_puts_in_the_way_sends_the_file_to_the_store(
    workspace: Path, tmp_path: Path, what: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    if what == "file":
        (workspace / ".toolcell").write_text("mine")
    else:
        (workspace / ".toolcell").symlink_to(tmp_path / "elsewhere")
    overflow = Overflow(100)
    [artifact] = (await overflow.spilled(long(), workspace)).artifacts
    assert artifact.kind == "stored" and list((tmp_path / "elsewhere").iterdir()) == []
    overflow.close()


async def test_only_its_own_files_are_known_as_such(workspace: Path) -> None:
    overflow = Overflow(100)
    [artifact] = (await overflow.spilled(long(), workspace)).artifacts
    assert overflow.is_own(artifact.path, artifact.size)
    assert overflow.is_own(".toolcell/.gitignore", 2) and not overflow.is_own(".toolcell/.gitignore", 3)
    forged = ".toolcell/outputs/0123456789abcdef.txt"
    assert not overflow.is_own(forged, 5), "a tool may write a file of such a name"
    assert overflow.is_own(forged, None), "it may have been removed by another supervisor"
    assert not overflow.is_own(".toolcell/outputs/notes.txt", None) and not overflow.is_own("a.txt", None)


async def test_the_oldest_files_make_room(workspace: Path) -> None:
    overflow = Overflow(100, keep_bytes=2_500)
    files = [workspace / (await overflow.spilled(long(letter), workspace)).artifacts[0].path for letter in "abc"]
    assert [file.exists() for file in files] == [False, True, True]
    assert not overflow.is_own(str(files[0].relative_to(workspace)), 1_000)


async def test_a_growing_file_takes_room_of_older_ones_and_none_of_those_that_grow(workspace: Path) -> None:
    overflow = Overflow(100, keep_bytes=2_500)
    kept = workspace / (await overflow.spilled(long(), workspace)).artifacts[0].path
    first, second = overflow.new_file(workspace), overflow.new_file(workspace)
    first.write(b"a" * 1_500)
    assert kept.exists()
    second.write(b"b" * 1_000)
    assert not kept.exists()
    with pytest.raises(NoRoom):
        second.write(b"b")
    artifact = first.closed("stdout")
    assert (artifact.size, artifact.kind) == (1_500, "stdout") and artifact.read() == b"a" * 1_500
    second.write(b"b" * 10)
    assert not (workspace / first.path).exists(), "it is complete, so it is the oldest now"
    assert second.closed("stderr").read() == b"b" * 1_010


def test_a_file_that_nothing_was_written_to_can_be_removed(workspace: Path) -> None:
    overflow = Overflow(100)
    file = overflow.new_file(workspace)
    assert file.in_workspace and (workspace / file.path).exists()
    file.discard()
    assert not (workspace / file.path).exists()


FULL = """
import json, resource, signal, sys
from pathlib import Path

import anyio

from toolcell import ToolResult
from toolcell.dispatch.overflow import Overflow

workspace, store = Path(sys.argv[1]), Path(sys.argv[2])

async def main():
    overflow = Overflow(100)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # a write that is cut short, as on a full disk
    results = [ToolResult(output="x" * 200_000), ToolResult(output="x" * 1_000)]
    spilled = [await overflow.spilled(result, place) for result in results for place in (workspace, None)]
    print(json.dumps([[artifact.size for artifact in result.artifacts] for result in spilled]))
    for root in (workspace, store):
        print([file.stat().st_size for file in root.rglob("*") if file.is_file() and file.name != ".gitignore"])
    overflow.close()

anyio.run(main)
"""


async def test_no_part_of_an_output_that_could_not_be_written_whole_stays(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    store = tmp_path / "store"
    command = [sys.executable, "-I", "-c", FULL, str(workspace), str(store)]
    done = await anyio.run_process(command, check=False, env={"TMPDIR": str(store)})
    assert done.returncode == 0, done.stderr.decode()
    spilled, in_workspace, in_store = map(json.loads, done.stdout.splitlines())
    assert spilled == [[], [], [1_000], [1_000]], "the limit is what stopped the first two"
    assert in_workspace == in_store == [1_000], "parts"


FAILING = """
import json, resource, signal, sys
from contextlib import suppress
from pathlib import Path

import anyio

from toolcell import ToolResult
from toolcell.dispatch.overflow import Overflow

workspace = Path(sys.argv[1])

async def main():
    overflow = Overflow(100, keep_bytes=300_000)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    kept = workspace / (await overflow.spilled(ToolResult(output="x" * 1_000), workspace)).artifacts[0].path
    for _ in range(3):
        await overflow.spilled(ToolResult(output="x" * 200_000), workspace)
    found = [kept.exists()]
    file = overflow.new_file(workspace)
    for _ in range(3):
        with suppress(OSError):
            file.write(b"x" * 200_000)
    print(json.dumps([*found, kept.exists(), file.closed("stdout").size]))
    overflow.close()

anyio.run(main)
"""


async def test_what_could_not_be_written_takes_no_room_from_what_was(workspace: Path) -> None:
    done = await anyio.run_process([sys.executable, "-I", "-c", FAILING, str(workspace)], check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == [True, True, 50_000]
