"""Which directories show a part of another one: by path, by link, by mount."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolcell.store.overlap import links_to, overlaps

IN_A_NAMESPACE = """
import ctypes, os, sys
from pathlib import Path
from toolcell.store.directory import StateDirectory
from toolcell.errors import UsageError
libc = ctypes.CDLL(None, use_errno=True)
def call(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
uid, gid = os.getuid(), os.getgid()
if uid:
    call(libc.unshare(0x10000000 | 0x00020000))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
else:
    call(libc.unshare(0x00020000))
call(libc.mount(None, b"/", None, 0x44000, None))
top = Path(sys.argv[1])
for name in ("state", "project/inner", "elsewhere", "upper", "work", "merged"):
    (top / name).mkdir(parents=True)
def bind(source, target):
    call(libc.mount(str(source).encode(), str(target).encode(), None, 0x1000, None))
def refused(directory):
    try:
        StateDirectory(top / "state").require_apart(str(directory), "the workspace")
    except UsageError:
        return True
    return False
print(refused(top / "project"), refused(top / "elsewhere"))
bind(top / "state", top / "project" / "inner")
print(refused(top / "project"), refused(top / "project" / "inner"), refused(top / "elsewhere"))
call(libc.umount2(str(top / "project" / "inner").encode(), 2))
print(refused(top / "project"))
bind(top, top / "elsewhere")
print(refused(top / "elsewhere"))
call(libc.umount2(str(top / "elsewhere").encode(), 2))
call(libc.mount(b"tmpfs", str(top / "elsewhere").encode(), b"tmpfs", 0, b"size=1m"))
print(refused(top / "elsewhere"))
options = f"lowerdir={top / 'state'},upperdir={top / 'upper'},workdir={top / 'work'}"
call(libc.mount(b"overlay", str(top / "merged").encode(), b"overlay", 0, options.encode()))
print(refused(top / "merged"))
"""


def test_a_mount_that_shows_it_elsewhere_is_found(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", IN_A_NAMESPACE, str(tmp_path / "top")], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["False False", "True True False", "False", "True", "False", "True"], run.stderr


@pytest.mark.parametrize(("one", "other"), [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_paths_overlap_in_both_directions(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert overlaps(str(tmp_path / one), str(tmp_path / other))


def test_neighbours_do_not_overlap(tmp_path: Path) -> None:
    for name in ("a", "ab"):
        (tmp_path / name).mkdir()
    assert not overlaps(str(tmp_path / "a"), str(tmp_path / "ab"))


def test_links_are_found_at_every_step(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(tmp_path / "real")
    found = links_to(str(tmp_path / "first" / "inner"))
    assert found == [str(tmp_path / "first"), str(tmp_path / "second")]
    (tmp_path / "round").symlink_to("round")
    assert len(links_to(str(tmp_path / "round" / "x"))) <= 40
