"""Run the function of a framework's tool in a cell. The framework is not imported: that takes seconds and 100 MB."""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import isawaitable, unwrap
from typing import Any

from pydantic import ConfigDict, validate_call
from pydantic.errors import PydanticUserError

__all__ = ["function_runner"]


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
        checked: Callable[..., Any] = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(fn)
    except (NameError, TypeError, PydanticUserError):  # an annotation that pydantic cannot read is for people
        return fn
    return checked
