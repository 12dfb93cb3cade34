"""The whole stack, as root and as an ordinary user: what a cell sees and what it cannot do."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcell_sandbox import CellProfile, Limits
from toolcell_sandbox.identity import FIRST_UID, INOTIFY_QUEUES, SLOTS, unused_slots

ERRNO_OF = """
import ctypes, errno, json, os, sys
from toolcell_sandbox.kernel.syscalls import attempt
def errno_of(name, *arguments):
    return errno.errorcode.get(-attempt(name, *arguments), "OK")
def answer(value):
    print(json.dumps(value))
"""


def test_a_cell_is_pid_1_and_sees_only_what_is_bound(any_cell: Any) -> None:
    result = any_cell(
        ERRNO_OF
        + "answer([os.getpid(), os.path.exists('/etc/shadow'), os.path.exists('/sys'), sorted(os.listdir('/proc'))])"
    )
    assert result.value == [1, False, False, ["1", "self", "thread-self"]]


def test_a_cell_has_no_privilege_and_an_unprivileged_uid(any_cell: Any) -> None:
    code = """
    status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
    answer([status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")]
           + [os.getuid() != 0])
    """
    result = any_cell(ERRNO_OF + _dedent(code))
    assert result.value == ["0" * 16] * 5 + ["1", "2", True]


def test_a_cell_cannot_take_the_inotify_queues_of_the_user_who_runs_it(any_cell: Any) -> None:
    code = """
    taken = 0
    while taken < 200 and attempt("inotify_init1", 0) >= 0:
        taken += 1
    answer([taken, os.getuid()])
    """
    taken, uid = any_cell(ERRNO_OF + _dedent(code)).value
    assert uid >= FIRST_UID or taken == INOTIFY_QUEUES  # a cell of root has a uid, and so a number, of its own


def test_every_refused_call_fails_with_its_errno(any_cell: Any) -> None:
    code = """
    answer({
        "socket": errno_of("socket", 2, 1, 0),
        "socket with high bits": errno_of("socket", 0x100000002, 1, 0),
        "vsock": errno_of("socket", 40, 1, 0),
        "datagram pair": errno_of("socketpair", 1, 2, 0, ctypes.create_string_buffer(8)),
        "inet pair": errno_of("socketpair", 2, 1, 0, ctypes.create_string_buffer(8)),
        "mount": errno_of("mount", "none", "/tmp", "tmpfs", 0, None),
        "fsopen": errno_of("fsopen", "tmpfs", 0),
        "open_tree": errno_of("open_tree", -100, "/", 1),
        "unshare": errno_of("unshare", 0x10000000),
        "clone": errno_of("clone", 0x10000000 | 17, 0, 0, 0, 0),
        "clone3": errno_of("clone3", None, 0),
        "openat2": errno_of("openat2", -100, "/", None, 0),
        "memfd_create": errno_of("memfd_create", "x", 0),
        "memfd_secret": errno_of("memfd_secret", 0),
        "vmsplice": errno_of("vmsplice", 1, None, 0, 0),
        "io_uring": errno_of("io_uring_setup", 8, None),
        "ptrace": errno_of("ptrace", 16, 1, 0, 0),
        "keyctl": errno_of("keyctl", 0, 0),
        "modify_ldt": errno_of("modify_ldt", 0, None, 0) if os.uname().machine == "x86_64" else "EPERM",
        "shmget": errno_of("shmget", 0, 4096, 0o1000),
        "new listener": errno_of("seccomp", 1, 8, None),
        "lease": errno_of("fcntl", 0, 1024, 0),
        "owner": errno_of("fcntl", 0, 8, 1),
        "owner_ex": errno_of("fcntl", 0, 15, ctypes.create_string_buffer(8)),
        "signal of the owner": errno_of("fcntl", 0, 10, 9),
        "owner of a socket": errno_of("ioctl", 0, 0x8901, ctypes.create_string_buffer(4)),
        "group of a socket": errno_of("ioctl", 0, 0x8902, ctypes.create_string_buffer(4)),
        "TIOCSTI": errno_of("ioctl", 0, 0x5412, None),
        "TIOCSTI with high bits": errno_of("ioctl", 0, 0x100005412, None),
        "limits of another": errno_of("prlimit64", 2, 7, None, None),
        "core limit": errno_of("setrlimit", 4, ctypes.create_string_buffer(16)),
        "core limit by prlimit": errno_of("prlimit64", 0, 4, ctypes.create_string_buffer(16), None),
        "reading the core limit": errno_of("prlimit64", 0, 4, None, ctypes.create_string_buffer(16)),
        "dumpable": errno_of("prctl", 4, 1, 0, 0, 0),
        "huge pages": errno_of("mmap", None, 2 << 20, 3, 0x40022, -1, 0),
        "fast open": errno_of("sendto", 0, b"x", 1, 0x20000000, None, 0),
        "unknown call": errno.errorcode[ctypes.get_errno()] if ctypes.CDLL(None, use_errno=True).syscall(5000) else "",
    })
    """
    eperm = ["mount", "fsopen", "open_tree", "unshare", "clone", "memfd_create", "memfd_secret", "vmsplice", "io_uring"]
    eperm += ["ptrace", "keyctl", "modify_ldt", "shmget", "lease", "TIOCSTI", "dumpable", "huge pages"]
    eperm += ["owner", "owner_ex", "signal of the owner", "owner of a socket", "group of a socket"]
    wanted = dict.fromkeys(eperm, "EPERM") | {
        "socket": "EAFNOSUPPORT",
        "socket with high bits": "EAFNOSUPPORT",
        "vsock": "EAFNOSUPPORT",
        "datagram pair": "EAFNOSUPPORT",
        "inet pair": "EAFNOSUPPORT",
        "clone3": "ENOSYS",
        "openat2": "ENOSYS",
        "new listener": "EPERM",
        "TIOCSTI with high bits": "EPERM",
        "limits of another": "EPERM",
        "unknown call": "ENOSYS",
        "core limit": "EINVAL",
        "core limit by prlimit": "EINVAL",
        "reading the core limit": "OK",
        "fast open": "ENOTSUP",
    }
    assert any_cell(ERRNO_OF + _dedent(code)).value == wanted


def test_threads_and_asyncio_and_subprocesses_work(any_cell: Any) -> None:
    code = """
    import asyncio, threading, subprocess, tempfile, sqlite3
    got = []
    thread = threading.Thread(target=lambda: got.append(1)); thread.start(); thread.join()
    async def main():
        return await asyncio.to_thread(lambda: 2)
    got.append(asyncio.run(main()))
    got.append(subprocess.check_output(["/bin/sh", "-c", "echo 3 | cat"], text=True, stdin=subprocess.DEVNULL))
    with tempfile.NamedTemporaryFile() as file:
        sqlite3.connect(file.name).execute("create table t(x)")
    answer(got)
    """
    assert any_cell(ERRNO_OF + _dedent(code)).value == [1, 2, "3\n"]


def test_execve_needs_the_exec_grant(any_cell: Any) -> None:
    code = """
    try:
        os.execv("/bin/true", ["true"])
    except PermissionError as error:
        answer(error.errno)
    """
    assert any_cell(ERRNO_OF + _dedent(code), profile=CellProfile.for_kind("worker")).value == 13


def test_the_32_bit_table_kills(cell: Any) -> None:
    code = """
    import mmap
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (i386 getpid); int 0x80; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
    """
    assert cell(ERRNO_OF + _dedent(code)).status == -31  # SIGSYS


def test_nothing_outside_is_written_or_signalled(any_cell: Any) -> None:
    code = """
    def error_of(action):
        try:
            action()
        except OSError as error:
            return errno.errorcode[error.errno]
        return "OK"
    answer([error_of(lambda: open("/x", "w")), error_of(lambda: open("/usr/x", "w")),
            error_of(lambda: os.kill(arguments, 0)),
            error_of(lambda: os.chmod("/usr", 0o777)), error_of(lambda: os.truncate("/usr/bin/env", 0)),
            error_of(lambda: os.link("/usr/bin/env", "/tmp/linked-to-env")), error_of(lambda: os.setuid(0))])
    """
    import os

    result = any_cell(ERRNO_OF + _dedent(code), arguments=os.getpid())
    first, second, third, fourth, fifth, sixth, seventh = result.value
    assert first in ("EROFS", "EACCES") and second in ("EROFS", "EACCES")
    assert third == "ESRCH" and fourth in ("EROFS", "EPERM") and fifth in ("EROFS", "EACCES")
    assert sixth in ("EXDEV", "EPERM", "EACCES") and seventh in ("EPERM", "EINVAL")  # EINVAL: uid 0 is not mapped


def test_only_the_named_descriptors_are_open(any_cell: Any) -> None:
    before = "import os; [os.set_inheritable(os.dup(0), True) for _ in range(20)]; os.dup2(0, 200)"
    result = any_cell(ERRNO_OF + "answer(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])", before=before)
    assert result.value == [0, 1, 2]


def test_host_name_cgroup_path_and_network_are_its_own(any_cell: Any) -> None:
    code = """
    groups = sorted({line.split(":", 2)[2] for line in open("/proc/self/cgroup").read().split()})
    answer([os.uname().nodename, groups, os.path.exists("/sys/class/net")])
    """
    assert any_cell(ERRNO_OF + _dedent(code)).value == ["toolcell", ["/"], False]


def test_signal_handlers_of_the_maker_are_gone(any_cell: Any) -> None:
    before = (
        "import signal; signal.signal(signal.SIGUSR1, lambda *_: None); signal.pthread_sigmask(0, {signal.SIGTERM})"
    )
    code = """
    import signal
    answer([signal.getsignal(signal.SIGINT) == signal.SIG_DFL, signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
            len(signal.pthread_sigmask(0, ()))])
    """
    assert any_cell(ERRNO_OF + _dedent(code), before=before).value == [True, True, 0]


FORK_BOMB = """
count = 0
try:
    while count < 100:
        if os.fork() == 0:
            import time; time.sleep(30); os._exit(0)
        count += 1
except BlockingIOError:
    pass
answer(count)
"""
TEN = CellProfile.for_kind("main").replace(limits=Limits(processes=10))


def test_the_fork_bomb_is_bounded_without_cgroups(any_cell: Any) -> None:
    assert any_cell(ERRNO_OF + FORK_BOMB, profile=TEN).value == 12


def asleep_as(uid: int) -> list[str]:
    """A process of this user that waits to be killed, and that nobody may look at. It becomes that user once it runs:
    the interpreter may lie where only root can go."""
    code = f"""
import ctypes, os, time
os.setgroups([])
os.setresgid({uid}, {uid}, {uid})
os.setresuid({uid}, {uid}, {uid})
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
print(flush=True)
time.sleep(100)
"""
    return [sys.executable, "-I", "-S", "-c", code]


@pytest.mark.root
def test_processes_under_the_first_slots_uid_take_no_place_of_a_cell(cell: Any) -> None:
    with subprocess.Popen(asleep_as(FIRST_UID), stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            assert cell(ERRNO_OF + FORK_BOMB, profile=TEN).value == 12
        finally:
            other.kill()


@pytest.mark.root
def test_slots_whose_uids_are_in_use_are_not_drawn_even_if_nobody_may_look_at_the_process() -> None:
    with subprocess.Popen(asleep_as(FIRST_UID + 7 * SLOTS + 12), stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            assert os.stat(f"/proc/{other.pid}/status").st_uid == 0, "it is not dumpable"
            drawn = iter([7, 7, 4000])
            assert unused_slots(drawn.__next__) == 4000 * SLOTS
        finally:
            other.kill()


def test_slots_are_drawn_by_lot_below_the_signed_limit() -> None:
    drawn = {unused_slots() for _ in range(20)}
    assert len(drawn) > 1
    assert all(FIRST_UID <= FIRST_UID + first < 0x7FFFFFFF - SLOTS and first % SLOTS == 0 for first in drawn)


def test_memory_and_file_size_and_scratch_are_bounded(any_cell: Any) -> None:
    code = """
    got = []
    try:
        bytearray(300 << 20)
    except MemoryError:
        got.append("memory")
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name, size in (("big", 3 << 20), ("many", 0)):
        try:
            for index in range(1000 if not size else 1):
                with open(f"/tmp/{name}{index}", "wb") as file:
                    file.write(bytes(size))
        except OSError as error:
            got.append(errno.errorcode[error.errno])
    for index in range(8):
        try:
            with open(f"/tmp/big0", "ab") as file, open(f"/dev/shm/fill{index}", "wb") as other:
                other.write(bytes(1 << 20))
        except OSError as error:
            got.append(errno.errorcode[error.errno]); break
    answer(got)
    """
    limits = Limits(memory_bytes=200 << 20, file_bytes=2 << 20, scratch_bytes=4 << 20, scratch_inodes=200)
    profile = CellProfile.for_kind("worker").replace(limits=limits)
    assert any_cell(ERRNO_OF + _dedent(code), profile=profile).value == ["memory", "EFBIG", "ENOSPC", "ENOSPC"]


def test_the_wall_limit_ends_the_cell(any_cell: Any) -> None:
    profile = CellProfile.for_kind("worker").replace(limits=Limits(wall_s=0.5))
    result = any_cell("import time; time.sleep(60)", profile=profile)
    assert (result.timed_out, result.status) == (True, -9)


def test_a_call_process_cannot_touch_its_init(any_cell: Any) -> None:
    code = """
    from toolcell_sandbox.mechanisms import landlock, rlimits
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        for step in (*landlock.call_layer(), rlimits.call_cpu_limit(5)):
            step()
        try:
            open("/proc/1/mem", "rb"); memory = "open"
        except OSError as error:
            memory = errno.errorcode[error.errno]
        os.write(write, json.dumps([errno_of("kill", 1, 0), memory]).encode()); os._exit(0)
    os.waitpid(child, 0)
    print(os.read(read, 1000).decode())
    """
    signalled, memory = any_cell(ERRNO_OF + _dedent(code)).value
    assert signalled == "EPERM" and memory in ("EACCES", "ENOENT", "EPERM")


LOOK_FOR_THE_INIT = """
import errno, json, os
def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
read, write = os.pipe()
child = os.fork()
if child == 0:
    said = [tried(open, "/proc/1/status"), tried(open, "/proc/1/oom_score_adj", "w"), "1" in os.listdir("/proc")]
    os.write(write, json.dumps([*said, os.listdir("/proc/self/fd") != []]).encode()); os._exit(0)
os.waitpid(child, 0)
print(os.read(read, 1000).decode())
"""


def test_a_call_process_finds_no_init_in_proc(any_cell: Any) -> None:
    status, score, named, itself = any_cell(LOOK_FOR_THE_INIT).value
    assert {status, score} <= {"ENOENT", "EPERM"} and not named and itself


if os.geteuid() == 0:  # nobody else is root of a user namespace

    def test_nor_does_it_where_its_group_is_the_hosts_group_0(cell: Any, tree: Any) -> None:
        group = tree.create("hidden", Limits())
        try:
            result = cell(LOOK_FOR_THE_INIT, mode="userns-root", cgroups=group.paths)
        finally:
            group.remove()
        status, score, named, itself = result.value
        assert {status, score} <= {"ENOENT", "EPERM"} and not named and itself


def test_every_limit_that_could_be_worth_something_is_set(any_cell: Any) -> None:
    before = """
    import resource
    seen, real = [], resource.setrlimit
    def setrlimit(which, limits):
        seen.append((which, *limits))
        real(which, limits)
    resource.setrlimit = setrlimit
    """
    told = any_cell("import json; print(json.dumps(seen))", before=before).value
    wanted = dict.fromkeys(("RLIMIT_MEMLOCK", "RLIMIT_RTPRIO", "RLIMIT_NICE"), 0) | {"RLIMIT_CORE": 1}
    for name, value in wanted.items():
        assert [getattr(resource, name), value, value] in told, name
    assert [12, 0, 0] in told, "RLIMIT_MSGQUEUE"


def test_programs_limit_themselves_and_huge_allocations_are_counted_ones(any_cell: Any) -> None:
    code = """
    import mmap, resource, subprocess, tempfile
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    core = resource.getrlimit(resource.RLIMIT_CORE)
    area = mmap.mmap(-1, 8 << 20)
    area.madvise(mmap.MADV_HUGEPAGE)
    area[0] = 1
    shell = subprocess.run(["/bin/sh", "-c", "ulimit -n 16; ulimit -n; ulimit -c"], capture_output=True, text=True)
    with tempfile.TemporaryFile() as file:
        mmap.mmap(file.fileno(), 0) if file.truncate(4096) is None else None
    answer([resource.getrlimit(resource.RLIMIT_NOFILE), core, shell.stdout.split(), shell.stderr])
    """
    assert any_cell(ERRNO_OF + _dedent(code)).value == [[32, 32], [1, 1], ["16", "0"], ""]


def test_a_seventeenth_landlock_layer_is_an_error(any_cell: Any) -> None:
    code = """
    from toolcell_sandbox import SandboxError
    from toolcell_sandbox.mechanisms import landlock
    try:
        for layer in range(20):
            for step in landlock.call_layer():
                step()
    except SandboxError as error:
        answer([layer, errno.errorcode[error.errno]])
    """
    assert any_cell(ERRNO_OF + _dedent(code)).value == [15, "E2BIG"]


def test_cgroup_limits_need_no_address_space_limit_where_exec_is_granted(cell: Any, tree: Any) -> None:
    group = tree.create("as", Limits())
    try:
        result = cell(
            ERRNO_OF + "import resource; answer(resource.getrlimit(resource.RLIMIT_AS)[0])", cgroups=group.paths
        )
        assert result.value == -1
    finally:
        group.remove()


@pytest.mark.root
def test_nothing_of_the_cell_is_left_in_the_hosts_mounts(cell: Any, private_dir: Path) -> None:
    """Also where / is shared, as on every systemd machine."""
    seen = private_dir / "mounts"
    script = 'mount --make-rshared / && mounts=$1 && shift && cp /proc/self/mountinfo "$mounts" && "$@" && '
    script += 'cat /proc/self/mountinfo >>"$mounts"'
    assert cell("pass", wrap=("unshare", "-m", "sh", "-c", script, "sh", str(seen))).status == 0
    lines = seen.read_text().splitlines()
    assert "shared:" in lines[0] and lines[: len(lines) // 2] == lines[len(lines) // 2 :]


def test_rootless_needs_a_single_thread_and_says_so(cell: Any) -> None:
    before = """
    import threading, toolcell_sandbox, sys
    from toolcell_sandbox import identity
    import toolcell_sandbox.enter
    module = sys.modules["toolcell_sandbox.enter"]
    original = module.enter_user_namespace
    def with_a_thread(*ids):
        threading.Thread(target=__import__("time").sleep, args=(5,), daemon=True).start()
        original(*ids)
    module.enter_user_namespace = with_a_thread
    """
    result = cell("pass", user=True, before=before)
    assert result.error["mechanism"] == "user_namespace" and result.error["errno"] == 22


@pytest.mark.root
def test_a_masked_proc_is_substituted_and_the_cell_still_works(cell: Any) -> None:
    code = "answer([os.listdir('/proc'), entered.report.get('proc').state])"
    assert cell(ERRNO_OF + code, user=True, mask_proc=True).value == [[], "substituted"]


NAMESPACES = [f"{name}_namespace" for name in ("mount", "pid", "net", "ipc", "uts", "cgroup", "user")]


def test_landlock_and_seccomp_alone_still_confine(cell: Any) -> None:
    code = """
    def error_of(action):
        try:
            action()
        except OSError as error:
            return errno.errorcode[error.errno]
        return "OK"
    answer([errno_of("socket", 2, 1, 0), error_of(lambda: open("/etc/passwd")), error_of(lambda: open("/tmp/x", "w")),
            error_of(lambda: open("/usr/bin/env")), error_of(lambda: os.kill(arguments, 0))])
    """
    import os

    result = cell(
        ERRNO_OF + _dedent(code), user=True, missing=(*NAMESPACES, "pivot_root", "proc"), arguments=os.getpid()
    )
    assert result.value == ["EAFNOSUPPORT", "EACCES", "EACCES", "OK", "EPERM"]


@pytest.mark.parametrize(
    ("sabotage", "what"),
    [
        ("module.seccomp.load = lambda program: None", "seccomp"),
        ("module.capabilities.drop = lambda identity: None", "uid" if os.geteuid() == 0 else "capabilities"),
        ("module.descriptors.keep_only = lambda keep: None", "descriptors"),
        ("module.namespaces.name_host = lambda name: None", "host name"),
        ("module.capabilities.no_new_privileges = lambda: None", "Landlock"),
        ("module.mounts.enter_root = lambda root: None", ""),
        ("module.mounts.drop_old_root = os.close", "the old root"),
        ("module.landlock.restrict = lambda *rules, **rest: None", "ioctl"),
        ("module.mounts.set_attributes = lambda *arguments: None", "mount flags"),
        ("module.rlimits.apply = lambda limits, **rest: None", "RLIMIT_NPROC"),
        ("module.capabilities.undumpable = lambda: module.capabilities.attempt('prctl', 4, 1, 0, 0, 0)", "dumpable"),
        ("module.seccomp.load = lambda program: original(mod.assemble([mod.Return(mod.ALLOW)]))", "socket"),
    ],
)
def test_the_self_test_refuses_a_cell_that_lacks_a_layer(cell: Any, sabotage: str, what: str) -> None:
    before = "import sys, toolcell_sandbox.run\nmodule = sys.modules['toolcell_sandbox.enter']\n"
    before += "import os, toolcell_sandbox.mechanisms.bpf as mod\noriginal = module.seccomp.load\n" + sabotage
    result = cell("print('ran')", before=before)
    assert result.error and "ran" not in result.out
    assert what in str(result.error["what"])


def test_a_missing_mechanism_is_refused_by_name_with_its_cure(cell: Any) -> None:
    before = """
    import sys, toolcell_sandbox.run
    from toolcell_sandbox import Mechanism
    module = sys.modules["toolcell_sandbox.spawn"]
    prepare = module.prepare
    module.prepare = lambda profile, *, report, **rest: prepare(
        profile, report=report.changed(Mechanism("landlock", "missing", "none", 38, "Boot another kernel.")), **rest)
    """
    error = cell("print('ran')", before=before).error
    assert error["mechanism"] == "landlock" and "allow_missing={'landlock'}" in str(error["message"])


def test_the_report_of_a_cell_says_what_is_in_force(cell: Any, tree: Any) -> None:
    code = (
        ERRNO_OF + "answer([entered.report.get('cgroup').state, entered.identity.mode, sorted(entered.report.on)[:1]])"
    )
    assert cell(code).value == ["substituted", "root", ["cgroup_namespace"]]
    group = tree.create("report", Limits())
    try:
        assert cell(code, cgroups=group.paths).value[0] == "on"
    finally:
        group.remove()


def _dedent(code: str) -> str:
    import textwrap

    return textwrap.dedent(code)


@pytest.mark.root
def test_an_id_map_is_what_it_says_and_leaves_no_process() -> None:
    code = """
import os, sys
from toolcell_sandbox.identity import idmap_fd
fd = idmap_fd(7, 8, 1000, 2000)
try:
    os.waitpid(-1, 0)
    left = True
except ChildProcessError:
    left = False
import ctypes
child = os.fork()
if child == 0:
    assert ctypes.CDLL(None).setns(fd, 0x10000000) == 0
    maps = [open(f"/proc/self/{name}_map").read().split() for name in ("uid", "gid")]
    print([maps, left, idmap_fd(7, 8, 1000, 2000) == fd], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == str([[["7", "1000", "1"], ["8", "2000", "1"]], False, True])
