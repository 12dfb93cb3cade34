"""What a tool's code uses: the objects that are sent with it by value, and the libraries that its cells load.

The code names the objects, so they are found without running anything: global names, names of closures, and imports
inside functions, through the functions and classes of the program's own modules. `Use` keeps the values of the global
names; a call looks whether they are still the same, and otherwise the tool is sent again.

Of the libraries, only those of toolcell and of the base tools are loaded in a zygote, so that cells share their pages;
`runner.call_process` has the list and enforces it. A user's modules are imported only in locked-down cells. A library
that is missed here only costs time: the cell loads it.
"""

import builtins
import dis
import importlib.util
import io
import os
import posix
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard, TypeVar, cast

from toolcell_tools.capability import Capability
from toolcell_tools.definition import Tool
from toolcell_tools.signature import plainness, underlying
from toolcell_tools.typed import SingleArgumentTool

T = TypeVar("T")
ByValue = Callable[[str], bool]
"""Whether the module of this name is sent with a tool, because a cell cannot import it."""
_ABSENT = object()
_GLOBAL_OPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})
_LOCKS: tuple[type, ...] = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
)
LRU_CACHE: Any = type(lru_cache(len))
_BY_NAME = {
    "ctypes.CDLL": "a loaded library",
    "multiprocessing.shared_memory.SharedMemory": "shared memory",
    "multiprocessing.shared_memory.ShareableList": "shared memory",
    "numpy.memmap": "a mapped file",
}
"""Resources whose modules need not be loaded."""


def references() -> dict[int, str]:
    """The objects that exist once in each process, such as `os.environ`: from the id to the module and the dotted name
    by which a cell finds its own. A tool that holds such an object is sent with this reference, never with the
    content."""
    streams = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    names = ("modules", "path", "argv", "orig_argv", "meta_path", "path_hooks", "path_importer_cache", *streams)
    found = {id(vars(builtins)): "builtins:__dict__", id(posix.environ): "posix:environ"}
    for name in reversed(names):  # the first name of an object wins
        if (value := vars(sys).get(name)) is not None:  # as a stream is in a program without a terminal
            found[id(value)] = f"sys:{name}"
    found[id(vars(os.environ)["_data"])] = "os:environ._data"  # environb and copies of environ share it
    return found | {id(os.environ): "os:environ", id(os.environb): "os:environb"}


def resource(value: object) -> str:
    """The kind of a value that cannot leave this process, such as a file, lock, socket or thread; "" for others."""
    kind = type(value)
    if kind is dict:
        of = sys.modules.get(str(cast("dict[str, object]", value).get("__name__")))
        return "the namespace of a module" if getattr(of, "__dict__", None) is value else ""
    if issubclass(kind, (io.StringIO, io.BytesIO)):
        return ""
    if issubclass(kind, io.IOBase):
        return "an open file"
    if issubclass(kind, socket.socket):
        return "a socket"
    if issubclass(kind, _LOCKS):
        return "a lock"
    if issubclass(kind, threading.Thread):
        return "a thread"
    for base in kind.__mro__:
        if (
            what := "an open descriptor"
            if "fileno" in vars(base)
            else _BY_NAME.get(f"{base.__module__}.{base.__name__}")
        ):
            return what
    return ""


def _is(value: object, kind: type[T]) -> TypeGuard[T]:
    """As `isinstance`, but by the type only: a proxy object may run any code when it is asked for its class."""
    return issubclass(type(value), kind)


@dataclass(slots=True, eq=False)
class Use:
    """What one tool uses. `bound` are its global names: namespace, name and value. `held` are the values of its names
    and closures. `names` are all names in its code, attributes included. `imported` are the modules that it imports
    when it is called, each with the name of the function."""

    bound: list[tuple[dict[str, Any], str, object]] = field(default_factory=list[tuple[dict[str, Any], str, object]])
    held: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])
    names: set[str] = field(default_factory=set[str])
    imported: dict[str, str] = field(default_factory=dict[str, str])
    home: tuple[dict[str, Any], str] | None = None
    """The namespace and the name by which the program itself knew the tool, or its function, when it was first sent."""

    def is_current(self) -> bool:
        """Whether every global name still has the same value."""
        for namespace, name, value in self.bound:  # noqa: SIM110 - runs in each call, and a generator takes twice as long
            if namespace.get(name, _ABSENT) is not value:
                return False
        return True


