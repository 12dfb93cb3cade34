"""A trick for the start of a program: no garbage is collected while the runtime's modules are imported."""

import gc

from .switches import is_on

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from types import TracebackType


class Uncollected:
    """Turns the garbage collector off, and on again at the end, if it was on.

    Modules, classes and functions stay, so a collection finds nothing among them. It would look at all of them several
    times. The collector is off for the whole process, for the tenth of a second that the import takes.
    """

    def __enter__(self) -> None:
        self._was_on = gc.isenabled() and is_on("imports")
        if self._was_on:
            gc.disable()

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", traceback: "TracebackType | None"
    ) -> None:
        if self._was_on:
            gc.enable()
