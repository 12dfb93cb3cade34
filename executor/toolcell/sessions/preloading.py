"""Choose the libraries that a zygote loads before it forks cells for a tool, so that cells share their pages.

Only libraries of toolcell and the base tools are loaded; `runner.call_process` has the list and enforces it. A user's
modules are imported only in locked-down cells. A library that is missed here only costs time: the cell loads it.
"""

import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from toolcell_tools.binder import plainness
from toolcell_tools.capability import Capability
from toolcell_tools.definition import Tool
from toolcell_tools.signature import underlying
from toolcell_tools.whole import WholeTool

_RESULTS = ("toolcell_tools.result", "toolcell_tools.content", "toolcell_tools.errors")


def libraries_of(tool: Tool[..., Any], *, pickled: bool) -> list[str]:
    """The libraries that a cell with this tool loads, sorted."""
    function = underlying(tool.fn)
    module = str(getattr(function, "__module__", ""))
    found: set[str] = set()
    if Capability.WRITE in tool.needs | tool.uses:
        found.add("hashlib")  # for the digest of written files
    if Capability.EXEC in tool.needs | tool.uses:
        found.add("subprocess")  # for the shell handle
    if module.startswith("toolcell_tools.base.") and not pickled:
        return sorted({module, *found})
    if pickled:
        found.add("cloudpickle")
    mentioned = {_home(value) for value in (_used_by(function) if pickled else _all_of(module))}
    mentioned.update(_named_in(getattr(function, "__code__", None)))
    packages = {home.partition(".")[0] for home in mentioned}
    found |= packages & {"asyncio", "hashlib", "subprocess"}
    if tool.is_async:
        found.add("asyncio")
    if packages & {"pydantic", "pydantic_core"} or _converts(tool):
        found.add("pydantic")
    if mentioned.intersection(_RESULTS) or tool.writes_output:
        found |= {"pydantic", "toolcell_tools.result"}
    return sorted(found)


def _all_of(module: str) -> list[object]:
    """The values of a module's names: a cell that imports the module imports all of them."""
    return list(vars(sys.modules[module]).values()) if module in sys.modules else []


def _used_by(function: object) -> Iterator[object]:
    """The values of the global names that a function uses, and of the names that these functions use in turn, if they
    are of its module. All of them are sent by value with the function.
    """
    pending, seen = [function], set[int]()
    while pending:
        one = pending.pop()
        code = getattr(one, "__code__", None)
        if id(one) in seen or not isinstance(code, CodeType):
            continue
        seen.add(id(one))
        namespace = cast("Mapping[str, object]", getattr(one, "__globals__", {}))
        for name in _named_in(code) & namespace.keys():
            found = namespace[name]
            yield found
            if type(found) is FunctionType and found.__globals__ is namespace:
                pending.append(found)


def _converts(tool: Tool[..., Any]) -> bool:
    """Whether pydantic converts any of the tool's arguments."""
    if isinstance(tool, WholeTool):
        return tool.parameters_type not in (None, str)
    return any(plainness(parameter.annotation) is None for parameter in tool.parameters)


def _named_in(code: object) -> set[str]:
    """The names in a function's code, including modules that it imports when it is called."""
    if not isinstance(code, CodeType):
        return set()
    return set(code.co_names).union(*map(_named_in, code.co_consts))


def _home(value: object) -> str:
    """The module that an object is or comes from. For an instance, only its type is read: a proxy object may run any
    code when its attributes are read."""
    kind = type(value)
    if kind is ModuleType:
        return str(cast("ModuleType", value).__name__)
    named = value if kind is FunctionType or issubclass(kind, type) else kind
    return str(getattr(named, "__module__", ""))
