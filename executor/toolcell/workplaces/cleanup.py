"""Clean up after dead supervisors: find their records, remove their files and cgroups, and audit workspaces.

Everything in a record is checked. A directory is removed only if its name, owner, mode and inode are those of a
supervisor's directory. A cgroup is checked likewise. A workspace is audited, which deletes nothing.
"""

import errno
import logging
import os
import re
import stat
import time
from dataclasses import dataclass, field, replace

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import AT_FDCWD
from toolcell_sandbox.mechanisms.cgroup_tree import remove_stale
from toolcell_sandbox.mechanisms.mounts import open_beneath
from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.audit import Finding, ProtectedTrees, Settled, leading_of
from toolcell_sandbox.trees.facts import Look, Seen
from toolcell_sandbox.trees.protected import matcher
from toolcell_sandbox.trees.quarantine import Quarantine

from .record import DRAFTS, MAX_BYTES, OUTPUTS, InFlight, Inode, Left, read
from .runtime import RuntimeDirectory, try_lock

_log = logging.getLogger("toolcell")
WITHIN_S = 10.0
"""The time limit of the whole cleanup, in seconds. The next supervisor does the rest."""
PROCESSES_S = 2.0  # a supervisor's processes are gone within one second of its death
_NAMES = {kind: re.compile(rf"toolcell-{kind}-[a-z0-9_]{{8}}") for kind in (OUTPUTS, DRAFTS)}  # mkdtemp's
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Audited:
    """The audit of the calls that were in flight when their supervisor died."""

    pid: int
    findings: list[Finding] = field(default_factory=list[Finding])
    unknown: str = ""  # parts that the audit could not see
    stuck: str = ""  # findings that it could not move


def clean(runtime: RuntimeDirectory, quarantine: Quarantine, within_s: float = WITHIN_S) -> list[Audited]:
    """Clean up after every dead supervisor of this user, and yield the findings of the audits. Blocks. Raises OSError
    if the directory of records cannot be read, and TimeoutError if another supervisor cleans up for too long.

    A record is removed when its cleanup is complete. An unreadable record is put aside, with a warning in the log.
    """
    until = time.monotonic() + within_s
    found: list[Audited] = []
    if not runtime.records():
        return found
    with runtime.locked(until):
        for name in runtime.records():
            if time.monotonic() > until:
                _log.warning(
                    "cleanup ran out of time before the record %s; the next supervisor continues with it", name
                )
                break
            try:
                _clean_record(runtime, name, quarantine, until, found)
            except FileNotFoundError:
                continue  # its supervisor has ended, or has rewritten it
            except OSError:
                _log.exception("the record of a supervisor cannot be read: %s/%s", runtime.path, name)
    return found


def _clean_record(
    runtime: RuntimeDirectory, name: str, quarantine: Quarantine, until: float, found: list[Audited]
) -> None:
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=runtime.fd)
    try:
        is_free = try_lock(fd)
        info = os.fstat(fd)
        if not info.st_nlink:
            return  # its supervisor has ended, or has rewritten it, which releases this lock
        try:
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_size > MAX_BYTES:
                raise ValueError("it is not a regular file of this user, or larger than 64 MiB")
            left = read(_whole(fd))
        except (ValueError, RecursionError) as error:
            if is_free:
                _log.warning("the record %s/%s was put aside as %s: %s", runtime.path, name, runtime.aside(name), error)
            return
        if not (is_free or left.owner_is_gone) or (left.shows_processes and left.owner.lives):
            return
        if _clean_after(left, quarantine, until, found):
            os.unlink(name, dir_fd=runtime.fd)
    finally:
        os.close(fd)


