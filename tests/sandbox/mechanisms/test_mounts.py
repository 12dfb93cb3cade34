"""What is bound, where, with which owner, and that the rest of the disk is out of reach."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import USER

from toolcell_sandbox import CellProfile, Identity, Limits, SandboxError
from toolcell_sandbox.mechanisms import mounts
from toolcell_sandbox.view import Bind

PRINT = "import json, os, errno\ndef answer(value): print(json.dumps(value))\n"
WRITABLE = (
    PRINT
    + """
def writable(directory):
    try:
        with open(os.path.join(directory, "probe"), "w"): pass
        return True
    except OSError as error:
        return False
"""
)
ROOT = Identity("root", 70000, 70000)


def _profile(**changes: Any) -> CellProfile:
    return CellProfile.for_kind("main").replace(**changes)


@pytest.mark.root
def test_files_made_in_a_0700_root_workspace_belong_to_its_owner(cell: Any, private_dir: Path) -> None:
    for owner in (0, 1000):
        workspace = private_dir / f"of {owner}"
        workspace.mkdir(mode=0o700)
        secret = workspace / "secret"
        secret.write_text("s")
        secret.chmod(0o600)
        for path in (workspace, secret):
            os.chown(path, owner, owner)
        code = (
            PRINT
            + "os.chdir(arguments); open('new', 'w').close()\n"
            + "answer([open('secret').read(), os.stat('new').st_uid == os.getuid()])"
        )
        result = cell(code, profile=_profile(writable=(str(workspace),)), arguments=str(workspace))
        assert result.value == ["s", True]
        assert (workspace / "new").stat().st_uid == (workspace / "new").stat().st_gid == owner


def test_no_set_id_file_can_be_made_in_a_workspace(cell: Any, private_dir: Path) -> None:
    code = (
        PRINT
        + """
