"""`python -I shared_state.py CELLS`: what calls see of shared descriptors, scratch and processes.

CELLS is "standby" (a process waits for the next call), "on demand" (none does) or "kept" (the process of the previous
call serves a call, and is ended after each attack). Before and after each attack, a call of the same session and a call
of another session take the whole picture. Prints a line of JSON for each attack: its name, its answer, and the
pictures. `test_shared_state.py` runs it.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import stat
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from typing import Any

import anyio

from toolcell import Session, Supervisor, Tool, tool

SHARED = (0, 1, 2, 4, 5)
F_SETSIG, F_GETSIG = 10, 11
F_GET_RW_HINT, F_SET_RW_HINT, F_SET_FILE_RW_HINT = 1035, 1036, 1038
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
AT_FDCWD, STATX_MNT_ID_UNIQUE = -100, 0x4000
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}[os.uname().machine]
LARGE = 400_000
PRCTL = {"dumpable": 3, "keep capabilities": 7, "timing": 13, "securebits": 27, "timer slack": 30, "no new privs": 39}


def tried(work: Callable[..., object], *arguments: Any, **named: Any) -> Any:
    """The value of `work`, or the name of its errno."""
    try:
        return work(*arguments, **named)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def whole(pipe: bool) -> bytes:
    """A struct flock over a whole file."""
    return struct.pack("hhqqi", fcntl.F_WRLCK if pipe else fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


def opened(fd: int) -> dict[str, Any]:
    """All properties of an open file and of its inode."""
    info = os.fstat(fd)
    unread = array.array("i", [0])
    try:
        with open(f"/proc/self/fdinfo/{fd}") as file:
            told = [line.split() for line in file if not line.startswith(("ino:", "mnt_id:"))]
    except OSError as error:
        told = [[errno.errorcode[error.errno or 0]]]
    locks = [line[1:] for line in told if line[0] == "lock:"]
    return {
        "mode": info.st_mode,
        "owner": [info.st_uid, info.st_gid],
        "size": info.st_size,
        "flags": fcntl.fcntl(fd, fcntl.F_GETFL),
        "signalled": [fcntl.fcntl(fd, fcntl.F_GETOWN), fcntl.fcntl(fd, F_GETSIG)],
        "closed on exec": fcntl.fcntl(fd, fcntl.F_GETFD),
        "pipe": tried(fcntl.fcntl, fd, fcntl.F_GETPIPE_SZ),
        "hint": tried(lambda: fcntl.fcntl(fd, F_GET_RW_HINT, bytes(8)).hex()),
        "lease": tried(fcntl.fcntl, fd, fcntl.F_GETLEASE),
        "position": tried(os.lseek, fd, 0, os.SEEK_CUR),
        "unread": tried(lambda: [fcntl.ioctl(fd, termios.FIONREAD, unread), *unread]),
        "attributes": tried(os.listxattr, fd),
        "locks": locks,
        "told": [line for line in told if line[0] not in ("lock:", "pos:", "flags:")],
        "locked": locked(fd),
        # Times of a pipe that is another one are others.
        "times": [info.st_ino, info.st_atime_ns, info.st_mtime_ns, info.st_ctime_ns] if fd else [],
    }


def locked(fd: int) -> Any:
    """Whether the file of this descriptor is locked, and whether it can be opened again.

    Any process of the machine may lock /dev/null. So for a device, only locks through this open file description count.
    """
    if stat.S_ISCHR(os.fstat(fd).st_mode):
        try:
            with open(f"/proc/self/fdinfo/{fd}") as file:
                return [line.strip() for line in file if line.startswith("lock")]
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    try:
        found = tried(fcntl.flock, again, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ask = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind = struct.unpack_from("h", fcntl.fcntl(again, fcntl.F_OFD_GETLK, ask))[0]
        return [found, kind == fcntl.F_UNLCK]
    finally:
        os.close(again)


def directory(path: str) -> dict[str, Any]:
    """All properties of a directory."""
    info = os.stat(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = tried(lambda: fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(8)).hex())
        held = tried(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    return {
        "mode": info.st_mode,
        "owner": [info.st_uid, info.st_gid, info.st_nlink],
        "entries": tried(os.listdir, path),
        "attributes": tried(os.listxattr, path),
        "flags": flags,
        "locked": held,
        # Of a tmpfs that is another one they are others.
        "times": [[mount_id(path), info.st_ctime_ns > info.st_mtime_ns], info.st_atime_ns - info.st_mtime_ns],
    }


def mount_id(path: str) -> int:
    """The unique id of this mount. Unlike a device's number, it is not reused (STATX_MNT_ID_UNIQUE, Linux 6.8)."""
    buffer = ctypes.create_string_buffer(256)
    ctypes.CDLL(None, use_errno=True).statx(AT_FDCWD, path.encode(), 0, STATX_MNT_ID_UNIQUE, buffer)
    mask, unique = struct.unpack_from("I", buffer)[0], struct.unpack_from("Q", buffer, 0x90)[0]
    return int(unique) if mask & STATX_MNT_ID_UNIQUE else os.stat(path).st_dev


