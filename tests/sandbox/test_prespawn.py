"""A cell that is begun ahead: the same cell in the end, and nobody's until then."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import AS_USER, USER

from toolcell_sandbox.profile import python_paths

from .conftest import SOURCE

MAKER = """
import errno, json, os, socket, sys, time
from toolcell_sandbox import CellProfile, HostNetwork, Identity, Limits, Prespawned, ProxyNetwork, SandboxError
from toolcell_sandbox import prespawn, probe, spawn, view
from toolcell_sandbox.identity import unused_slots
from toolcell_sandbox.order import Particulars, sealed
from toolcell_sandbox.order import Sealed
from toolcell_sandbox.spawn import terminate
place = sys.argv[1]
report, identity = probe(), Identity.for_slot(unused_slots())
profile = CellProfile.for_kind("main").replace(readable=(sys.argv[2],), writable=(place,))
read, write = os.pipe()
code = ""
def main(entered):
    names = {"entered": entered}
    exec(sys.modules["__main__"].CODE, names)
    os.write(5, json.dumps(names.get("answer")).encode())
    os._exit(0)
def failed(error):
    os.write(5, json.dumps("failed: " + error.step).encode())
def planned(profile):
    return view.plan(profile, identity, (), view.find_system(profile, identity))
def prespawned(like=profile):
    begun = Prespawned(main, failed, identity=identity, system=like.system, proc=True, report=report)
    begun.ahead = prespawn.mounted_ahead(planned(CellProfile(system=like.system)))
    return begun
def make(begun, profile=profile, **options):
    os.dup2(write, 5)
    whole = planned(profile)
    fits = begun is not None and prespawn.fits(whole, begun.ahead)
    order = Sealed(sealed(Particulars(profile.to_wire(), whole.to_wire())), view.owners(whole), fits)
    options |= {"identity": identity, "report": report, "keep_fds": (5,), "prespawned": begun, "sealed": order}
    child = spawn(profile.figures(), main, failed, **options)
    os.close(order.fd)
    told = json.loads(os.read(read, 65536))
    os.waitpid(child.pid, 0)
    return child, told
def say(*values):
    print(json.dumps(values), flush=True)
