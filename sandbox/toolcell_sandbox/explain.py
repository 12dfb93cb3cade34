"""Explain a profile in plain words: what its cells may do. It shows names of environment variables, never values."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import fields

from .limits import Limits
from .network import HostNetwork, ProxyNetwork
from .trees.protected import GIT_PARTS, GIT_POINTER, GIT_STATES

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from .network import Network

    class Explainable(Protocol):
        """The fields of a `CellProfile` that an explanation needs."""

        @property
        def grants(self) -> frozenset[str]: ...
        @property
        def limits(self) -> Limits: ...
        @property
        def readable(self) -> tuple[str, ...]: ...
        @property
        def writable(self) -> tuple[str, ...]: ...
        @property
        def system(self) -> tuple[str, ...]: ...
        @property
        def env(self) -> Mapping[str, str]: ...
        @property
        def pass_env(self) -> tuple[str, ...]: ...
        @property
        def network(self) -> Network: ...
        @property
        def reach(self) -> Network: ...
        @property
        def proc(self) -> bool: ...
        @property
        def protected(self) -> tuple[str, ...]: ...
        def environment(self, host: Mapping[str, str]) -> dict[str, str]: ...


BROKERED = {
    "channel": "send messages to people, and ask them",
    "memory.read": "search the memory",
    "memory.write": "store in the memory",
    "web": "GET pages of the public web",
    "http": "make the HTTP requests that its rules allow",
}
"""Capabilities that the supervisor carries out for the cell, one request at a time."""

NEVER = (
    "see a file that is not named here",
    "see, signal or trace a process of the host or of another cell",
    "gain a privilege: no capability, no set-id program, no new namespace, no mount",
    "leave a process behind when its call is over",
    "load kernel code, use io_uring, bpf, keyrings or shared memory of the host",
)

_LIMITS = {
    "wall_s": "wall time of a call",
    "cpu_s": "CPU time of a call, children included",
    "memory_bytes": "memory",
    "processes": "processes and threads",
    "open_files": "open files of each process",
    "file_bytes": "size of a written file",
    "scratch_bytes": "size of /tmp",
    "scratch_inodes": "files and directories in /tmp",
    "output_bytes": "standard output, and standard error",
    "result_bytes": "size of a result",
    "start_s": "time for a cell to start",
    "grace_s": "time to end tidily",
}
_BUT = {
    GIT_POINTER: "a link, or a file that leads out of the workspace",
    GIT_PARTS["hooks"]: "but git's own samples",
    **dict.fromkeys((GIT_PARTS["config"], GIT_PARTS["config.worktree"]), "but harmless settings"),
    GIT_PARTS["commondir"]: "but a work tree's own",
    **dict.fromkeys(GIT_STATES.values(), "but steps that run nothing"),
}
"""The files under a protected name that a call may make (`harmless.py`)."""
_WIDTH = 100
_LABEL = 13


def explain(profile: "Explainable", more: "Mapping[str, Iterable[str]] | None" = None) -> str:
    """Some lines for people. A call may do this or less, as its tool needs.

    `more` are entries, by label, about what the supervisor carries out for the cell.
    """
    return "\n".join(_lines(profile, more or {}))


def _lines(profile: "Explainable", more: "Mapping[str, Iterable[str]]") -> Iterator[str]:
    grants = profile.grants
    workspace = ["the workspace"] if {"read", "write"} & grants else []
    may_write = "write" in grants
    readable = [*workspace, *profile.readable, *(() if may_write else profile.writable)]
    yield from _entry("reads", [*readable, *profile.system, "nothing else"])
    yield from _entry("writes", [*(["the workspace", *profile.writable] if may_write else []), "its own /tmp"])
    if may_write:
        yield from _entry("protected", protected(profile))
    yield from _entry("runs", ["any program that it can read"] if "exec" in grants else ["no program: no execve"])
    yield from _entry("network", [network(profile)])
    yield from _entry("asks for", [text for name, text in BROKERED.items() if name in grants] or ["nothing"])
    for label, items in more.items():
        yield from _entry(label, items)
    yield from _entry("environment", environment(profile))
    yield from _entry("processes", ["only its own in /proc" if profile.proc else "no /proc"])
    for index, field in enumerate(fields(Limits)):
        value = amount(field.name, getattr(profile.limits, field.name))
        yield f"{'limits' if index == 0 else '':<{_LABEL}}{value:>9}  {_LIMITS[field.name]}"
    for index, text in enumerate(NEVER):
        yield f"{'cannot ever' if index == 0 else '':<{_LABEL}}{text}"


def essentials(profile: "Explainable") -> str:
    """One line: where the cells write, what they run and reach, and their first limits."""
    limits = profile.limits
    writable = ["the workspace", *profile.writable] if "write" in profile.grants else []
    reach = profile.reach
    network = "the host's network" if isinstance(reach, HostNetwork) else "no network"
    first = [amount(name, getattr(limits, name)) for name in ("wall_s", "memory_bytes")]
    return "; ".join(
        (
            f"writes {', '.join((*writable, 'its own /tmp'))}",
            "runs programs" if "exec" in profile.grants else "runs no program",
            f"a proxy to {', '.join((*reach.allow, *reach.allow_private)) or 'no host'}"
            if isinstance(reach, ProxyNetwork)
            else network,
            f"{', '.join(first)}, {limits.processes} processes",
        )
    )


def protected(profile: "Explainable") -> list[str]:
    """The names that a cell cannot write, wherever it may write."""
    if not profile.protected:
        return ["no name: it may write what git, editors, shells and CI services run later"]
    first, *others = (f"{name} ({_BUT[name]})" if name in _BUT else name for name in profile.protected)
    return [f"made or changed nowhere, for they run later: {first}", *others]


def network(profile: "Explainable") -> str:
    """What the profile's network policy allows."""
    reach = profile.reach
    if isinstance(reach, HostNetwork):
        return "the host's own, with its loopback and private networks; nothing is checked"
    if isinstance(reach, ProxyNetwork):
        hosts = ", ".join((*reach.allow, *(f"{pair} (may be a private address)" for pair in reach.allow_private)))
        return (
            f"HTTP and CONNECT, through a proxy, to {hosts or 'no host'}; "
            f"{reach.max_connections} connections at a time, {amount('max_bytes', reach.max_bytes)} each way in a call"
        )
    unused = "" if profile.network == reach else "; its network policy counts for nothing without the grant 'net'"
    return f"none: no interface, and no socket can be made{unused}"


def environment(profile: "Explainable") -> list[str]:
    """The names in a cell's environment, and where the value of each comes from."""
    fixed = sorted(profile.environment({}).keys() - profile.env.keys())
    passed = sorted(set(profile.pass_env) - profile.env.keys())
    return [
        *fixed,
        *(f"{name} (set)" for name in sorted(profile.env)),
        *(f"{name} (the supervisor's, if it has one)" for name in passed),
    ]


def amount(name: str, value: float) -> str:
    """A limit with its unit: 30 s, 512 MiB, 64."""
    if name.endswith("_s"):
        return f"{value:g} s"
    if not name.endswith("_bytes"):
        return str(value)
    size, unit = int(value), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size % 1024:
            break
        size, unit = size // 1024, larger
    return f"{size} {unit}"


def _entry(label: str, items: Iterable[str]) -> list[str]:
    text = ", ".join(items)
    indent = " " * _LABEL
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
