"""The record that a supervisor keeps for the cleanup after its death: a file of lines, locked during its life.

A line is a JSON array. It is appended by one write before the event that it describes, so an incomplete line can be
ignored. A held lock shows that the supervisor lives, unless only a fork of the supervisor holds it. Then the pid
decides.
"""

import errno
import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast

from toolcell.wire import forks
from toolcell_sandbox.view import Bound

from .runtime import RuntimeDirectory, try_lock

_log = logging.getLogger("toolcell")
VERSION = 1
REWRITE_BYTES = 256 * 1024
"""A record that is longer than this, and than four times its size after the last rewrite, is rewritten."""
MAX_BYTES = 64 * 1024 * 1024
OUTPUTS, DRAFTS = "outputs", "drafts"
_CLOCK_REALTIME_COARSE = 5  # linux/time.h: the clock of file timestamps

Inode = tuple[int, int]
Trees = tuple[tuple[str, ...], tuple[str, ...]]
"""The writable roots and the protected names of a profile."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process, by its pid and the clock tick of its start."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process with this pid. Its start is 0 if there is none."""
        return cls(pid, started_at(pid))

    @property
    def lives(self) -> bool:
        """Whether the process runs here. False for a zombie."""
        return self.started != 0 and started_at(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class InFlight:
    """Writable roots in which calls were in flight, with the data that an audit of them needs."""

    writable: tuple[str, ...]
    names: tuple[str, ...]
    since_ns: int
    held: frozenset[Inode]  # protected paths and their parent directories that existed before


@dataclass(frozen=True, slots=True)
class Left:
    """The content of the record of a killed supervisor."""

    owner: Process
    boot: str
    pid_namespace: int
    directories: tuple[tuple[str, str, Inode], ...]  # kind, path
    cgroups: tuple[tuple[str, Inode], ...]
    processes: tuple[Process, ...]
    in_flight: tuple[InFlight, ...]

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == boot_id()

    @property
    def shows_processes(self) -> bool:
        """Whether the record's pids are valid in this pid namespace and since this boot."""
        return self.is_of_this_boot and self.pid_namespace == pid_namespace()

    @property
    def owner_is_gone(self) -> bool:
        """Whether the supervisor is certainly dead, even if its lock is held."""
        return not self.is_of_this_boot or (self.shows_processes and not self.owner.lives)


class RunRecord:
    """A supervisor's record of itself. It writes nothing before `begin`, or if the record cannot be kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # threads write long outputs
        self._fd = -1
        self._name = ""
        self._directory: RuntimeDirectory | None = None
        self._size, self._rewrite_at = 0, REWRITE_BYTES
        self._lines: dict[tuple[str, object], bytes] = {}  # the lines that are true now
        self._names: dict[tuple[str, ...], int] = {}
        self._trees: dict[Trees, int] = {}
        self._numbers = itertools.count()
        self._held: dict[int, tuple[Bound, ...]] = {}
        forks.register(self)

    def __repr__(self) -> str:
        return f"<Record {self._name or 'not begun'} · {self._size} bytes>"

    @property
    def path(self) -> str:
        """The path of the record, "" if none is kept."""
        return f"{self._directory.path}/{self._name}" if self._directory is not None else ""

    def begin(self, directory: RuntimeDirectory) -> None:
        """Make the file, and own `directory` from now on. Raises OSError if that fails."""
        self._lines[("owner", 0)] = _line(
            "toolcell", VERSION, os.getpid(), started_at(os.getpid()), boot_id(), pid_namespace()
        )
        self._directory = directory
        try:
            self._rewrite()
        except OSError:
            self._directory = None
            raise

    def end(self) -> None:
        """Remove the file, because nothing is left to clean up."""
        with self._lock:
            if self._fd >= 0 and self._directory is not None:
                with suppress(FileNotFoundError):  # the file was removed from outside
                    os.unlink(self._name, dir_fd=self._directory.fd)
                os.close(self._fd)
                self._fd = -1
            if self._directory is not None:
                self._directory.close()
                self._directory = None

    def directory(self, kind: str, path: str) -> None:
        """Note a new directory of this kind."""
        if self._fd >= 0:
            info = os.lstat(path)
            self._note(("directory", path), _line("directory", kind, path, info.st_dev, info.st_ino))

    def drafts(self, path: str) -> None:
        """Note a directory for copies of git's settings."""
        self.directory(DRAFTS, path)

    def cgroup(self, paths: Iterable[str]) -> None:
        """Note a new cgroup: one directory in each hierarchy."""
        for path in paths:
            if self._fd >= 0:
                with self._accounted(path):
                    info = os.lstat(path)
                    self._note(("cgroup", path), _line("cgroup", path, info.st_dev, info.st_ino))

    def process(self, pid: int) -> None:
        """Note a new zygote, or the init of a cell. Their death ends all their processes."""
        if self._fd >= 0:
            with self._accounted(f"process {pid}"):
                self._note(("process", pid), _line("process", pid, started_at(pid)))

    @contextmanager
    def _accounted(self, what: str) -> Generator[None]:
        """Log that `what` could not be noted, for example because no descriptor is left. Its supervisor ends it too."""
        try:
            yield
        except OSError:
            _log.exception("%s is missing in this supervisor's record: %s", what, self.path)

    def enter(self, trees: Trees, since_ns: int, held: tuple[Bound, ...]) -> None:
        """Note that a call which may write to these roots will be sent. `held` existed before the call."""
        if self._fd < 0:
            return
        roots, names = trees
        lines: dict[tuple[str, object], bytes] = {}
        with self._lock:
            number = self._trees.get(trees)
            if number is None:
                named = self._names.get(names)
                if named is None:
                    named = self._names[names] = len(self._names)
                    lines["names", named] = _line("names", named, names)
                number = self._trees[trees] = next(self._numbers)
                lines["tree", number] = _line("tree", number, named, roots)
            if self._held.get(number) is not held:
                self._held[number] = held
                lines["held", number] = _line("held", number, [each.inode for each in held])
            lines["enter", number] = b'["enter",%d,%d]\n' % (number, since_ns)
            self._write(lines)  # in one write: a rewrite in between would drop the lines without their "enter"

    def leave(self, trees: Trees) -> None:
        """Note that no process can write to the roots any more, and that the roots were audited."""
        with self._lock:
            number = self._trees.get(trees)
            if self._fd >= 0 and number is not None and self._lines.pop(("enter", number), None) is not None:
                self._write({}, b'["leave",%d]\n' % number)

    def _note(self, key: tuple[str, object], line: bytes) -> None:
        with self._lock:
            self._write({key: line})

    def _write(self, lines: dict[tuple[str, object], bytes], passing: bytes = b"") -> None:
        """Append lines that are true now, and a line that cancels an earlier one. The caller holds the lock."""
        if self._fd < 0:
            return
        self._lines |= lines
        text = b"".join(lines.values()) + passing
        try:
            if os.write(self._fd, text) != len(text):
                os.ftruncate(self._fd, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            self._size += len(text)
            if self._size > self._rewrite_at:
                self._rewrite_at = 2 * self._size  # if this rewrite fails, it is not tried again at each line
                self._rewrite()
        except OSError:
            _log.exception("a line could not be written to this supervisor's record: %s", self.path)

    def _rewrite(self) -> None:
        """Write the present state to a new file, and remove the old file. If both remain, they agree."""
        assert self._directory is not None
        for kind, key in list(self._lines):
            if kind in ("tree", "held"):
                is_over = ("enter", key) not in self._lines
            else:
                is_over = kind == "process" and not _names_a_living_process(self._lines[kind, key])
            if is_over:
                del self._lines[kind, key]
        self._trees = {trees: number for trees, number in self._trees.items() if ("tree", number) in self._lines}
        self._held = {number: held for number, held in self._held.items() if ("held", number) in self._lines}
        name = f"{os.getpid()}-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{name}.new", flags, 0o600, dir_fd=self._directory.fd)
        try:
            try_lock(fd)  # before another supervisor can find it unlocked
            text = b"".join(self._lines.values())
            if os.write(fd, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._directory.path)
            at = self._directory.fd
            os.rename(f"{name}.new", f"{name}.record", src_dir_fd=at, dst_dir_fd=at)
        except OSError:
            os.unlink(f"{name}.new", dir_fd=self._directory.fd)
            os.close(fd)
            raise
        if self._fd >= 0:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._directory.fd)
            os.close(self._fd)
        self._fd, self._name, self._size = fd, f"{name}.record", len(text)
        self._rewrite_at = max(REWRITE_BYTES, 4 * len(text))

    def let_go(self) -> None:
        """In a fork of the supervisor's process, drop the record and the lock, which belong to the supervisor."""
        self._lock = threading.Lock()  # another thread may have held the lock at the fork
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._directory is not None:
            os.close(self._directory.fd)
            self._directory = None