def process() -> dict[str, Any]:
    """What a process has inherited from its parent, and what it can see of its parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    umask = os.umask(0)
    os.umask(umask)
    names = ("oom_score_adj", "timerslack_ns", "personality", "coredump_filter", "cgroup", "setgroups", "autogroup")
    files: dict[str, Any] = {}
    for name in names:
        for pid in ("self", "1"):
            with contextlib.suppress(OSError, UnicodeDecodeError), open(f"/proc/{pid}/{name}") as file:
                files[f"{pid} {name}"] = file.read() if name != "autogroup" else file.read().split()[-1]
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.startswith(
                ("Sig", "Shd", "Cap", "Cpus_allowed_list", "Groups", "Umask", "Seccomp", "NoNew", "THP")
            ):
                files[f"status {name}"] = value.strip()
    return {
        "umask": umask,
        "directory": os.getcwd(),
        "descriptors": [fd for fd in range(256) if is_open(fd)],
        "nice": [tried(os.getpriority, os.PRIO_PROCESS, pid) for pid in (0, 1)],
        "input priority": [libc.syscall(IOPRIO_GET, 1, pid) for pid in (0, 1)],
        "policy": [tried(os.sched_getscheduler, pid) for pid in (0, 1)],
        "processors": [sorted(os.sched_getaffinity(pid)) for pid in (0, 1)],
        "limits": [resource.getrlimit(which) for which in range(16)],
        "prctl": {name: libc.prctl(number, 0, 0, 0, 0) for name, number in PRCTL.items()},
        "timers": [signal.getitimer(which) for which in (0, 1, 2)],
        "handlers": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "environment": dict(os.environ),
        "files": files,
    }


def is_open(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(os.fstat(fd))
    return False


def picture() -> dict[str, Any]:
    """Everything that this call can see of the state that it shares with others."""
    return {
        "process": process(),
        "scratch": directory("/tmp"),
        "root": directory("/"),
        **{f"descriptor {fd}": opened(fd) for fd in SHARED},
    }


def everywhere(work: Callable[[int], object]) -> list[Any]:
    return [tried(work, fd) for fd in SHARED]


def set_flags() -> list[Any]:
    """Set O_NONBLOCK, O_ASYNC and O_APPEND on every descriptor, then O_DIRECT and O_NOATIME too."""
    more = os.O_NONBLOCK | os.O_ASYNC | os.O_APPEND
    return everywhere(lambda fd: fcntl.fcntl(fd, fcntl.F_SETFL, more)) + everywhere(
        lambda fd: fcntl.fcntl(fd, fcntl.F_SETFL, more | os.O_DIRECT | os.O_NOATIME)
    )


def set_flags_by_ioctl() -> list[Any]:
    """Set O_NONBLOCK and O_ASYNC by FIONBIO and FIOASYNC."""
    on = struct.pack("i", 1)
    return everywhere(lambda fd: fcntl.ioctl(fd, termios.FIONBIO, on).hex()) + everywhere(
        lambda fd: fcntl.ioctl(fd, termios.FIOASYNC, on).hex()
    )


def set_owners() -> list[Any]:
    """Make the kernel signal this process, or its init."""
    return everywhere(lambda fd: fcntl.fcntl(fd, fcntl.F_SETOWN, 1)) + everywhere(
        lambda fd: fcntl.fcntl(fd, F_SETSIG, signal.SIGKILL)
    )


def make_pipes_small() -> list[Any]:
    """Reduce every pipe to one page."""
    return everywhere(lambda fd: fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 4096))


def make_pipes_large() -> list[Any]:
    """Enlarge every pipe to the maximum."""
    return everywhere(lambda fd: fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, 1 << 20))


def lock() -> list[Any]:
    """Lock every descriptor permanently (flock(2))."""
    return everywhere(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))


def lock_open_files() -> list[Any]:
    """Lock every descriptor permanently, with locks of open files (F_OFD_SETLK) and of processes (F_SETLK)."""
    found: list[Any] = []
    for command in (fcntl.F_OFD_SETLK, fcntl.F_SETLK):
        for writes in (True, False):
            found += everywhere(lambda fd: fcntl.fcntl(fd, command, whole(writes)).hex())  # noqa: B023
    return found


def lease_and_watch() -> list[Any]:
    """Request leases and notifications (F_SETLEASE, F_NOTIFY)."""
    return everywhere(lambda fd: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)) + everywhere(
        lambda fd: fcntl.fcntl(fd, fcntl.F_NOTIFY, 0x80000000 | 0x3F)
    )


def hint() -> list[Any]:
    """Set the expected lifetime of written data (F_SET_RW_HINT)."""
    life = struct.pack("Q", 3)
    return everywhere(lambda fd: fcntl.fcntl(fd, F_SET_RW_HINT, life).hex()) + everywhere(
        lambda fd: fcntl.fcntl(fd, F_SET_FILE_RW_HINT, life).hex()
    )


def change_modes() -> list[Any]:
    """Set the mode of every descriptor's inode to 0."""
    return everywhere(lambda fd: os.fchmod(fd, 0))


