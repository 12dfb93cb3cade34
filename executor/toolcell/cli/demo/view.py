"""The output of the demo: a live table on a terminal, otherwise one plain line for each row."""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

RIGHT, WRONG = "✓", "✗"
LEGEND = f"{RIGHT} before a call: it ended with the expected result or the expected error."


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a call. `expected` is empty if the outcome was right."""

    who: str
    call: str
    happened: str
    seconds: float
    expected: str = ""

    @property
    def right(self) -> bool:
        return not self.expected


class DemoView(Protocol):
    """Shows events as they happen. A context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def title(self, text: str) -> None:
        """A new part begins."""
        ...

    def begins(self, who: str, call: str) -> None:
        """A call is under way."""
        ...

    def ended(self, row: Row) -> None:
        """The call has ended."""
        ...

    def checked(self, what: str, wrong: str) -> None:
        """A check was made. `wrong` describes the problem, or is empty."""
        ...

    def say(self, text: str) -> None:
        """Print a line of text, which may have ANSI colours."""
        ...


def view() -> DemoView:
    """The view for standard output: live if it is a terminal."""
    console = Console(highlight=False)
    return (
        LiveView(console) if console.is_terminal else PlainView(Console(highlight=False, soft_wrap=True, no_color=True))
    )


class PlainView:
    """One complete line for each row, in columns, for logs, pipes and tests."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def title(self, text: str) -> None:
        self._print(f"\n{text}")

    def begins(self, who: str, call: str) -> None:
        pass

    def ended(self, row: Row) -> None:
        mark = RIGHT if row.right else WRONG
        self._print(f"{mark} {row.who:<6}  {row.call:<50}  {row.seconds:6.3f} s  {row.happened}")
        if not row.right:
            self._print(f"  {'':6}  expected: {row.expected}")

    def checked(self, what: str, wrong: str) -> None:
        self._print(f"{WRONG} {what}: {wrong}" if wrong else f"{RIGHT} {what}")

    def say(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(Text.from_ansi(text).plain, markup=False, crop=False, overflow="ignore", no_wrap=True)


class LiveView:
    """A growing table. The running call is the last row, with a spinner. Finished rows scroll, so a terminal of any
    height shows them all.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=12, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def title(self, text: str) -> None:
        self._show(Text(f"\n{text}", style="bold"))

    def begins(self, who: str, call: str) -> None:
        self._live.update(self._row(Spinner("dots"), Text(who), Text(call, style="bold"), Text("…"), Text()))

    def ended(self, row: Row) -> None:
        mark = Text(RIGHT, style="green") if row.right else Text(WRONG, style="bold red")
        told = Text(row.happened)
        if not row.right:
            told.append(f"\nexpected: {row.expected}", style="red")
        seconds = Text(f"{row.seconds:.3f} s", style="dim")
        self._show(self._row(mark, Text(row.who, style="cyan"), Text(row.call), told, seconds, wrap=not row.right))

    def checked(self, what: str, wrong: str) -> None:
        self._show(
            Text(f"{WRONG} {what}: {wrong}", style="red") if wrong else Text.assemble((RIGHT, "green"), f" {what}")
        )

    def say(self, text: str) -> None:
        self._show(Text.from_ansi(text))

    def _show(self, line: Text | Table) -> None:
        self._live.update(Text())
        self._console.print(line)

    @staticmethod
    def _row(mark: Text | Spinner, who: Text, call: Text, told: Text, seconds: Text, *, wrap: bool = False) -> Table:
        """Each row is a separate grid with the same widths, so that the rows together look like a table."""
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(width=6)
        grid.add_column(ratio=4, no_wrap=True, overflow="ellipsis")
        grid.add_column(ratio=5, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
        grid.add_column(width=8, justify="right")
        grid.add_row(mark, who, call, told, seconds)
        return grid
