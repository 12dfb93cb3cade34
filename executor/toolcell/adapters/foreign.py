"""A framework's tool as a tool that runs in a cell: by value, or by the import path `module:name`.

The tool that a cell loads imports this module there. So it imports nothing of the supervisor, and no framework: that
takes seconds and 100 MB.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import Parameter, isawaitable, signature, unwrap
from typing import Any, Unpack, cast, get_args, get_type_hints

import pydantic

from toolcell.errors import UsageError
from toolcell_tools.capability import NOT_READ_ONLY
from toolcell_tools.definition import Tool, tool
from toolcell_tools.dynamic import DynamicTool, dynamic_tool
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.options import DynamicOptions, ToolOptions, capabilities, suggested_name
from toolcell_tools.schemas.untrusted import check_any_schema

__all__ = ["cell_function", "cell_tool", "found", "function_runner", "located", "read_only_claim", "returned_schema"]

_log = logging.getLogger("toolcell.tool")


def found(given: object) -> object:
    """`given`, or what the import path `module:name` leads to, if it is a text. The module is imported in this process:
    for one that you do not trust, use `module_toolset`. Raises UsageError."""
    if not isinstance(given, str):
        return given
    module, colon, name = given.partition(":")
    if not (module and colon and name):
        raise UsageError(f"{given!r} is not the import path of a tool. Write it as 'package.module:name'.")
    value: object = import_module(module)
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageError(f"{given!r} leads to no tool: there is no {part!r} in {module!r}.")
        value = getattr(value, part)
    return value


def located(tool: object) -> tuple[object, bool]:
    """The tool, or what the import path leads to, and whether a cell imports it by that path.

    A cell imports what is installed. A tool in a module beside the program is sent by value. Raises UsageError.
    """
    from toolcell.sessions.shipping import goes_along  # which is the supervisor's; no cell calls this function

    here = found(tool)
    return here, isinstance(tool, str) and not goes_along(tool.partition(":")[0])


def _checkable(name: str, results: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The framework's schema of the results; None if it says nothing, or toolcell cannot check it within its bounds."""
    if not results:
        return None
    try:
        return check_any_schema(suggested_name(name), "output_schema", dict(results))
    except ToolDefinitionError:
        return None  # frameworks do not check results, so their schemas may be anything


def returned_schema(fn: Callable[..., Any], *media: type) -> dict[str, Any] | None:
    """The schema of what a function returns, by its annotation. None if there is none, or it names one of `media`,
    which become content blocks."""
    try:
        returned: Any = get_type_hints(fn, include_extras=True).get("return", Any)
        if _names(returned, media):
            return None
        return pydantic.TypeAdapter[Any](returned).json_schema(mode="serialization")
    except (NameError, TypeError, AttributeError, pydantic.PydanticUserError):
        return None  # an annotation that is for people


def _names(annotation: Any, types: tuple[type, ...]) -> bool:
    return annotation in types or any(_names(one, types) for one in get_args(annotation))


def read_only_claim(name: str, claimed: bool | None, options: DynamicOptions) -> bool | None:
    """The claim of a framework's tool to be read-only. It is None, with a warning in the log, if the tool's needs and
    uses contradict it. `options` gets the needs and uses as sets, because they may be iterators."""
    needs = options["needs"] = capabilities(name, "needs", options.get("needs", ()))
    uses = options["uses"] = capabilities(name, "uses", options.get("uses", ()))
    rights = needs | uses
    if not claimed or not rights & NOT_READ_ONLY:
        return claimed
    _log.warning(
        "the tool %r claims to be read-only, and has %s: the claim is dropped", name, ", ".join(sorted(rights))
    )
    return None


def cell_function(
    fn: Callable[..., Any],
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    results: Mapping[str, Any] | None = None,
    **options: Unpack[DynamicOptions],
) -> Tool[..., Any]:
    """A tool of the function inside a framework's tool. The cell runs the function without the framework.

    `parameters` is the framework's schema. If it describes something else than the function's parameters, such as the
    fields of its only parameter, the tool has the schema that toolcell derives of the function. Results are held
    against `results`, the framework's schema of them, if toolcell can check it. Raises
    ToolDefinitionError.
    """
    named, properties = suggested_name(name), set(cast("Mapping[str, Any]", parameters.get("properties", {})))
    takes = signature(fn).parameters
    if any(one.kind is Parameter.VAR_KEYWORD or one.annotation is Parameter.empty for one in takes.values()):
        words: Any = {"name": name, "description": description, "parameters": parameters, "results": results}
        return cell_tool(fn, _with_names, **words, **options)
    all_options = cast("ToolOptions", {**options, "name": named, "description": description})
    if properties <= takes.keys():
        all_options["parameters_schema"] = parameters
    schema = _checkable(name, results)
    if schema is not None:
        all_options["output_schema"] = schema
    return tool(fn, **all_options)


def _with_names(fn: Any, arguments: dict[str, Any]) -> Any:
    return fn(**arguments)


def cell_tool(
    given: object,
    run: Callable[[Any, dict[str, Any]], Any],
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    results: Mapping[str, Any] | None = None,
    **options: Unpack[DynamicOptions],
) -> DynamicTool:
    """A tool whose calls are `run(object, arguments)` in a cell, where `object` is what `found(given)` returns there.

    Given as an object, the framework's tool is sent by value (cloudpickle), and only a locked-down cell opens it. Given
    as an import path, the cell imports it, so it may hold what does not pickle. `run` is a plain or an async function
    at the top of a module. A name that is none for toolcell is replaced by a similar one. `options` are those of
    `dynamic_tool`; without `needs`, the tool gets no capability. Raises UsageError or ToolDefinitionError.
    """

    def handler(arguments: dict[str, Any]) -> Any:
        return run(found(given), arguments)

    return dynamic_tool(
        suggested_name(name),
        handler=handler,
        parameters=dict(parameters),
        description=description,
        success=_checkable(name, results),
        **options,
    )


def function_runner(attribute: str, framework: str, returned: str) -> Callable[[Any, dict[str, Any]], Any]:
    """A `run` for `cell_tool`: call a function, or the function in `attribute` of a framework's tool.

    If the function has loaded `framework`, its value may be an object of the framework. Then the function at the path
    `returned`, "module:name", converts it.
    """
    return partial(_run, attribute=attribute, framework=framework, returned=returned)


async def _run(given: Any, arguments: dict[str, Any], *, attribute: str, framework: str, returned: str) -> Any:
    fn = getattr(given, attribute, given)
    value = _converting(fn)(**arguments)
    if isawaitable(value):
        value = await value
    if framework not in sys.modules:
        return value
    module, _, name = returned.partition(":")
    return getattr(import_module(module), name)(value)


def _converting(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with arguments converted from JSON to their annotated types, as frameworks do."""
    if not getattr(unwrap(fn), "__annotations__", None):
        return fn
    try:
        checked: Callable[..., Any] = pydantic.validate_call(config=pydantic.ConfigDict(arbitrary_types_allowed=True))(
            fn
        )
    except (NameError, TypeError, pydantic.PydanticUserError):  # an annotation that pydantic cannot read is for people
        return fn
    return checked