def change_owners() -> list[Any]:
    """Set the group of every descriptor's inode to the effective group."""
    return everywhere(lambda fd: os.fchown(fd, -1, os.getegid()))


def change_times() -> list[Any]:
    """Set the times of every descriptor's inode to 1970."""
    return everywhere(lambda fd: os.utime(fd, (1, 1)))


def change_times_to_now() -> list[Any]:
    """Set the times of every descriptor's inode to now, for which write permission is enough."""
    time.sleep(0.02)
    return everywhere(lambda fd: os.utime(fd))


def set_attributes() -> list[Any]:
    """Set extended attributes and inode flags of every descriptor."""
    found: list[Any] = []
    for name in ("user.x", "trusted.x", "security.x"):
        found += everywhere(lambda fd: os.setxattr(fd, name, b"1"))  # noqa: B023
    return found + everywhere(lambda fd: fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("Q", 0xC0)).hex())


def open_again() -> list[Any]:
    """Open every descriptor again. Lock the new descriptor, and move its position."""
    found: list[Any] = []
    for fd in SHARED:
        again = tried(os.open, f"/proc/self/fd/{fd}", os.O_RDWR | os.O_NONBLOCK)
        if isinstance(again, int):
            found.append(tried(fcntl.flock, again, fcntl.LOCK_EX | fcntl.LOCK_NB))
            found.append(tried(os.lseek, again, 1000, os.SEEK_SET))
        else:
            found.append(again)
    return found


def seek() -> list[Any]:
    """Move every descriptor's position, and truncate its file."""
    return everywhere(lambda fd: os.lseek(fd, 1000, os.SEEK_SET)) + everywhere(lambda fd: os.ftruncate(fd, 0))


def change_the_scratch() -> list[Any]:
    """Leave files, times, inode flags and a lock in the scratch."""
    with open("/tmp/file", "w") as file:
        file.write("x")
    fd = os.open("/tmp", os.O_RDONLY)
    found = [tried(fcntl.ioctl, fd, FS_IOC_SETFLAGS, struct.pack("Q", 0xC0)), tried(fcntl.flock, fd, fcntl.LOCK_EX)]
    os.utime("/tmp", (1, 1))
    return [str(answer) for answer in found]


