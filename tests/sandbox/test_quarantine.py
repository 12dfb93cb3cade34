"""Where protected names go that a call made, and how much of them stays."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ordinary import USER

from toolcell_sandbox.trees.quarantine import BLOCK_BYTES, MOST_AGE_S, Quarantine
from toolcell_sandbox.trees.walker import Copies, Root

SHELF = BLOCK_BYTES  # of each entry, besides what it holds
MIB = 1024 * 1024


def taken(quarantine: Quarantine, directory: Path, size: int = 4) -> Path:
    """Make a file in the directory, and take it."""
    path = directory / ".envrc"
    path.write_bytes(b"evil" + os.urandom(size - 4))
    info = path.stat()
    with Root(str(directory)) as root:
        return Path(quarantine.take(root, ".envrc", (info.st_dev, info.st_ino), Copies()))


def held(quarantine: Quarantine) -> int:
    """The bytes of all files in it."""
    return sum(path.stat().st_size for path in Path(quarantine.made).rglob("*") if path.is_file())


@pytest.fixture
def in_memory() -> Iterator[Path]:
    path = Path("/dev/shm") / f"toolcell-test-{os.getpid()}"
    path.mkdir(0o700)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


@pytest.mark.parametrize("given", [True, False])
def test_it_is_made_again_where_somebody_has_removed_it(tmp_path: Path, cache: Path, *, given: bool) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    quarantine = Quarantine(str(tmp_path / "a/quarantine") if given else None)
    for _ in range(2):
        place = taken(quarantine, workspace)
        assert place.read_text() == "evil" and not os.listdir(workspace)
        assert place.is_relative_to(quarantine.made) and stat.S_IMODE(os.stat(quarantine.made).st_mode) == 0o700
        shutil.rmtree(quarantine.made)


@pytest.mark.parametrize("place", ["quarantine", "."])
def test_one_that_lies_in_the_workspace_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(OSError, match="the quarantine lies in the workspace"):
        taken(Quarantine(str(tmp_path / place)), tmp_path)
    assert (tmp_path / ".envrc").read_text() == "evil"


def test_it_is_on_a_disk_though_temporary_files_are_in_memory(
    tmp_path: Path, in_memory: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(in_memory))
    assert taken(Quarantine(), work).is_relative_to(cache / "toolcell" / "quarantine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_memory))
    place = taken(Quarantine(), work)
    assert place.is_relative_to(f"/var/tmp/toolcell-quarantine-{os.geteuid()}")
    shutil.rmtree(place.parent)
    assert os.listdir(in_memory) == []


def test_one_in_the_workspace_has_another_place_by_default(tmp_path: Path, cache: Path) -> None:
    place = taken(Quarantine(), cache.parent)
    assert not place.is_relative_to(tmp_path) and place.read_bytes() == b"evil"
    shutil.rmtree(place.parent)


@pytest.mark.root
@pytest.mark.parametrize("how", ["another's", "writable", "a link"])
def test_a_place_that_others_can_change_is_not_taken(tmp_path: Path, cache: Path, how: str) -> None:
    """As with sudo, which may keep HOME, or in a cache directory that a group shares."""
    (tmp_path / "elsewhere").mkdir(0o700)
    match how:
        case "another's":
            cache.mkdir(0o700)
            os.chown(cache, USER, USER)
        case "writable":
            cache.mkdir()
            cache.chmod(0o770)
        case _:
            (cache / "toolcell").mkdir(0o700, parents=True)
            os.symlink(tmp_path / "elsewhere", cache / "toolcell" / "quarantine")
            os.lchown(cache / "toolcell" / "quarantine", USER, USER)
            os.chown(tmp_path / "elsewhere", USER, USER)
    work = tmp_path / "work"
    work.mkdir()
    place = taken(Quarantine(), work)
    assert not place.is_relative_to(tmp_path)
    shutil.rmtree(place.parent)


@given(sizes=st.lists(st.integers(4, MIB), min_size=1, max_size=12))
def test_it_never_holds_more_than_its_bound_and_tells_what_it_dropped(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    """For every sequence of sizes: the oldest go first, each is told once, and what is larger stays, renamed."""
    top = tmp_path_factory.mktemp("bounds")
    quarantine = Quarantine(str(top / "quarantine"), most_bytes=MIB)
    kept: list[Path] = []
    for size in sizes:
        (top / "work").mkdir(exist_ok=True)
        place = taken(quarantine, top / "work", size)
        dropped = {Path(path) for path in quarantine.dropped()}
        assert held(quarantine) <= MIB and place.stat().st_size == size
        assert dropped == {path.parent for path in kept[: len(dropped)]} and not any(map(os.path.exists, dropped))
        kept = kept[len(dropped) :]
        if place.is_relative_to(quarantine.made):
            kept.append(place)
        else:
            assert place.name.startswith("toolcell-quarantined-") and size > MIB - 2 * BLOCK_BYTES
        assert all(path.exists() for path in kept)
    shutil.rmtree(top)


def test_many_small_files_and_a_deep_tree_count_as_blocks(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path / "quarantine"), most_bytes=MIB)
    work = tmp_path / "work"
    work.mkdir()
    for _ in range(2 * MIB // (SHELF + BLOCK_BYTES)):
        taken(quarantine, work)
    assert len(os.listdir(quarantine.made)) == MIB // (SHELF + BLOCK_BYTES)
    deep = work / ".vscode"
    deep.mkdir()
    fd = os.open(deep, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("a" * 200, dir_fd=fd)
        below = os.open("a" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    info = deep.stat()
    with Root(str(work)) as root:
        place = Path(quarantine.take(root, ".vscode", (info.st_dev, info.st_ino), Copies()))
    assert place.parent == work, "80 kB of names take 1.6 MiB"
    shutil.rmtree(quarantine.made)


def test_entries_are_dropped_by_age_and_other_files_never(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    quarantine = Quarantine(str(tmp_path / "quarantine"))
    places = [taken(quarantine, work) for _ in range(3)]
    own = Path(quarantine.made) / "abcdefgh"
    own.mkdir()
    for old in (places[0].parent, places[1].parent, own):
        then = os.stat(old).st_mtime - MOST_AGE_S - 60
        os.utime(old, (then, then))
    later = Quarantine(quarantine.made)
    later.expire()
    assert set(later.dropped()) == {str(place.parent) for place in places[:2]}
    assert [place.exists() for place in places] == [False, False, True] and own.is_dir()


def test_supervisors_of_one_user_share_the_bound(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    first, second = (Quarantine(str(tmp_path / "quarantine"), most_bytes=MIB) for _ in range(2))
    taken(first, work, MIB // 3)
    for _ in range(4):
        taken(second, work, MIB // 3)
    assert held(second) <= MIB and len(os.listdir(second.made)) == 2


@pytest.mark.parametrize("target", ["nothing", "a directory of the user"])
def test_a_link_in_a_shared_place_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Else another user chooses where it is: in a directory of theirs, which they can replace, or in ~/.ssh."""
    shared, workspace = tmp_path / "shared", tmp_path / "workspace"
    for path in (shared, workspace, tmp_path / "a directory of the user"):
        path.mkdir(mode=0o700)
    (shared / "first").symlink_to(tmp_path / target)
    places = [str(shared / "first"), str(shared / "second")]
    monkeypatch.setattr("toolcell_sandbox.trees.quarantine._default_places", lambda: iter(places))
    assert taken(Quarantine(), workspace).is_relative_to(shared / "second")
    assert not (tmp_path / "nothing").exists() and not any((tmp_path / "a directory of the user").iterdir())


def test_without_any_place_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, or one that is read-only: what a call planted never stays under its name."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(
        "toolcell_sandbox.trees.quarantine._default_places", lambda: iter([str(tmp_path / "file/quarantine")])
    )
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    place = taken(Quarantine(), workspace)
    assert [place.name] == os.listdir(workspace) and place.name.startswith("toolcell-quarantined-")
