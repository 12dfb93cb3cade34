"""A sandbox report as lines of text: its mechanisms with their purposes, and the promises that rest on them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import click

from toolcell_sandbox.promises import PROMISES, PROTECTED_NAMES, VERDICTS, Promise
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
_STATE_COLOUR = {"on": "green", "substituted": "yellow", "missing": "red"}


def mechanism_lines(report: SandboxReport) -> Iterator[str]:
    """One line for each mechanism. A mechanism that is off has a second line: its replacement, or the cure."""
    told: dict[str, str] = {}  # each cure, and the first mechanism that needs it
    for mechanism in report.mechanisms:
        state = click.style(f"{mechanism.state:<11}", fg=_STATE_COLOUR[mechanism.state])
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


_VERDICT_COLOUR: dict[str, str] = dict(zip(VERDICTS, ("red", "yellow", "green"), strict=True))


def promise_summary(report: SandboxReport) -> Iterator[str]:
    """The number of promises that two layers keep, and a line for each other promise."""
    all = [*((str(number), promise) for number, promise in enumerate(PROMISES, 1)), ("+", PROTECTED_NAMES)]
    weak = [(mark, promise) for mark, promise in all if promise.verdict(report.on) != VERDICTS[2]]
    yield f"{len(all) - len(weak)} of {len(all)} promises rest on two layers"
    for mark, promise in weak:
        verdict = promise.verdict(report.on)
        lacks = sorted({name for layer in promise.layers for name in layer.lacks(report.on)})
        yield f"  {mark} {promise.text}: {click.style(verdict, fg=_VERDICT_COLOUR[verdict])} (lacks {', '.join(lacks)})"


def promise_lines(report: SandboxReport) -> Iterator[str]:
    """For each promise, the verdict and the two layers."""
    for number, promise in enumerate(PROMISES, 1):
        yield from _promise(str(number), promise, report)
    yield from _promise("+", PROTECTED_NAMES, report)


def _promise(mark: str, promise: Promise, report: SandboxReport) -> Iterator[str]:
    verdict = promise.verdict(report.on)
    yield f"  {mark} {promise.text}: {click.style(verdict, fg=_VERDICT_COLOUR[verdict])}"
    for layer in promise.layers:
        lacking = "" if layer.is_on(report.on) else f" (lacks {', '.join(layer.lacks(report.on))})"
        yield f"      {'on ' if not lacking else 'off'}  {layer.text}{lacking}"
