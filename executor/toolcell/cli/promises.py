"""The promises of the sandbox as lines of text."""

from collections.abc import Iterator

import click

from toolcell_sandbox.promises import PROMISES, PROTECTED_NAMES, VERDICTS, Promise
from toolcell_sandbox.report import SandboxReport

__all__ = ["PROMISES", "PROTECTED_NAMES", "VERDICTS", "lines", "short"]

_COLOUR: dict[str, str] = dict(zip(VERDICTS, ("red", "yellow", "green"), strict=True))


def short(report: SandboxReport) -> Iterator[str]:
    """The number of promises that two layers keep, and a line for each other promise."""
    all = [*((str(number), promise) for number, promise in enumerate(PROMISES, 1)), ("+", PROTECTED_NAMES)]
    weak = [(mark, promise) for mark, promise in all if promise.verdict(report.on) != VERDICTS[2]]
    yield f"{len(all) - len(weak)} of {len(all)} promises rest on two layers"
    for mark, promise in weak:
        verdict = promise.verdict(report.on)
        lacks = sorted({name for layer in promise.layers for name in layer.lacks(report.on)})
        yield f"  {mark} {promise.text}: {click.style(verdict, fg=_COLOUR[verdict])} (lacks {', '.join(lacks)})"


def lines(report: SandboxReport) -> Iterator[str]:
    """For each promise, the verdict and the two layers."""
    for number, promise in enumerate(PROMISES, 1):
        yield from _lines(str(number), promise, report)
    yield from _lines("+", PROTECTED_NAMES, report)


def _lines(mark: str, promise: Promise, report: SandboxReport) -> Iterator[str]:
    verdict = promise.verdict(report.on)
    yield f"  {mark} {promise.text}: {click.style(verdict, fg=_COLOUR[verdict])}"
    for layer in promise.layers:
        lacking = "" if layer.is_on(report.on) else f" (lacks {', '.join(layer.lacks(report.on))})"
        yield f"      {'on ' if not lacking else 'off'}  {layer.text}{lacking}"
