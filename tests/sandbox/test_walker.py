"""The removal of hostile trees."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.walker import Budget, Root

DEEP = """
import os, sys
from toolcell_sandbox.trees import walker

os.chdir(sys.argv[1])
top = os.open(".", walker.PATH)
os.mkdir("x")
os.chdir("x")
for number in range(1500):
    open("file", "w").close()
    os.symlink("/etc", "link")
    os.mkdir("x")
    os.mkdir("closed", 0)
    os.chdir("x")
    if number == 1000:
        os.chmod("..", 0)
os.fchdir(os.open(sys.argv[1], os.O_RDONLY))
walker.remove("x", top)
walker.remove("x", top)  # no error where nothing is
print(os.listdir("."))
"""


@pytest.mark.parametrize("user", [False, True] if os.geteuid() == 0 else [True])
def test_a_tree_of_any_depth_and_mode_is_removed(private_dir: Path, *, user: bool) -> None:
    work = private_dir / "work"
    work.mkdir()
    source = str(Path(toolcell_sandbox.__file__).parent.parent)
    command = [sys.executable, "-c", textwrap.dedent(DEEP), str(work)]
    if user and os.geteuid() == 0:
        os.chown(work, USER, USER)
        reached = [*python_paths(), source, str(private_dir)]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *reached, "--", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": source}
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_what_is_removed_is_bounded_and_what_is_kept_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for number in range(2000):
        (tmp_path / str(number)).touch()
    with Root(str(tmp_path)) as root:
        with pytest.raises(OSError, match="too many entries"):
            walker.clear(root.fd, {"kept"}, Budget(entries=1000))
        assert 900 < len(os.listdir(tmp_path)) < 1300
        walker.clear(root.fd, {"kept"})
    assert os.listdir(tmp_path) == ["kept"]


def test_a_removal_ends_while_others_add(tmp_path: Path) -> None:
    class Adding(frozenset[str]):
        """Adds a directory whenever an entry is looked at."""

        def __contains__(self, _name: object) -> bool:
            os.makedirs(tmp_path / os.urandom(4).hex() / "y")
            return False

    (tmp_path / "x").mkdir()
    with Root(str(tmp_path)) as root, pytest.raises(OSError, match="took too long"):
        walker.clear(root.fd, Adding(), Budget(seconds=0.2))


def test_links_that_lead_on_and_on_lead_nowhere(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).symlink_to(str(number + 1))
    (tmp_path / "50").touch()
    assert walker.real_path(str(tmp_path / "10")) == str(tmp_path / "50")
    os.stat(tmp_path / "10")
    for path in (tmp_path / "9", tmp_path / "0"):
        with pytest.raises(OSError, match="Too many levels"):
            walker.real_path(str(path))
        with pytest.raises(OSError, match="Too many levels"):
            os.stat(path)


@pytest.mark.parametrize(
    "path", ["", ".", "/", "..", "a/../b", "up/../x", "up/b/.//c", "there/a", "gone/x", "dangling/y/..", "a/file/z"]
)
def test_a_real_path_is_that_of_os_path_realpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").touch()
    (tmp_path / "up").symlink_to("a/b")
    (tmp_path / "there").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("a/none/../other")
    monkeypatch.chdir(tmp_path)
    assert walker.real_path(path) == os.path.realpath(path)
    assert walker.real_path(str(tmp_path / path)) == os.path.realpath(tmp_path / path)