def change_the_process() -> list[Any]:
    """Change what a process passes on to its children, in this process and in the init."""
    libc = ctypes.CDLL(None, use_errno=True)
    found: list[Any] = []
    for pid in (0, 1, os.getppid()):
        found += [
            tried(os.setpriority, os.PRIO_PROCESS, pid, 19),
            tried(os.sched_setaffinity, pid, {min(os.sched_getaffinity(0))}),
            tried(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0)),
            tried(resource.prlimit, pid, resource.RLIMIT_NOFILE, (32, 32)),
        ]
    found += [libc.personality(0x0040000), libc.prctl(29, 1_000_000, 0, 0, 0), libc.prctl(41, 1, 0, 0, 0)]
    for whose in ("self", "1"):
        for name in ("oom_score_adj", "timerslack_ns", "coredump_filter", "autogroup", "comm"):
            with contextlib.suppress(OSError), open(f"/proc/{whose}/{name}", "w") as file:
                file.write("19")
    os.umask(0o777)
    os.environ["LEFT"] = "behind"
    with contextlib.suppress(OSError):
        os.chdir("/")
    signal.setitimer(signal.ITIMER_REAL, 1000)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return [str(answer) for answer in found]


def fill_the_pipes() -> list[Any]:
    """Print more than a pipe holds, to both streams, and leave packets in the pipes."""
    for fd in (1, 2):
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
        os.write(fd, b"x" * 200_000)
    return []


def answer_at_length() -> str:
    """Return a result that is larger than a pipe."""
    return "x" * LARGE


def die() -> None:
    """End without an answer, with the pipes enlarged and locked."""
    make_pipes_large()
    lock()
    os._exit(3)


ATTACKS: dict[str, Callable[[], Any]] = {
    attack.__name__: attack
    for attack in (
        set_flags, set_flags_by_ioctl, set_owners, make_pipes_small, make_pipes_large, lock, lock_open_files,
        lease_and_watch, hint, change_modes, change_owners, change_times, change_times_to_now, set_attributes,
        open_again, seek, change_the_scratch, change_the_process, fill_the_pipes, answer_at_length, die,
    )
}  # fmt: skip


def act(what: str, padding: str = "") -> Any:
    """Take the picture, attack, or end the process.

    Args:
        what: "picture", "exit" or the name of an attack.
        padding: Makes the call's own frame large.
    """
    if what == "exit":
        os._exit(0)
    if what == "picture":
        return picture()
    return ATTACKS[what]()


async def taken(session: Session) -> Any:
    """The picture, or the reason why there is none."""
    result = await session.call("act", {"what": "picture"}, timeout=10.0)
    return result.output if result.error is None else result.error.model_dump(mode="json")


async def main(cells: str) -> None:
    """Make every attack in a separate session. Take pictures from that session and from another."""
    kept = cells == "kept"
    acting: Tool[..., Any] = tool(act, name="act", lifetime="session" if kept else "call")
    with tempfile.TemporaryDirectory() as workspace:
        standby = 0 if cells == "on demand" else 1
        # Otherwise a session that yields has one core less in its pictures.
        async with Supervisor(tools=[acting], standby=standby) as supervisor:
            other = await supervisor.open_session("main", workspace=workspace)
            for name in ATTACKS:
                session = await supervisor.open_session("main", workspace=workspace)
                before = [await taken(session), await taken(other)]
                padding = "x" * LARGE if name == "answer_at_length" else ""
                result = await session.call("act", {"what": name, "padding": padding}, timeout=10.0)
                during = await taken(other)
                until = time.monotonic() + (0 if kept else 5)
                while during != before[1] and time.monotonic() < until:
                    during = await taken(other)  # the answer is here before the call's process is gone
                if kept and name != "answer_at_length":  # what a process did to itself is its own
                    await session.call("act", {"what": "exit"})
                after = [await taken(session), await taken(other)]
                again = [await taken(session), await taken(other)]
                record: dict[str, Any] = {
                    "attack": name,
                    "error": result.error.kind if result.error is not None else "",
                }
                record["answer"] = result.output if not isinstance(result.output, str) else [len(result.output)]
                print(json.dumps(record | {"before": before, "during": during, "after": [*after, *again]}), flush=True)
                await session.close()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
