"""Where a framework's tool is for a cell: at its import path, or here."""

from toolcell.sessions.shipping import goes_along

from .foreign import found

__all__ = ["located"]


def located(tool: object) -> tuple[object, bool]:
    """The tool, or what the import path leads to, and whether a cell imports it by that path.

    A cell imports what is installed. A tool in a module beside the program is sent by value. Raises UsageError.
    """
    here = found(tool)
    return here, isinstance(tool, str) and not goes_along(tool.partition(":")[0])
