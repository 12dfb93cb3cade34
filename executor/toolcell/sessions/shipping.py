"""How a tool's function reaches a cell: by import path where the cell can import it, by value where it cannot.

By value means cloudpickle, made here of what is the user's own already, and unpickled only inside a locked-down cell.
Nothing that comes out of a cell is ever unpickled.
"""

import dataclasses
import hashlib
import io
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

import cloudpickle

from toolcell.errors import UsageError
from toolcell_sandbox.profile import is_below, python_paths
from toolcell_tools.definition import Tool

from .modules import ModuleTool
from .policy import code_roots
from .preloading import libraries_of

MAX_PICKLE_BYTES = 8 * 1024 * 1024


def ship(tool: Tool[..., Any]) -> Mapping[str, object]:
    """What the cell needs to load the tool: `{"name", "how": "import" | "pickle", "where": path | bytes}`; and, as
    "preload", what its zygote may have loaded before (without it, all that a zygote ever loads)."""
    if isinstance(tool, ModuleTool):
        return tool.shipment
    path = _import_path(tool)
    if path is not None:
        preload = libraries_of(tool, pickled=False)
        return {"name": tool.name, "how": "import", "where": path, "preload": preload}
    try:
        with _by_value(_unreachable_modules()):
            pickled = _pickled(tool)
    except Exception as error:  # pickling runs the reducers of whatever the function refers to
        raise UsageError(
            f"The tool {tool.name!r} cannot be sent to a cell by value: {error}. It refers to something that cannot be "
            "pickled (a lock, a socket, a client): create that inside the function, or put the tool into an installed "
            "module, which the cell imports."
        ) from error
    if len(pickled) > MAX_PICKLE_BYTES:
        raise UsageError(
            f"The tool {tool.name!r} has {len(pickled):,} bytes with all it refers to; at most {MAX_PICKLE_BYTES:,} "
            "can be sent by value. Put its data into a file of the workspace, or the tool into an installed module."
        )
    return {"name": tool.name, "how": "pickle", "where": pickled, "preload": libraries_of(tool, pickled=True)}


def content_of(shipments: Iterable[Mapping[str, object]]) -> str:
    """A digest of what a cell loads: another set of tools, or other code, is another cell."""
    digest = hashlib.sha256()
    for shipment in shipments:
        for key, value in sorted(shipment.items()):
            content = value if isinstance(value, bytes) else str(value).encode()
            digest.update(b"%s\0%d\0%s" % (key.encode(), len(content), content))
    return digest.hexdigest()


class _Pickler(cloudpickle.Pickler):
    """Dataclasses compare with `MISSING` by identity, so it must arrive as what it is, not as a copy."""

    def reducer_override(self, obj: Any) -> Any:
        return "MISSING" if obj is dataclasses.MISSING else super().reducer_override(obj)


def _pickled(tool: Tool[..., Any]) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file).dump(tool)
        return file.getvalue()


def _import_path(tool: Tool[..., Any]) -> str | None:
    """`module:qualname`, if importing that in a cell gives a tool, or a function, that runs calls as this tool does."""
    function = cast("Callable[..., object]", tool.fn)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    qualname: str = getattr(function, "__qualname__", "")
    if module is None or "<" in qualname or not _reachable(module):
        return None
    found: object = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is function:
        found = Tool(function, name=tool.name, derive=False)  # what the cell will make of it
    if isinstance(found, Tool) and tool.runs_like(cast("Tool[..., object]", found)):
        return f"{module.__name__}:{qualname}"
    return None


def _reachable(module: ModuleType) -> bool:
    """Whether a cell can import the module: it lies where the interpreter or toolcell itself does."""
    if module.__name__ == "__main__":
        return False
    where = [path] if (path := getattr(module, "__file__", None)) else list(getattr(module, "__path__", ()))
    if not where:  # built in or frozen, or made up at run time
        return module.__name__ in sys.builtin_module_names or getattr(module, "__spec__", None) is not None
    roots = (*python_paths(), *code_roots(), "/usr/lib", "/usr/local/lib")
    return all(is_below(path, roots) for path in where)


def _unreachable_modules() -> list[ModuleType]:
    """The top-level modules and packages that a cell could not import: the user's own."""
    return [
        module
        for name, module in list(sys.modules.items())
        if "." not in name
        and isinstance(module, ModuleType)  # pyright: ignore[reportUnnecessaryIsInstance] - sys.modules may hold anything
        and name != "__main__"
        and not _reachable(module)
    ]


@contextmanager
def _by_value(modules: list[ModuleType]) -> Generator[None, None, None]:
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