def _clean_after(left: Left, quarantine: Quarantine, until: float, found: list[Audited]) -> bool:
    """Remove what one supervisor has left, and audit. Returns whether everything was done."""
    done = True
    for path, inode in left.cgroups if left.is_of_this_boot else ():
        try:
            remove_stale(path, inode, left.owner.pid)
        except PermissionError as error:
            _log.warning("cleanup left a path of a record untouched: %s", error)
        except (OSError, SandboxError):
            _log.exception("a cgroup of the dead supervisor %d cannot be removed: %s", left.owner.pid, path)
            done = False
    _await_processes(left, until)
    for kind, path, inode in left.directories:
        try:
            _remove(kind, path, inode)
        except PermissionError as error:
            _log.warning("cleanup left a directory of a record untouched: %s", error)
        except (OSError, SandboxError):
            _log.exception("a directory of the dead supervisor %d could not be removed: %s", left.owner.pid, path)
            done = False
    audited = Audited(left.owner.pid)
    for flight in left.in_flight:
        if time.monotonic() > until:
            return False  # left for the next supervisor
        settled = audit_after(flight, quarantine)
        audited.findings += settled.findings
        audited.unknown, audited.stuck = audited.unknown or settled.unknown, audited.stuck or settled.stuck
    if audited.findings or audited.unknown or audited.stuck:
        found.append(audited)
    done = done and not audited.stuck
    return done


def _await_processes(left: Left, until: float) -> None:
    """Wait until no process of a dead supervisor can write. This usually takes milliseconds."""
    until = min(until, time.monotonic() + PROCESSES_S)
    while left.shows_processes and any(process.lives for process in left.processes):
        if time.monotonic() > until:
            _log.warning("processes of the dead supervisor %d still run", left.owner.pid)
            return
        time.sleep(0.005)


def audit_after(flight: InFlight, quarantine: Quarantine) -> Settled:
    """Quarantine files that were made, changed or moved under a protected name since the calls were in flight.

    The state before the calls is lost with their supervisor. So these count as findings: a file that was changed since
    then, a new directory, and the content of a directory that replaced the beginning of a protected name (`.git`).
    """
    roots = tuple(dict.fromkeys(map(os.path.realpath, flight.writable)))
    trees = ProtectedTrees(roots, flight.names)
    matching = matcher(flight.names)
    changed: set[str] = set()

    def is_old(root: str, path: str, seen: Seen) -> bool:
        is_directory = stat.S_ISDIR(seen.mode)
        was_there = (seen.device, seen.inode) in flight.held
        if was_there and not is_directory and seen.changed_ns >= flight.since_ns:
            changed.add(f"{root.rstrip('/')}/{path}")
        if seen.changed_ns >= flight.since_ns and not (is_directory and was_there):
            return False
        above = leading_of(matching, seen.name, path, seen) if os.path.dirname(path) else ()
        return not any(_is_newly_there(f"{root}/{each}", flight) for each in above)

    before: list[Look] = []
    for root, look in zip(roots, trees.look(), strict=True):
        old = {path: seen for path, seen in look.found.items() if is_old(root, path, seen)}
        before.append(replace(look, found=old, taken_ns=flight.since_ns))
    settled = trees.settle(tuple(before), quarantine)
    findings = (replace(each, what="changed") if each.path in changed else each for each in settled.findings)
    return replace(settled, findings=tuple(findings))


def _is_newly_there(path: str, flight: InFlight) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False  # gone
    return info.st_ctime_ns >= flight.since_ns and (info.st_dev, info.st_ino) not in flight.held


def _remove(kind: str, path: str, inode: Inode) -> None:
    """Remove a directory that a supervisor made. Raises PermissionError if name, owner, mode or inode are not those of
    such a directory. Every step uses descriptors.
    """
    parent_path, name = os.path.split(path)
    try:
        parent = open_beneath(AT_FDCWD, parent_path, in_root=False)
    except SandboxError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return  # gone
        raise PermissionError(error.errno, "its parent cannot be opened without following a link", path) from error
    fd = -1
    try:
        try:
            fd = os.open(name, _OPEN, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:  # it is a link or a file
            raise PermissionError(error.errno, "it is not a directory of this user", path) from error
        info = os.fstat(fd)
        is_ours = info.st_uid == os.geteuid() and stat.S_IMODE(info.st_mode) == 0o700
        if not is_ours or not _NAMES[kind].fullmatch(name) or (info.st_dev, info.st_ino) != inode:
            raise PermissionError(errno.EPERM, "it is not the directory that the supervisor made", path)
        for entry in os.listdir(fd):
            walker.remove(entry, fd)
        os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)
        if fd >= 0:
            os.close(fd)


def _whole(fd: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)
