"""Saying what tools a module has, inside a cell. The answer is data; the supervisor checks it as a stranger's."""

import importlib
import sys
from typing import Any, cast

from toolcell_tools.definition import Tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.typed import TypedTool, as_tool


def describe_module(module: str, directory: str) -> list[dict[str, Any]]:
    """Import `module` from `directory` and declare the tools at its top level."""
    add_to_path(directory)
    try:
        imported = importlib.import_module(module)
    except BaseException as error:  # whatever its top level does, SystemExit too
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
    """Let modules be imported from `directory`, after all that is installed."""
    if directory not in sys.path:
        sys.path.append(directory)
