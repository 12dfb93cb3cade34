"""Landlock: the files that may be opened, and no signals to processes outside of the cell. Needs no privilege."""

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import attempt, prepared, syscall

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2

FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights of a rule for a path that is not a directory. Other rights fail with EINVAL."""
READ = READ_FILE | READ_DIR
ALL = (1 << 16) - 1
WRITE = (
    WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM | REFER
)

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
_CURE = "Boot a kernel from 5.13 with Landlock in the lsm= list."


@dataclass(frozen=True, slots=True)
class Rule:
    """Rights on a path and everything below it; only `FILE_RIGHTS` if it is not a directory."""

    path: str
    rights: int


_ruleset_attr = struct.Struct("=3Q").pack  # files, network, scopes
_path_beneath_attr = struct.Struct("=Qi").pack  # rights, descriptor
_net_port_attr = struct.Struct("=2Q").pack  # rights, port


def abi() -> int:
    """The kernel's Landlock ABI, or minus the errno (ENOSYS: not built, EOPNOTSUPP: not in the lsm= list)."""
    return attempt("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)


def handled(version: int) -> tuple[int, int, int]:
    """File, network and scope rights that this ABI knows and that a cell handles. Known to ABI 7 (Linux 6.15)."""
    files = (1 << 13) - 1
    for needs, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        if version >= needs:
            files |= right
    network = BIND_TCP | CONNECT_TCP if version >= 4 else 0
    scopes = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if version >= 6 else 0
    return files, network, scopes


def restrict(rules: Iterable[Rule], version: int, *, connect: Iterable[int] | None = ()) -> None:
    """Allow only the files of `rules`, no signals and no abstract sockets outside of the cell, and of TCP only
    connections to the ports in `connect`. None does not restrict TCP.

    no_new_privs must be set. It applies to this thread and its children, so the process must be single-threaded.
    """
    files, network, scopes = handled(version)
    if connect is None:
        network = 0
    ruleset = _create(files, network, scopes, version)
    try:
        for rule in rules:
            _add(ruleset, rule, files)
        for port in connect or () if network else ():
            attr = _net_port_attr(CONNECT_TCP, port)
            step = f"add Landlock rule for TCP port {port}"
            syscall("landlock_add_rule", ruleset, _RULE_NET_PORT, attr, 0, step=step, mechanism="landlock")
        _restrict_self(ruleset)
    finally:
        os.close(ruleset)


class FileLayer:
    """A second Landlock layer, with file rules only, for a process that is restricted already. Processes that are
    forked before it is enforced share the ruleset: a rule is added once, and each process enforces it for itself.
    """

    def __init__(self, rules: Iterable[Rule], version: int) -> None:
        self._files = handled(version)[0]
        self._ruleset = _create(self._files, 0, 0, version)
        self._restrict = prepared("landlock_restrict_self", self._ruleset, 0, **_RESTRICT)
        self.allow(rules)

    def allow(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            _add(self._ruleset, rule, self._files)

    def enforce(self) -> None:
        """Enforce the rules in this process and its later children."""
        self._restrict()
        os.close(self._ruleset)


def call_layer() -> tuple[Callable[[], None], ...]:
    """The steps that add one more layer to a call process, which is forked later: with it, the process cannot signal,
    trace or connect to the cell's init or anything else outside. No steps below ABI 6, which has no scopes.

    The layer does not restrict files. But since ABI 2, every layer refuses to move a file into another directory
    without a REFER rule, even a layer that handles no file rights. So this layer allows REFER everywhere, and the
    layers below decide.

    At most 16 layers can be nested (E2BIG is an error).
    """
    version = abi()
    files, _network, scopes = handled(version)
    if not scopes:
        return ()
    ruleset = _create(files & REFER, 0, scopes, version)
    if files & REFER:
        _add(ruleset, Rule("/", REFER), files)
    return prepared("landlock_restrict_self", ruleset, 0, **_RESTRICT), partial(os.close, ruleset)


def _create(files: int, network: int, scopes: int, version: int) -> int:
    attr = _ruleset_attr(files, network, scopes)
    size = 8 if version < 4 else 16 if version < 6 else 24  # an older kernel does not have the later fields
    return syscall(
        "landlock_create_ruleset", attr, size, 0, step="create Landlock ruleset", mechanism="landlock", cure=_CURE
    )


def _add(ruleset: int, rule: Rule, files: int) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(
            f"A path of the profile cannot be reached from inside the cell: {rule.path}",
            step="add Landlock rule",
            mechanism="landlock",
            errno=error.errno or 0,
            cure="Make its parents accessible to the cell's user, or take it out of the profile.",
        ) from error
    try:
        attr = _path_beneath_attr(rule.rights & files, fd)
        step = f"add Landlock rule for {rule.path}"
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, attr, 0, step=step, mechanism="landlock")
    finally:
        os.close(fd)


def _restrict_self(ruleset: int) -> None:
    syscall("landlock_restrict_self", ruleset, 0, **_RESTRICT)


_RESTRICT = {
    "step": "restrict with Landlock",
    "mechanism": "landlock",
    "cure": "Fewer than 16 Landlock layers may be nested: enter from a less restricted process.",
}