def moment_ns() -> int:
    """The present time by the clock of file timestamps. Later changes never have an earlier timestamp."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def read(raw: bytes) -> Left:
    """Read a record. Raises ValueError if no supervisor has written it."""
    lines: list[object] = [
        json.loads(line) for line in raw.split(b"\n")[:-1]
    ]  # without the incomplete text after the last newline
    match lines[:1]:
        case [["toolcell", int(version), int(pid), int(started), str(boot), int(namespace)]] if version == VERSION:
            pass
        case _:
            raise ValueError(f"it does not begin as a record of version {VERSION} does")
    directories: list[tuple[str, str, Inode]] = []
    cgroups: list[tuple[str, Inode]] = []
    processes: list[Process] = []
    names: dict[int, tuple[str, ...]] = {}
    trees: dict[int, tuple[int, tuple[str, ...]]] = {}
    held: dict[int, frozenset[Inode]] = {}
    since: dict[int, int] = {}
    for line in map(_items, lines[1:]):
        match line:
            case ["directory", str(kind), str(path), int(device), int(inode)] if kind in (OUTPUTS, DRAFTS):
                directories.append((kind, _absolute(path), (device, inode)))
            case ["cgroup", str(path), int(device), int(inode)]:
                cgroups.append((_absolute(path), (device, inode)))
            case ["process", int(number), int(tick)]:
                processes.append(Process(number, tick))
            case ["names", int(number), words]:
                names[number] = _texts(words)
            case ["tree", int(number), int(named), roots] if named in names:
                trees[number] = named, tuple(map(_absolute, _texts(roots)))
            case ["held", int(number), pairs] if number in trees:
                held[number] = frozenset(map(_inode, _items(pairs)))
            case ["enter", int(number), int(at)] if number in held:
                since[number] = at
            case ["leave", int(number)] if number in since:
                del since[number]
            case _:
                raise ValueError(f"it has an invalid line: {line!a:.200}")
    flights = [InFlight(trees[number][1], names[trees[number][0]], at, held[number]) for number, at in since.items()]
    owner = Process(pid, started)
    return Left(owner, boot, namespace, tuple(directories), tuple(cgroups), tuple(processes), tuple(flights))


def _line(*words: object) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"


def _names_a_living_process(line: bytes) -> bool:
    _word, pid, started = json.loads(line)
    return Process(pid, started).lives


def _items(found: object) -> list[object]:
    if not isinstance(found, list):
        raise ValueError("a value is not a list")
    return cast("list[object]", found)


def _texts(found: object) -> tuple[str, ...]:
    words = _items(found)
    texts = tuple(word for word in words if isinstance(word, str))
    if len(texts) != len(words):
        raise ValueError("a list has an element that is not a string")
    return texts


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path or os.path.normpath(path) != path:
        raise ValueError(f"a path is not absolute and normalised: {path!a:.200}")
    return path


def _inode(pair: object) -> Inode:
    match pair:
        case [int(device), int(inode)]:
            return device, inode
        case _:
            raise ValueError("an inode is not a pair of numbers")


def started_at(pid: int) -> int:
    """The clock tick of a process's start, since boot (proc_pid_stat(5)). 0 if there is no such process, or it is a
    zombie.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def boot_id() -> str:
    """The id of the present boot."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""  # some containers hide it


def pid_namespace() -> int:
    """The inode of the present pid namespace."""
    return os.stat("/proc/self/ns/pid").st_ino
