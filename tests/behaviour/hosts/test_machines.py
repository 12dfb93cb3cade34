"""The whole path of a call as root, as an ordinary user, and on kernels that refuse a mechanism."""

import ast
import errno
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.escape.kit import NO_NAMESPACES
from tests.escape.machines import MACHINES, command_on
from tests.ordinary import AS_USER, USER

import toolcell_sandbox
from toolcell_sandbox.profile import python_paths

HERE = Path(__file__).parent
SCENARIO = HERE / "scenario.py"
SOURCES = [str(Path(toolcell_sandbox.__file__).parent.parent.parent), str(HERE)]
IDENTITIES = ["root", "user"] if os.geteuid() == 0 else ["user"]

# A kernel or a container engine that refuses some system calls, for this process and all below it.
REFUSING = """
import os, sys
from toolcell_sandbox.kernel.syscalls import NUMBERS
from toolcell_sandbox.mechanisms import capabilities, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Jump, Label, Return, assemble, refuse
names, error = sys.argv[1].split(","), int(sys.argv[2])
code = [BpfLoad(NUMBER), *(Jump("==", NUMBERS[name], yes="no") for name in names), Return(ALLOW), Label("no")]
capabilities.no_new_privileges()
seccomp.load(assemble([*code, Return(refuse(error))]))
os.execv(sys.argv[3], sys.argv[3:])
"""


@pytest.fixture
def workspace(open_directory: Path) -> Path:
    """A directory that the ordinary user can own and reach."""
    return Path(tempfile.mkdtemp(prefix="work space ", dir=open_directory))


def run(identity: str, workspace: Path, *, refuse: str = "", error: int = 0, allow: tuple[str, ...] = ()) -> Any:
    command = [sys.executable, "-I", str(SCENARIO), str(workspace), *allow]
    if refuse:
        command = [sys.executable, "-I", "-c", REFUSING, refuse, str(error), *command]
    if identity == "user" and os.geteuid() == 0:
        os.chown(workspace, USER, USER)
        paths = [*python_paths(), *SOURCES]
        command = [sys.executable, "-I", str(AS_USER), str(USER), *paths, "--", *command]
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_whole_path_works_and_holds(identity: str, workspace: Path) -> None:
    found = run(identity, workspace)
    assert found["identity"] == ("root" if identity == "root" else "rootless") and found["missing"] == []
    assert found["saved"] == "saved 5 characters", found["saved_error"]
    assert (workspace / "a.txt").read_text() == "hello"
    assert (workspace / "a.txt").stat().st_uid == workspace.stat().st_uid
    assert (workspace / "b.txt").read_text() == "hi\n"
    assert found["denied"] == "permission_denied" and "hello" in json.dumps(found["read"])
    tried = found["tried"]
    assert tried.pop("root") and tried.pop("pid") > 1
    uid = tried.pop("uid")
    assert uid != 0 and (identity == "root" or uid == (USER if os.geteuid() == 0 else os.geteuid()))
    assert tried == {
        "write": errno.EROFS,
        "shadow": errno.ENOENT,
        "socket": errno.EAFNOSUPPORT,
        "exec": errno.EACCES,
        "kill": errno.ESRCH,
    }
    assert found["errors"] == {
        "crash": ["crashed", ""],
        "hang": ["timeout", ""],
        "eat": ["limit_exceeded", "memory"],
        "bomb": ["limit_exceeded", "processes"],
    }
    assert "hi" in json.dumps(found["after"])
    assert sorted(path.name for path in workspace.iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize(
    ("refuse", "error", "mechanism"),
    [
        ("landlock_create_ruleset", errno.ENOSYS, "landlock"),
        ("mount_setattr", errno.ENOSYS, "mount_setattr"),
        ("pivot_root", errno.EPERM, "pivot_root"),
        ("seccomp", errno.ENOSYS, "seccomp"),
        ("close_range", errno.ENOSYS, "close_range"),
    ],
)
def test_a_missing_mechanism_refuses_the_start_with_its_name_and_cure(
    identity: str, workspace: Path, refuse: str, error: int, mechanism: str
) -> None:
    found = run(identity, workspace, refuse=refuse, error=error)
    assert found.get("mechanism") == mechanism, found
    assert found["cure"] and mechanism in found["unavailable"]
    assert not list(workspace.iterdir())


def test_a_container_without_namespaces_is_refused_by_name(workspace: Path) -> None:
    found = run("user", workspace, refuse="unshare", error=errno.EPERM)
    assert found.get("mechanism") == "user_namespace", found


def test_a_refusal_names_all_that_is_missing_and_the_allow_missing_that_it_shows_is_enough(workspace: Path) -> None:
    said = run("user", workspace, refuse="unshare", error=errno.EPERM)["unavailable"]
    assert said.count("allows unshare") == 1 and said.count(" are missing: ") == 1
    assert said.endswith(
        " Without them code in a cell can outlive its call (promise 5), and one layer only keeps promises 1, 2, 3, 4."
    )
    shown = re.search(r"allow_missing=({.*})", said)
    assert shown is not None, said
    names = tuple(ast.literal_eval(shown[1]))
    assert run("user", workspace, refuse="unshare", error=errno.EPERM, allow=names)["saved"] == "saved 5 characters"


# A user with other things to do: 150 threads beside the command.
BUSY = """
import subprocess, sys, threading, time
for _ in range(150):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


def test_without_namespaces_a_cell_does_not_share_its_process_limit_with_the_rest_of_the_user(
    workspace: Path,
) -> None:
    machine = next(each for each in MACHINES if each.name == NO_NAMESPACES)
    if os.geteuid() == 0:
        os.chown(workspace, USER, USER)
    scenario = [sys.executable, "-I", str(SCENARIO), str(workspace), *machine.allow]
    command = command_on(machine, [sys.executable, "-I", "-c", BUSY, *scenario], [str(HERE)])
    done = programs.run(command, cwd="/")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["saved"] == "saved 5 characters" and found["shell"]["stdout"] == "hellohi\n", found
    assert found["errors"]["bomb"] == ["limit_exceeded", "processes"], found


@pytest.mark.parametrize("identity", IDENTITIES)
def test_landlock_may_be_missing_if_it_is_named_and_every_result_says_so(identity: str, workspace: Path) -> None:
    found = run(identity, workspace, refuse="landlock_create_ruleset", error=errno.ENOSYS, allow=("landlock",))
    assert found["saved"] == "saved 5 characters", found
    assert "landlock" in found["missing"] and "landlock" in found["sandbox"]["allowed_missing"]
    assert "landlock" not in found["sandbox"]["on"]
    assert found["tried"]["write"] == errno.EROFS and found["tried"]["socket"] == errno.EAFNOSUPPORT
