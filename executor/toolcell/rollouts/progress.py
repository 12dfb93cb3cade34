"""The progress of a rollout: counts, and their display on stderr."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from .trajectory import RolloutOutcome

__all__ = ["RolloutProgress", "shown_progress"]

LINE_S: Final = 10.0
"""The seconds between two lines if stderr is no terminal."""
BAR_S: Final = 0.25
"""The seconds between two updates of the bar on a terminal."""


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The progress of a rollout, in attempts. `ended` counts them by outcome, with the attempts of earlier programs."""

    total: int
    running: int
    ended: dict[RolloutOutcome, int]

    @property
    def done(self) -> int:
        return sum(self.ended.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in Counter(self.ended).most_common())
        return f"{self.done:,} of {self.total:,} attempts, {self.running:,} running{': ' if counts else ''}{counts}"


async def shown_progress(read: Callable[[], RolloutProgress]) -> None:
    """Show the progress on stderr until cancelled: a bar on a terminal, otherwise a line every 10 s. Show the last
    state at the end."""
    with _display(sys.stderr.isatty()) as (show, pause_s):
        try:
            while True:
                show(read())
                await anyio.sleep(pause_s)
        finally:
            show(read())


@contextmanager
def _display(is_terminal: bool) -> Generator[tuple[Callable[[RolloutProgress], None], float]]:
    if not is_terminal:
        began = time.monotonic()

        def line(progress: RolloutProgress) -> None:
            print(f"rollout: {progress} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)

        yield line, LINE_S
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True)) as bars:
        bar = bars.add_task("")
        yield lambda now: bars.update(bar, total=now.total, completed=now.done, description=str(now)), BAR_S