os.chdir(arguments)
def error_of(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "OK"
open("f", "w").close()
answer([error_of(lambda: os.chmod("f", 0o4755)), error_of(lambda: os.chmod("f", 0o2755)),
        error_of(lambda: os.chmod("f", 0o755)),
        error_of(lambda: os.open("g", os.O_CREAT | os.O_WRONLY, 0o4755)), error_of(lambda: os.mkdir("d", 0o2755)),
        error_of(lambda: os.mknod("n", 0o104755)), error_of(lambda: os.fchmod(os.open("f", os.O_RDONLY), 0o6755))])
"""
    )
    result = cell(code, profile=_profile(writable=(str(private_dir),)), arguments=str(private_dir))
    assert result.value == ["EPERM", "EPERM", "OK", "EPERM", "EPERM", "EPERM", "EPERM"]
    assert not any(path.stat().st_mode & 0o6000 for path in private_dir.iterdir())


@pytest.mark.root
def test_a_rootless_cell_reads_and_writes_its_users_files(cell: Any, private_dir: Path) -> None:
    workspace = private_dir / "mine"
    workspace.mkdir(mode=0o700)
    os.chown(workspace, USER, USER)
    code = PRINT + "open(arguments + '/new', 'w').close(); answer(os.listdir(arguments))"
    assert cell(code, user=True, profile=_profile(writable=(str(workspace),)), arguments=str(workspace)).value == [
        "new"
    ]
    assert (workspace / "new").stat().st_uid == USER


def test_paths_nest_in_any_order_and_may_have_any_name(any_cell: Any, private_dir: Path) -> None:
    outer = private_dir / "with space ünïcode\n"
    inner, protected = outer / "inner", outer / "inner" / ".git"
    protected.mkdir(parents=True)
    (outer / "a file").write_text("text")
    for path in (outer, inner, protected):
        path.chmod(0o777)
    profile = _profile(readable=(str(outer), str(protected)), writable=(str(inner),))
    result = any_cell(
        WRITABLE + "answer([writable(path) for path in arguments])",
        profile=profile,
        arguments=[str(outer), str(inner), str(protected)],
    )
    assert result.value == [False, True, False]
    only_file = _profile(writable=(str(outer / "a file"),))
    (outer / "a file").chmod(0o666)
    result = any_cell(
        WRITABLE
        + "open(arguments, 'a').write('!'); answer([open(arguments).read(), os.listdir(os.path.dirname(arguments))])",
        profile=only_file,
        arguments=str(outer / "a file"),
    )
    assert result.value == ["text!", ["a file"]]


def test_a_symbolic_link_is_made_again_and_its_target_bound(any_cell: Any, private_dir: Path) -> None:
    target = private_dir / "target"
    target.mkdir()
    (target / "file").write_text("text")
    (private_dir / "hop").symlink_to("target")
    link = private_dir / "link"
    link.symlink_to(private_dir / "hop")
    code = PRINT + "answer([open(arguments + '/file').read(), os.path.islink(arguments), os.path.realpath(arguments)])"
    assert any_cell(code, profile=_profile(readable=(str(link),)), arguments=str(link)).value == [
        "text",
        True,
        str(target),
    ]


def test_scratch_is_private_empty_and_not_executable_without_exec(any_cell: Any, tmp_path: Path) -> None:
    Path("/tmp/toolcell-canary").write_text("x")
    try:
        code = (
            PRINT
            + "answer([os.listdir('/tmp'), os.statvfs('/tmp').f_flag & os.ST_NOEXEC != 0, os.access('/tmp', os.W_OK)])"
        )
        names, noexec, may_write = any_cell(code, profile=CellProfile.for_kind("worker")).value
        assert "toolcell-canary" not in names and noexec and may_write
        names, noexec, _may_write = any_cell(code).value
        assert not noexec
    finally:
        os.unlink("/tmp/toolcell-canary")


def test_devices_work_and_no_others_are_there(any_cell: Any) -> None:
    code = (
        PRINT
        + """
open("/dev/null", "w").write("x")
answer([len(os.urandom(4)), open("/dev/zero", "rb").read(2) == b"\\0\\0", len(open("/dev/urandom", "rb").read(3)),
        sorted(os.listdir("/dev"))])
"""
    )
    names = ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"]
    assert any_cell(code).value == [4, True, 3, names]


def test_a_path_that_does_not_exist_is_an_error_that_names_it(cell: Any) -> None:
    error = cell("pass", profile=_profile(readable=("/nonexistent/path",))).error
    assert "/nonexistent/path" in str(error["what"]) and error["cure"]


@pytest.mark.root
def test_a_path_that_the_user_cannot_reach_is_an_error_that_names_it(cell: Any, private_dir: Path) -> None:
    closed = private_dir / "closed"
    (closed / "below").mkdir(parents=True)
    closed.chmod(0o700)
    before = f"arguments = {str(closed / 'below')!r}"
    profile = _profile(system=(*CellProfile().system,))
    result = cell(
        "pass",
        user=True,
        before=before + "\nimport sys, toolcell_sandbox.run\nmodule = sys.modules['toolcell_sandbox.spawn']\n"
        "prepare = module.prepare\n"
        "module.prepare = lambda profile, **rest: prepare(profile.replace(readable=(arguments,)), **rest)",
        profile=profile,
    )
    assert "below" in str(result.error["what"]) and result.error["errno"] == 13


def test_a_file_system_without_id_maps_is_refused_and_userns_root_serves_it(
    cell: Any, private_dir: Path, tree: Any
) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (private_dir / name).mkdir()
    merged = private_dir / "merged"
    (private_dir / "lower" / "file").write_text("text")
    mount = (
        'cd "$1" && shift && mount -t tmpfs tmpfs upper && mkdir upper/u upper/w && '
        'mount -t overlay overlay -o lowerdir=lower,upperdir=upper/u,workdir=upper/w merged && cd / && exec "$@"'
    )
    wrap = ("unshare", "-m", "sh", "-c", mount, "sh", str(private_dir))
    profile = _profile(writable=(str(merged),))
    code = PRINT + "open(arguments + '/new', 'w').close(); answer([os.getuid() != 0, open(arguments + '/file').read()])"
    result = cell(code, profile=profile, wrap=wrap, arguments=str(merged))
    assert result.error["mechanism"] == "idmapped_mounts" and "ext4" in str(result.error["cure"])
    refused = cell(code, profile=profile, wrap=wrap, arguments=str(merged), mode="userns-root")
    assert refused.error["mechanism"] == "cgroup"
    group = tree.create("userns", Limits())
    try:
        result = cell(code, profile=profile, wrap=wrap, arguments=str(merged), mode="userns-root", cgroups=group.paths)
        assert result.value == [True, "text"]
    finally:
        group.remove()


def test_a_path_that_was_swapped_is_refused(cell: Any, private_dir: Path) -> None:
    (private_dir / "workspace").mkdir()
    before = """
    import os, sys, toolcell_sandbox.run
    module = sys.modules["toolcell_sandbox.spawn"]
    prepare = module.prepare
    def swapped(profile, **rest):
        order = prepare(profile, **rest)
        os.rename(profile.writable[0], profile.writable[0] + ".old")
        os.mkdir(profile.writable[0]) if sys.argv else None
        return order
    module.prepare = swapped
    """
    result = cell("pass", profile=_profile(writable=(str(private_dir / "workspace"),)), before=before)
    assert "replaced" in str(result.error["what"])


PRIVATE = """
import os, sys
from toolcell_sandbox.kernel.syscalls import syscall
from toolcell_sandbox.mechanisms import mounts, namespaces
namespaces.unshare(("mount_namespace",))
place, MS_SHARED = sys.argv[1], 1 << 20
mounts.make_private()
syscall("mount", "tmpfs", place, "tmpfs", 0, None, step="mount")
syscall("mount", "none", place, None, MS_SHARED, None, step="share")
def shared():
    lines = [line.split(" - ")[0].split() for line in open("/proc/self/mountinfo")]
    return [line[4].replace("\\\\040", " ") for line in lines if any(field.startswith("shared:") for field in line[6:])]
print(shared() == [place])
mounts.make_private()
print(shared())
"""


@pytest.mark.root
def test_no_mount_below_the_root_spreads_either(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", PRIVATE, os.path.realpath(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "[]"]


@pytest.mark.root
def test_a_bind_that_was_replaced_leaves_no_descriptor(tmp_path: Path) -> None:
    bind = Bind(os.path.realpath(tmp_path), False, True, (0, 0), None)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SandboxError, match="was replaced"):
        mounts.open_trees([bind], {}, root)
    assert os.listdir("/proc/self/fd") == before
    os.close(root)


def test_where_the_kernel_mounts_no_link_the_file_is_read_only_instead(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "other").mkdir()
    code = f"""
        import errno, os
        from toolcell_sandbox.mechanisms import mounts
        mounts.make_private()
        fd = mounts.clone_tree({str(tmp_path / "other")!r})  # a directory in place of a file is refused by every kernel
        mounts.attach([mounts.Tree(fd, {str(tmp_path / "file")!r}, directory=False, link=True)])
        assert open({str(tmp_path / "file")!r}).read() == "mine"
        flags = os.statvfs({str(tmp_path / "file")!r}).f_flag
        assert flags & os.ST_NOSUID and flags & os.ST_NODEV
        try:
            open({str(tmp_path / "file")!r}, "a")
        except OSError as error:
            assert error.errno == errno.EROFS
            print("read-only")
    """
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-I", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "read-only\n", done.stderr
