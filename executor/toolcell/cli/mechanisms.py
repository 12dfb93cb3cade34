"""A sandbox report as lines of text, one for each mechanism, with its purpose."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import click

from toolcell_sandbox.report import Mechanism, SandboxReport

PURPOSE: Mapping[str, str] = MappingProxyType(
    {
        "user_namespace": "has an identity of its own, without privileges",
        "mount_namespace": "sees only the files that are bound in",
        "pid_namespace": "sees and signals only its own processes",
        "net_namespace": "has no network interface",
        "ipc_namespace": "shares no memory or queue with others",
        "uts_namespace": "does not see the host's name",
        "cgroup_namespace": "does not see the host's control groups",
        "mount_setattr": "makes mounts read-only, with all mounts below them",
        "idmapped_mounts": "works on root's files without being root",
        "pivot_root": "cannot return to the host's file system",
        "proc": "has a /proc with only its own processes",
        "landlock": "restricts file access, as a second layer",
        "landlock_net": "restricts TCP ports, as a second layer",
        "landlock_scope": "keeps signals and sockets inside the call",
        "seccomp": "makes only the system calls it needs",
        "no_new_privs": "gains no privilege by running a program",
        "close_range": "inherits no open file",
        "pidfd": "is ended by handle, never by a reused number",
        "cgroup": "has limits of memory and processes as a whole",
    }
)
IDENTITY: Mapping[str, str] = MappingProxyType(
    {
        "root": "root: each cell gets an unprivileged user id of its own",
        "rootless": "an ordinary user: each cell is in a user namespace of its own",
        "userns-root": "root of a container: each cell is in a user namespace of its own",
    }
)
_COLOUR = {"on": "green", "substituted": "yellow", "missing": "red"}


def lines(report: SandboxReport) -> Iterator[str]:
    """One line for each mechanism. A mechanism that is off has a second line: its replacement, or the cure."""
    told: dict[str, str] = {}  # each cure, and the first mechanism that needs it
    for mechanism in report.mechanisms:
        state = click.style(f"{mechanism.state:<11}", fg=_COLOUR[mechanism.state])
        purpose = PURPOSE.get(mechanism.name, "")
        detail = f" ({mechanism.detail})" if mechanism.state == "on" and mechanism.detail else ""
        yield f"  {state}  {mechanism.name:<16}  {purpose}{detail}"
        for more in _more(mechanism, told.setdefault(mechanism.cure, mechanism.name)):
            yield f"{'':33}{more}"


def _more(mechanism: Mechanism, told_at: str) -> Iterator[str]:
    if mechanism.state == "on":
        return
    if mechanism.detail:
        word = "instead" if mechanism.state == "substituted" else "reason"
        yield f"{word}: {mechanism.detail}"
    if mechanism.cure:
        yield f"cure: {mechanism.cure if told_at == mechanism.name else f'as for {told_at}'}"
