"""Load the tools in a cell: by import path, or from a pickle. This runs after lockdown, because both run their code."""

import importlib
import io
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast, final

from toolcell.wire.code import source_digest, source_files
from toolcell_tools.definition import Tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.typed import TypedTool, as_tool


@final
@dataclass(frozen=True, slots=True)
class LoadError:
    """The reason why a tool could not be loaded. It is the answer to each call of the tool."""

    message: str
    traceback: str


AnyTool = Tool[..., object]
Loaded = dict[str, AnyTool | LoadError]


def load(entries: list[dict[str, object]]) -> Loaded:
    """Load every tool. If one fails, the others are loaded all the same."""
    loaded: Loaded = {}
    for entry in entries:
        name = str(entry["name"])
        try:
            tool = _fetch(entry)
            tool.prepare()
        except BaseException as error:  # a module may raise SystemExit when it is imported
            if isinstance(error, SystemExit):
                message = f"the module of tool {name!r} called sys.exit({error.code!r}) while it was imported"
            else:
                message = f"the tool {name!r} could not be loaded: {type(error).__name__}: {error}"
            loaded[name] = LoadError(message[:4000], traceback.format_exc()[-20_000:])
        else:
            loaded[name] = tool
    return loaded


def _fetch(entry: Mapping[str, object]) -> AnyTool:
    if entry["how"] == "pickle":
        found: object = _Unpickler(io.BytesIO(cast("bytes", entry["where"]))).load()
    else:
        module, _, path = str(entry["where"]).partition(":")
        if "directory" in entry:
            add_to_path(str(entry["directory"]))
        if "digest" in entry:
            _check_source(module, str(entry["directory"]), str(entry["digest"]))
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    if isinstance(found, TypedTool):
        return cast("AnyTool", found.tool)
    if isinstance(found, Tool):
        return cast("AnyTool", found)
    if callable(found):
        return Tool(found, name=str(entry["name"]), derive=False)
    raise TypeError(f"{entry['where']!r} is not a tool but a {type(found).__name__}")


class _Unpickler(pickle.Unpickler):
    """Finds this process's own object for each reference of `sessions.closure.references`."""

    def persistent_load(self, pid: str) -> object:
        module, _, path = pid.partition(":")
        return attrgetter(path)(importlib.import_module(module))


def _check_source(module: str, directory: str, digest: str) -> None:
    """Refuse a module whose source has changed since its tools were declared, and possibly approved."""
    if source_digest(source_files(os.path.join(directory, *module.split(".")))) != digest:
        raise ImportError(f"the source of {module!r} has changed since its tools were declared; ask for the tools anew")


def started_threads() -> int:
    """The number of threads that imports of the tools have started. A cell forks, so it must be single-threaded."""
    threading = sys.modules.get("threading")
    return threading.active_count() - 1 if threading is not None else 0


def describe_module(module: str, directory: str) -> list[dict[str, Any]]:
    """Import `module` from `directory` and describe the tools at its top level. The description is data, which the
    supervisor does not trust."""
    add_to_path(directory)
    try:
        imported = importlib.import_module(module)
    except BaseException as error:  # its top level may raise anything, SystemExit too
        raise ToolFailure(f"importing it failed: {type(error).__name__}: {error}") from error
    described: list[dict[str, Any]] = []
    for attribute, found in vars(imported).items():
        if isinstance(found, (Tool, TypedTool)) and not attribute.startswith("_"):
            tool = as_tool(cast("object", found))
            described.append(
                {
                    "attribute": attribute,
                    "declaration": tool.declaration.model_dump(mode="json"),
                    "lifetime": tool.lifetime,
                    "limits": None if tool.limits is None else dict(tool.limits),
                }
            )
    return described


def add_to_path(directory: str) -> None:
    """Allow imports from `directory`, after all installed packages."""
    if directory not in sys.path:
        sys.path.append(directory)
