"""Objects by import path, as arguments of commands."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any, cast

from toolcell.errors import UsageError
from toolcell.sessions.modules import module_toolset
from toolcell_tools.toolsets import Toolset

__all__ = ["imported", "tools_at"]


def imported(path: str) -> object:
    """The object at `module:name`. The module is imported into this process; the current directory is searched first.
    Raises UsageError."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"There is no {path!r}: {error}. Write module:object, such as my_tools:TOOLS.") from None
    return found


def tools_at(path: str) -> tuple[list[Any], list[Toolset]]:
    """The tools and the toolsets at `module:object`, or those of a whole module, which is imported in cells only.

    The object is a tool, a function, a toolset, or a list of them. Raises UsageError.
    """
    if ":" not in path:
        return [], [module_toolset(path, path=os.getcwd() if _is_here(path) else None)]
    found = imported(path)
    parts = list(cast("Iterable[object]", found)) if isinstance(found, (list, tuple, set, frozenset)) else [found]
    return [each for each in parts if not isinstance(each, Toolset)], [
        each for each in parts if isinstance(each, Toolset)
    ]


def _is_here(module: str) -> bool:
    place = os.path.join(os.getcwd(), *module.split("."))
    return os.path.exists(f"{place}.py") or os.path.isdir(place)
