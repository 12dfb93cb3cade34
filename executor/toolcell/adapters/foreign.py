"""A framework's tool as a tool that runs in a cell: by value, or by the import path `module:name`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Unpack

from toolcell.errors import UsageError
from toolcell_tools.dynamic import DynamicTool, dynamic_tool
from toolcell_tools.options import DynamicOptions
from toolcell_tools.rules import suggested_name

__all__ = ["cell_tool", "found"]


def found(tool: object) -> object:
    """`tool`, or what the import path `module:name` leads to, if it is a text. The module is imported in this process:
    for one that you do not trust, use `module_toolset`. Raises UsageError."""
    if not isinstance(tool, str):
        return tool
    module, colon, name = tool.partition(":")
    if not (module and colon and name):
        raise UsageError(f"{tool!r} is not the import path of a tool. Write it as 'package.module:name'.")
    value: object = import_module(module)
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{tool!r} leads to no tool: there is no {part!r} in {module!r}.")
        value = getattr(value, part)
    return value


def cell_tool(
    tool: object,
    run: Callable[[Any, dict[str, Any]], Any],
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    **options: Unpack[DynamicOptions],
) -> DynamicTool:
    """A tool whose calls are `run(object, arguments)` in a cell, where `object` is what `found(tool)` returns there.

    Given as an object, the framework's tool is sent by value (cloudpickle), and only a locked-down cell opens it. Given
    as an import path, the cell imports it, so it may hold what does not pickle. `run` is a plain or an async function
    at the top of a module. A name that is none for toolcell is replaced by a similar one. `options` are those of
    `dynamic_tool`; without `needs`, the tool gets no capability. Raises UsageError or ToolDefinitionError.
    """

    def handler(arguments: dict[str, Any]) -> Any:
        return run(found(tool), arguments)

    return dynamic_tool(
        suggested_name(name),
        handler=handler,
        parameters=dict(parameters),
        description=description,
        **options,
    )