"""


@pytest.fixture(params=["root", "rootless"])
def run(request: pytest.FixtureRequest, private_dir: Path) -> Iterator[Callable[..., Any]]:
    """`run(code, inside)`: what a maker of spares says, in whose cells `inside` runs; as root and as another user."""
    place = private_dir / "place"
    place.mkdir()
    script = private_dir / "maker.py"

    def started(code: str, inside: str = "") -> "subprocess.Popen[str]":
        script.write_text(f"CODE = {textwrap.dedent(inside)!r}\n{MAKER}\n{textwrap.dedent(code)}")
        command = [sys.executable, "-I", str(script), str(place), SOURCE]
        if request.param == "rootless" and os.geteuid() == 0:
            os.chown(place, USER, USER)
            paths = [*python_paths(), SOURCE, str(private_dir)]
            command = [sys.executable, "-I", str(AS_USER), str(USER), *paths, "--", *command]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run_script(code: str, inside: str = "") -> Any:
        with started(code, inside) as maker:
            try:
                out = maker.communicate(timeout=120)[0]
            finally:
                maker.kill()  # one that hangs
        assert maker.returncode == 0
        return json.loads(out.splitlines()[-1])

    run_script.__dict__["started"] = started
    yield run_script


def test_a_spare_becomes_the_cell_that_is_asked_for(run: Callable[..., Any]) -> None:
    inside = """
    import os
    def tried(action, *arguments):
        try:
            return action(*arguments)
        except OSError as error:
            return error.errno
    with open(entered.profile.writable[0] + "/made", "w") as file:
        file.write("x")
    answer = [
        os.getpid(), os.getuid() == entered.identity.uid, os.uname().nodename, sorted(os.listdir("/")), os.getcwd(),
        os.listdir("/tmp") == [], sorted(os.listdir("/proc/self/fd"))[:4], sorted(entered.report.on),
        tried(open, "/etc/shadow"), tried(os.mkdir, "/usr/x"), os.listdir(entered.profile.writable[0]),
    ]
    """
    code = """
    plain = make(None)[1]
    os.unlink(place + "/made")
    begun = prespawned()
    time.sleep(0.1)
    child, told = make(begun)
    say(child is begun.child, told == plain, told, os.stat(place + "/made").st_uid == os.stat(place).st_uid)
    """
    taken, same, told, owned = run(code, inside)
    assert taken and same and owned, told
    assert told[:2] == [1, True] and told[2] == "toolcell" and told[8:10] == [2, 30]


def test_a_spare_holds_no_descriptor_of_its_maker_but_its_channel_and_the_pidfd(run: Callable[..., Any]) -> None:
    code = """
    secret = os.open("/dev/null", os.O_RDONLY)
    begun = prespawned()
    pid, links = begun.child.pid, None
    while links != ["/", "anon_inode", "socket"]:  # it closes the others as it starts
        time.sleep(0.01)
        try:
            found = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")}
        except FileNotFoundError:
            continue
        links = sorted(link for fd, link in found.items() if fd > 2)
    begun.end()
    say(os.path.exists(f"/proc/{pid}"))
    """
    assert run(code) == [False]


def test_a_spare_dies_with_its_maker(run: Callable[..., Any]) -> None:
    from .test_spawn import _wait_gone

    with run.__dict__["started"]("say(prespawned().child.pid); time.sleep(60)") as maker:
        assert maker.stdout is not None
        (pid,) = json.loads(maker.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        maker.kill()
        assert _wait_gone(pid)


def test_a_spare_ends_when_nobody_can_order_it_any_more(run: Callable[..., Any]) -> None:
    code = """
    begun = prespawned()
    begun._close()
    say(os.waitstatus_to_exitcode(os.waitpid(begun.child.pid, 0)[1]))
    """
    assert run(code) == [0]


def test_it_takes_no_order_that_it_does_not_fit(run: Callable[..., Any]) -> None:
    inside = """
    import os
    answer = [os.path.exists(path) for path in ("/usr/lib", "/usr/sbin", "/proc/1", "/etc/resolv.conf")]
    """
    code = """
    begun = prespawned()
    without_bin = tuple(path for path in profile.system if path not in ("/usr", "/bin", "/sbin"))
    others = {
        "host": profile.replace(network=HostNetwork()),
        "no proc": profile.replace(proc=False),
        "other system": profile.replace(system=(*without_bin, "/usr/lib", "/usr/lib64")),
    }
    said = {}
    for name, other in others.items():
        child, told = make(begun, other)
        said[name] = [child is begun.child, told]
    child, told = make(begun)
    said["its own"] = [child is begun.child, told]
    say(said)
    """
    (said,) = run(code, inside)
    assert said == {
        "host": [False, [True, True, True, os.path.exists("/etc/resolv.conf")]],
        "no proc": [False, [True, True, False, False]],
        "other system": [False, [True, False, True, False]],
        "its own": [True, [True, True, True, False]],
    }


def test_a_system_path_that_is_another_than_it_was_is_seen_as_it_is_now(run: Callable[..., Any]) -> None:
    code = """
    changes = {
        "replaced": lambda: (os.rename("tree", "old"), os.mkdir("tree"), open("tree/new", "w").close()),
        "another link": lambda: (os.unlink("link"), os.symlink("elsewhere", "link")),
        "made": lambda: os.mkdir("absent"),
        "nothing": lambda: None,
    }
    said = {}
    for name, change in changes.items():
        below = os.path.join(place, name)
        os.makedirs(below + "/tree"), os.mkdir(below + "/elsewhere"), os.symlink("tree", below + "/link")
        os.chdir(below)
        system = (*profile.system, below + "/link", below + "/absent")
        like = profile.replace(system=system, writable=())
        begun = prespawned(like)
        change()
        child, told = make(begun, like)
        said[name] = [child is begun.child, told]
    say(said)
    """
    inside = """
    import os
    link, absent = entered.profile.system[-2:]
    answer = [os.readlink(link), os.listdir(link), os.path.exists(absent)]
    """
    (said,) = run(code, inside)
    assert said == {
        "replaced": [False, ["tree", ["new"], False]],
        "another link": [False, ["elsewhere", [], False]],
        "made": [False, ["tree", [], True]],
        "nothing": [True, ["tree", [], False]],
    }


def test_possible_are_spares_for_cells_that_share_what_comes_first(run: Callable[..., Any]) -> None:
    code = """
    from toolcell_sandbox import Mechanism
    possible = Prespawned.is_possible
    lost = report.changed(Mechanism("pid_namespace", "missing", "none", 1))
    userns = Identity("userns-root", 1000, 1000)
    say(possible(profile, identity, report), possible(profile, identity, lost), possible(profile, userns, report),
        possible(profile.replace(network=ProxyNetwork(allow=["example.com"])), identity, report))
    """
    assert run(code) == [True, False, False, False]


def test_a_failure_is_told_once_there_is_an_order_and_not_before(run: Callable[..., Any]) -> None:
    code = """
    import toolcell_sandbox.enter
    module = sys.modules["toolcell_sandbox.enter"]
    begun = prespawned()
    child, told = make(begun, cgroups=("/nonexistent",))
    module.mounts.enter_root = lambda root: 1 / 0
    os.dup2(write, 5)
    broken = prespawned()
    status = os.waitstatus_to_exitcode(os.waitpid(broken.child.pid, 0)[1])
    os.set_blocking(read, False)
    try:
        heard = os.read(read, 100)
    except BlockingIOError:
        heard = None
    say(child is begun.child, told, status, heard)
    """
    assert run(code) == [True, "failed: join /nonexistent", 1, None]


def test_an_order_to_a_spare_that_has_died_is_carried_out_by_another_process(run: Callable[..., Any]) -> None:
    code = """
    begun = prespawned()
    os.kill(begun.child.pid, 9)
    os.waitid(os.P_PID, begun.child.pid, os.WEXITED | os.WNOWAIT)
    child, told = make(begun)
    say(child is begun.child, told)
    """
    assert run(code, "answer = 'inside'") == [False, "inside"]


@pytest.mark.root
def test_after_a_mount_on_the_host_another_cell_is_made_and_sees_it(private_dir: Path) -> None:
    place = private_dir / "place"
    (place / "disk").mkdir(parents=True)
    code = """
    begun = prespawned()
    time.sleep(0.1)
    os.system(f"mount -t tmpfs tmpfs {place}/disk && touch {place}/disk/file")
    child, told = make(begun)
    again, _told = make(begun)  # the kernel says only once that there is another mount
    say(child is begun.child or again is begun.child, told)
    """
    inside = "import os; answer = os.listdir(entered.profile.writable[0] + '/disk')"
    script = private_dir / "maker.py"
    script.write_text(f"CODE = {inside!r}\n{MAKER}\n{textwrap.dedent(code)}")
    command = ["unshare", "-m", sys.executable, "-I", str(script), str(place), SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [False, ["file"]]


def test_system_paths_below_tmp_are_not_hidden_by_the_scratch(run: Callable[..., Any]) -> None:
    """As of a virtual environment that lies there."""
    code = """
    import shutil, tempfile
    below = tempfile.mkdtemp(dir="/tmp")
    os.chmod(below, 0o755)
    os.mkdir(below + "/packages")
    os.symlink("packages", below + "/link")
    like = profile.replace(system=(*profile.system, below + "/link"))
    begun = prespawned(like)
    time.sleep(0.1)
    child, told = make(begun, like)
    shutil.rmtree(below)
    say(child is begun.child, told)
    """
    inside = """
    import os
    path = entered.profile.system[-1]
    answer = [os.readlink(path), os.listdir(path), sorted(os.listdir(os.path.dirname(path)))]
    """
    assert run(code, inside) == [True, ["packages", [], ["link", "packages"]]]
