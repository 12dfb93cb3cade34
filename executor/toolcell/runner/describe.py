"""Describe the tools of a module, inside a cell. The description is data, which the supervisor does not trust."""

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
