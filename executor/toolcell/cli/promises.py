"""The seven promises, and what each rests on here: two layers, each of them on or not by the report of the probe."""

from collections.abc import Iterator
from dataclasses import dataclass

import click

from toolcell_sandbox.report import SandboxReport

OWN_ROOT = frozenset({"mount_namespace", "pivot_root", "mount_setattr"})
"""`enter()` gives a cell a root of its own when it has all three, or none."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One reason why a promise holds. It is on where all mechanisms of one of the alternatives are."""

    text: str
    alternatives: tuple[frozenset[str], ...]

    def is_on(self, on: frozenset[str]) -> bool:
        return any(needed <= on for needed in self.alternatives)

    def lacks(self, on: frozenset[str]) -> list[str]:
        """The mechanisms that would complete the alternative that is nearest."""
        nearest = min((needed - on for needed in self.alternatives), key=len)
        return sorted(nearest)


@dataclass(frozen=True, slots=True)
class Promise:
    """What code in a cell cannot do (the words of README.md), and the two layers that see to it."""

    text: str
    layers: tuple[Layer, Layer]

    def verdict(self, report: SandboxReport) -> str:
        """ "two layers", "one layer only" or "not promised here"."""
        return VERDICTS[sum(layer.is_on(report.on) for layer in self.layers)]

    def to_json(self, report: SandboxReport) -> dict[str, object]:
        """The promise as it stands on this machine."""
        layers = [
            {"text": layer.text, "on": layer.is_on(report.on), "lacks": layer.lacks(report.on)} for layer in self.layers
        ]
        return {"cannot": self.text, "verdict": self.verdict(report), "layers": layers}


VERDICTS: tuple[str, ...] = ("not promised here", "one layer only", "two layers")
_COLOUR: dict[str, str] = dict(zip(VERDICTS, ("red", "yellow", "green"), strict=True))


def _needs(text: str, *alternatives: frozenset[str] | str) -> Layer:
    sets = tuple(frozenset({each}) if isinstance(each, str) else each for each in alternatives)
    return Layer(text, sets or (frozenset(),))


PROMISES: tuple[Promise, ...] = (
    Promise(
        "write outside what its profile makes writable",
        (_needs("read-only mounts in a root of its own", OWN_ROOT), _needs("Landlock", "landlock")),
    ),
    Promise(
        "read files that are not bound in",
        (_needs("a root of its own, where they are not", OWN_ROOT), _needs("Landlock", "landlock")),
    ),
    Promise(
        "use any network",
        (_needs("an empty network namespace", "net_namespace"), _needs("seccomp: no socket can be made", "seccomp")),
    ),
    Promise(
        "signal, trace or read a process outside its own call",
        (
            _needs("a pid namespace of its own", "pid_namespace"),
            _needs(
                "Landlock scopes for signals; no system call that traces or reads (seccomp)",
                frozenset({"landlock", "landlock_scope", "seccomp"}),
            ),
        ),
    ),
    Promise(
        "outlive its call",
        (
            _needs("the init of its pid namespace kills and reaps all of it when the call is over", "pid_namespace"),
            _needs("parent-death signals: the init ends with the supervisor, its namespace with it", "pid_namespace"),
        ),
    ),
    Promise(
        "use a capability that the supervisor did not grant to this call",
        (
            _needs("the supervisor's own table of what each cell may ask for"),
            _needs(
                "a cell for each set of grants: no mount, no execve and no socket without the grant",
                OWN_ROOT | {"seccomp"},
                frozenset({"landlock", "seccomp"}),
            ),
        ),
    ),
    Promise(
        "exceed its limits by more than the stated slack",
        (
            _needs("a control group for the whole cell", "cgroup"),
            _needs("rlimits of each process, and the supervisor's clock and watch over all of them"),
        ),
    ),
)


PROTECTED_NAMES = Promise(
    "make or change files that run later, where it may write",
    (_needs("read-only mounts over those that are there", OWN_ROOT), _needs("an audit after each call, from outside")),
)
"""What holds in a writable workspace besides, unless the profile lifts the name. Not one of the seven promises."""


def short(report: SandboxReport) -> Iterator[str]:
    """How many of the promises rest on two layers, and a line for each of the others."""
    all = [*((str(number), promise) for number, promise in enumerate(PROMISES, 1)), ("+", PROTECTED_NAMES)]
    weak = [(mark, promise) for mark, promise in all if promise.verdict(report) != VERDICTS[2]]
    yield f"{len(all) - len(weak)} of {len(all)} promises rest on two layers"
    for mark, promise in weak:
        verdict = promise.verdict(report)
        lacks = sorted({name for layer in promise.layers for name in layer.lacks(report.on)})
        yield f"  {mark} {promise.text}: {click.style(verdict, fg=_COLOUR[verdict])} (lacks {', '.join(lacks)})"


def lines(report: SandboxReport) -> Iterator[str]:
    """For each promise its verdict, and below it the two layers."""
    for number, promise in enumerate(PROMISES, 1):
        yield from _lines(str(number), promise, report)
    yield from _lines("+", PROTECTED_NAMES, report)


def _lines(mark: str, promise: Promise, report: SandboxReport) -> Iterator[str]:
    verdict = promise.verdict(report)
    yield f"  {mark} {promise.text}: {click.style(verdict, fg=_COLOUR[verdict])}"
    for layer in promise.layers:
        lacking = "" if layer.is_on(report.on) else f" (lacks {', '.join(layer.lacks(report.on))})"
        yield f"      {'on ' if not lacking else 'off'}  {layer.text}{lacking}"
