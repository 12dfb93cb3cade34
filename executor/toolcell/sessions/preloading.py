"""What a zygote is worth loading before it forks cells for a tool: each cell would load it anew, and hold it alone.

Only libraries of toolcell's own and the base tools (`runner.serve` has the list and keeps to it); a user's modules are
for locked-down cells. What is missed here costs time, and nothing else: the cell loads it itself.
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
        found.add("hashlib")  # the digest of what is written
    if Capability.EXEC in tool.needs | tool.uses:
        found.add("subprocess")  # the shell handle's
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
    """What the names of a module stand for: a cell that imports it imports them all."""
    return list(vars(sys.modules[module]).values()) if module in sys.modules else []


def _used_by(function: object) -> Iterator[object]:
    """The values of the global names that a function uses, and of those that the functions of its module use in turn:
    they travel with it by value.
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
    """Whether pydantic makes any of its arguments."""
    if isinstance(tool, WholeTool):
        return tool.parameters_type not in (None, str)
    return any(plainness(parameter.annotation) is None for parameter in tool.parameters)


def _named_in(code: object) -> set[str]:
    """The names in a function's code, those of the modules among them that it imports when it is called."""
    if not isinstance(code, CodeType):
        return set()
    return set(code.co_names).union(*map(_named_in, code.co_consts))


def _home(value: object) -> str:
    """The module that an object of a namespace is, or comes from. Of an instance only the type is asked: a proxy may do
    anything when it is looked at."""
    kind = type(value)
    if kind is ModuleType:
        return str(cast("ModuleType", value).__name__)
    named = value if kind is FunctionType or issubclass(kind, type) else kind
    return str(getattr(named, "__module__", ""))