NOTHING = Use()


def use_of(one: object, by_value: ByValue) -> Use:
    """What a tool, a function or a class uses, directly and through the program's own code."""
    use = Use()
    seen: set[int] = set()
    pending = [one]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending += _reached(one, use, by_value)
    return use


def _reached(one: object, use: Use, by_value: ByValue) -> Iterator[object]:
    if _is(one, FunctionType):
        if by_value(one.__module__ or "") or "<" in one.__qualname__:
            yield from _of_function(one, use, by_value)
    elif _is(one, LRU_CACHE):
        yield one.__wrapped__
    elif _is(one, MethodType):
        yield from (one.__func__, one.__self__)
    elif _is(one, partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif _is(one, Tool):
        yield cast("Any", one).fn
    elif _is(one, type):
        if by_value(one.__module__) or "<" in one.__qualname__:
            yield from one.__bases__
            yield from map(plain, vars(one).values())
    elif not _is(one, ModuleType):
        yield type(one)


def plain(attribute: object) -> object:
    """The plain function of an attribute of a class."""
    if isinstance(attribute, (staticmethod, classmethod)):
        return cast("staticmethod[..., object]", attribute).__func__
    if isinstance(attribute, cached_property):
        return cast("cached_property[object]", attribute).func
    return attribute.fget if isinstance(attribute, property) else attribute


def _of_function(function: FunctionType, use: Use, by_value: ByValue) -> Iterator[object]:
    namespace = function.__globals__
    read = _read(function.__code__)
    use.names |= read.names
    for level, name in read.imports:
        use.imported.setdefault(_absolute(level, name, namespace), function.__qualname__)
    for name in read.globals:
        value = namespace.get(name, _ABSENT)
        use.bound.append((namespace, name, value))
        if value is not _ABSENT:
            use.held.append((name, value))
            yield value
            if _is(value, ModuleType) and by_value(value.__name__):
                for attribute in read.names & vars(value).keys():
                    found = vars(value)[attribute]
                    use.bound.append((vars(value), attribute, found))
                    use.held.append((f"{name}.{attribute}", found))
                    yield found
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        use.held.append((name, value))
        yield value
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


@dataclass(frozen=True, slots=True)
class _Read:
    globals: set[str]
    names: set[str]
    imports: list[tuple[int, str]]


@lru_cache(maxsize=4096)
def _read(code: CodeType) -> _Read:
    """The names in a function's code and in the functions inside it."""
    found = _Read(set(), set(code.co_names), [])
    constants: list[object] = [0, None]  # the last two are an import's level and names
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL_OPS:
            found.globals.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            found.imports.append((cast("int", constants[-2]), step.argval))
        elif step.opname.startswith("LOAD_"):
            constants.append(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _read(constant)
            found.globals.update(inner.globals)
            found.names.update(inner.names)
            found.imports.extend(inner.imports)
    return found


def _absolute(level: int, name: str, namespace: Mapping[str, Any]) -> str:
    """The absolute dotted name of a module that code with these globals imports."""
    if not level:
        return name
    try:
        return importlib.util.resolve_name("." * level + name, str(namespace.get("__package__") or ""))
    except ImportError:
        return name  # it fails here as in a cell


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
    mentioned.update(_names_of(getattr(function, "__code__", None)))
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
        for name in _read(code).names & namespace.keys():
            found = namespace[name]
            yield found
            if type(found) is FunctionType and found.__globals__ is namespace:
                pending.append(found)


def _converts(tool: Tool[..., Any]) -> bool:
    """Whether pydantic converts any of the tool's arguments."""
    if isinstance(tool, SingleArgumentTool):
        return tool.parameters_type not in (None, str)
    return any(plainness(parameter.annotation) is None for parameter in tool.parameters)


def _names_of(code: object) -> set[str]:
    """The names in a function's code, including modules that it imports when it is called."""
    return _read(code).names if isinstance(code, CodeType) else set()


def _home(value: object) -> str:
    """The module that an object is or comes from. For an instance, only its type is read: a proxy object may run any
    code when its attributes are read."""
    kind = type(value)
    if kind is ModuleType:
        return str(cast("ModuleType", value).__name__)
    named = value if kind is FunctionType or issubclass(kind, type) else kind
    return str(getattr(named, "__module__", ""))
