"""Send a tool's function to a cell: by import path if the cell can import it, otherwise by value.

By path: a cell imports the module from the interpreter's own installation, so the path and the tool's options are all
that is sent. The supervisor makes the same tool of the path first; if that would run calls differently, for example
because a decorator replaced the function, the path is not used.

By value: everything else (`__main__`, notebooks, closures, modules that are not installed) goes as a cloudpickle with
all that the code uses of modules that a cell cannot import. The supervisor pickles the user's own objects, and only a
locked-down cell unpickles them. Nothing that comes out of a cell is ever unpickled. What belongs to this process (a
lock, a socket, an open file) is refused by the name under which the tool uses it; what exists once in each process,
such as `os.environ`, is sent as a reference, so that no content of it leaves. `closure.Use` records the values of the
global names; if one changes, the tool is sent again in its present form.

The digest of all shipments of a cell (`content_of`) is part of the cell's key, so changed code has another cell.
"""

import dataclasses
import gc
import hashlib
import importlib.util
import io
import operator
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from inspect import signature
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, NewType, ParamSpec, TypeVarTuple, cast

import cloudpickle
from cloudpickle.cloudpickle import dynamic_subimport, list_registry_pickle_by_value

from toolcell.errors import UsageError
from toolcell.wire import forks
from toolcell_sandbox.profile import is_below, python_paths
from toolcell_tools.definition import Tool
from toolcell_tools.typed import as_tool

from .closure import LRU_CACHE, NOTHING, Use, libraries_of, plain, references, resource, use_of
from .foreign_tools import ForeignTool
from .grants import code_roots

MAX_PICKLE_BYTES = 8 * 1024 * 1024
_registry = forks.new_rlock()  # re-entrant: a user's reducer may start a supervisor
_FILENAME = 10  # the place of `co_filename` among the arguments of `CodeType`, from Python 3.11 on
_VIEWS: Mapping[Any, object] = {
    MappingProxyType: MappingProxyType,
    **{type(view({})): view for view in cast("Any", (dict.keys, dict.values, dict.items))},
}
"""The types of views of a mapping, which pickle would copy, each with the function that makes the view again."""
_OF_A_CLASS = 6  # the length of the tuple to which cloudpickle reduces a class, its state and state setter included


def shipped(tool: Tool[..., Any], before: Use = NOTHING) -> tuple[Mapping[str, object], Use]:
    """What the cell needs to load the tool: `{"name", "how": "import" | "pickle", "where": path | bytes}`, and the
    objects that the tool uses by value. "preload" are the libraries that its zygote should have loaded; without it, all
    that a zygote can load.

    If the objects have changed, the tool is shipped again, and `before` is its previous use. A tool that was defined
    again is sent in its present form.
    """
    if isinstance(tool, ForeignTool):
        return tool.shipment, NOTHING
    path = _import_path(tool)
    if path is not None:
        preload = libraries_of(tool, pickled=False)
        return {"name": tool.name, "how": "import", "where": path, "preload": preload}, NOTHING
    home = before.home or _home_of(tool)
    tool = latest(tool, home)
    use = use_of(tool, goes_along)
    if home is not None:
        use.home = home
        use.bound.append((*home, home[0].get(home[1])))
    _check_held(tool, use)
    _check_imports(tool, use)
    with _by_value(_unreachable_modules()):
        try:
            pickled = _dump(tool, use)
        except Exception as error:  # pickling runs the reducers of all objects to which the function refers
            raise UsageError(
                f"The tool {tool.name!r} cannot be sent to a cell by value: {_culprit(use)}{error}. It refers to "
                "something that cannot be pickled (a lock, a socket, a client): create that inside the function, or "
                "put the tool into an installed module, which the cell imports."
            ) from error
    if len(pickled) > MAX_PICKLE_BYTES:
        raise UsageError(
            f"The tool {tool.name!r} has {len(pickled):,} bytes with all it refers to; at most {MAX_PICKLE_BYTES:,} "
            "can be sent by value. Put its data into a file of the workspace, or the tool into an installed module."
        )
    return {"name": tool.name, "how": "pickle", "where": pickled, "preload": libraries_of(tool, pickled=True)}, use


def latest(tool: Tool[..., Any], home: tuple[dict[str, Any], str] | None) -> Tool[..., Any]:
    """The tool as the program defines it now. Raises UsageError if its declaration to models was different."""
    found = None if home is None else home[0].get(home[1])
    if getattr(found, "fn", found) is tool.fn or not isinstance(found, (Tool, FunctionType)):
        return tool
    again = cast("Tool[..., Any]", found) if isinstance(found, Tool) else as_tool(found)
    if again.name != tool.name:
        return tool
    told = tool.declaration
    if again.declaration.model_copy(update={"fingerprint": told.fingerprint}) != told:  # it covers the code too
        raise UsageError(
            f"The tool {tool.name!r} was defined again, and not as it was declared to models when this supervisor got "
            "it. Make another Supervisor with the new one."
        )
    return again


def _home_of(tool: Tool[..., Any]) -> tuple[dict[str, Any], str] | None:
    function: object = tool.fn
    if not isinstance(function, FunctionType):
        return None
    home = function.__globals__, function.__name__
    found = home[0].get(home[1])
    return home if getattr(found, "fn", found) is function else None


def content_of(shipments: Iterable[Mapping[str, object]]) -> str:
    """A digest of the tools that a cell loads. Other tools, or other code, need another cell."""
    digest = hashlib.sha256()
    for shipment in shipments:
        for key, value in sorted(shipment.items()):
            content = value if isinstance(value, bytes) else str(value).encode()
            digest.update(b"%s\0%d\0%s" % (key.encode(), len(content), content))
    return digest.hexdigest()


def goes_along(module: str) -> bool:
    """Whether functions of this module are sent by value, because a cell cannot import the module."""
    found = sys.modules.get(module.partition(".")[0])
    return module == "__main__" or (found is not None and not _reachable(found))


def _check_held(tool: Tool[..., Any], use: Use) -> None:
    """Refuse a resource of this process, such as a lock. The error has the name by which the tool uses it."""
    known = references()
    for name, value in use.held:
        what = resource(value)
        if what and id(value) not in known:
            raise UsageError(
                f"The tool {tool.name!r} uses {name!r}, which is {what} of this process, and no cell can have it. Make "
                "it inside the function, or pass what the tool needs of it as an argument."
            )


def _check_imports(tool: Tool[..., Any], use: Use) -> None:
    """Refuse an import inside a function that works here and would fail in a cell."""
    for module, function in use.imported.items():
        top = module.partition(".")[0]
        spec = getattr(sys.modules.get(top), "__spec__", None) if top in sys.modules else _spec_of(top)
        places = (
            [spec.origin] if spec and spec.has_location else list(spec.submodule_search_locations or ()) if spec else []
        )
        if places and not _lie_reachable(places):
            raise UsageError(
                f"The tool {tool.name!r} imports {module!r} inside {function}, and a cell cannot: {places[0]!r} is not "
                f"installed. Write `import {module}` at the top of the file, and it goes with the tool, or install it."
            )


def _spec_of(module: str) -> Any:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _culprit(use: Use) -> str:
    """The name of the object that cannot be pickled, as the beginning of a sentence."""
    for name, value in use.held:
        try:
            _dump(value, use)
        except Exception:
            return f"{name!r}: "
    return ""


class _Pickler(cloudpickle.Pickler):
    """Pickles only what the tool uses.

    Dataclasses compare with `MISSING` by identity, so it is sent by reference, not as a copy. So are the objects
    that exist once in each process (`references`): the cell finds its own. A resource of this process is refused;
    its content is not sent instead. In modules and classes that are sent by value, such a resource is left out if no
    name in the tool's code refers to it. The locals around a pydantic model, which pydantic keeps for forward
    references, are left out too. Code keeps the name of its file, which cloudpickle 3.1.3 replaces: tracebacks show the
    name, and the source of the function is found by it.
    """

    def __init__(self, file: io.BytesIO, names: set[str]) -> None:
        super().__init__(file)
        self._names = names
        self._references = references()

    def persistent_id(self, obj: Any) -> str | None:
        found = self._references.get(id(obj))
        if found is None and type(obj) is dict:
            self._refuse(obj)  # here, because no reducer sees a dict
        return found

    def _refuse(self, obj: Any) -> None:
        what = resource(obj)
        if what:
            name = getattr(obj, "name", obj) if isinstance(obj, io.IOBase) else type(obj).__name__
            raise pickle.PicklingError(f"{name!r} is {what} of this process")

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"
        self._refuse(obj)
        if isinstance(obj, LRU_CACHE):
            return operator.call, (lru_cache(**obj.cache_parameters()), obj.__wrapped__)
        if (view := _VIEWS.get(type(obj))) is not None:
            return view, tuple(gc.get_referents(obj))  # the mapping, which may be this process's own
        if isinstance(obj, CodeType):
            return self._code(obj)
        if isinstance(obj, ModuleType) and goes_along(obj.__name__):
            state = self._needed({name: value for name, value in vars(obj).items() if name != "__builtins__"})
            return dynamic_subimport, (obj.__name__, state)
        reduced = super().reducer_override(obj)
        if not isinstance(obj, (type, FunctionType)) and type(obj) not in self.dispatch_table:
            return _remakable(obj, obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL))
        if not isinstance(obj, type) or reduced is NotImplemented or len(reduced) != _OF_A_CLASS:
            return reduced
        make, arguments, (members, slots), *rest = reduced
        kept = self._needed(members)
        if kept.get("__pydantic_complete__"):
            kept["__pydantic_parent_namespace__"] = None
        return make, arguments, (kept, slots), *rest

    def _code(self, code: CodeType) -> tuple[object, tuple[object, ...]]:
        make, arguments = cast("tuple[object, tuple[object, ...]]", self.dispatch_table[CodeType](code))
        return make, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])

    def _needed(self, members: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in members.items()
            if name in self._names or not _needs_this_process(value, self._references)
        }


def _remakable(obj: Any, reduced: Any) -> Any:
    """`reduced`, what pickle has of an object. Raises PicklingError for an object of the program's own that certainly
    cannot be unpickled: its class takes other arguments, or cannot take its state."""
    if isinstance(reduced, str):
        return _named(obj, reduced)
    kind = cast("Any", type(obj))
    make, arguments = cast("tuple[Any, tuple[Any, ...]]", reduced[:2])
    state: object = reduced[2] if len(reduced) > 2 else None
    if not goes_along(kind.__module__):
        return reduced
    if state is not None and not isinstance(state, (dict, tuple)) and not hasattr(kind, "__setstate__"):
        raise pickle.PicklingError(f"the state of a {kind.__qualname__} is no dict, and it has no __setstate__")
    if getattr(make, "__name__", "") == "__newobj__":
        make = kind.__new__
    if isinstance(make, (type, FunctionType)):
        try:
            signature(make).bind(*arguments)
        except TypeError as error:
            raise pickle.PicklingError(
                f"pickle cannot make a {kind.__qualname__} again ({error}). Give it a __reduce__; an exception passes "
                "all its arguments to super().__init__"
            ) from None
        except ValueError:  # it has no signature
            pass
    return reduced


def _named(obj: Any, name: str) -> Any:
    """What to pickle of an object that pickle knows by its name only. Without the module, a cell makes it again."""
    module = str(getattr(obj, "__module__", None))
    if not goes_along(module):
        return name
    kind = cast("Any", type(obj))
    if isinstance(obj, NewType):
        return kind, (obj.__name__, obj.__supertype__)
    if isinstance(obj, (ParamSpec, TypeVarTuple)):
        return kind, (obj.__name__,)
    if kind.__name__ == "TypeAliasType":  # typing's, from Python 3.12 on, or that of typing_extensions
        return partial(kind, obj.__name__, obj.__value__, type_params=obj.__type_params__), ()
    raise pickle.PicklingError(f"{name!r} is pickled by its name in {module!r}, which no cell can import")


def _needs_this_process(value: object, known: Mapping[int, str]) -> bool:
    """Whether this is a resource of this process, or code that uses one. `known` are the `references`."""
    if isinstance(value, (FunctionType, staticmethod, classmethod, property, type)):
        used = use_of(plain(cast("object", value)), goes_along).held
        return any(resource(held) for _name, held in used if id(held) not in known)
    return id(value) not in known and bool(resource(value))


def _dump(value: object, use: Use) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, use.names).dump(value)
        return file.getvalue()


def _import_path(tool: Tool[..., Any]) -> str | None:
    """`module:qualname`, if its import in a cell gives a tool or a function that runs calls as this tool does."""
    function = cast("Callable[..., object]", tool.fn)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    qualname: str = getattr(function, "__qualname__", "")
    if module is None or "<" in qualname or not _reachable(module):
        return None
    found: object = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is function:
        found = Tool(function, name=tool.name, derive=False)  # as the cell will make it
    if isinstance(found, Tool) and tool.runs_like(cast("Tool[..., object]", found)):
        return f"{module.__name__}:{qualname}"
    return None


def _reachable(module: ModuleType) -> bool:
    """Whether a cell can import the module, because it is installed beside the interpreter or toolcell."""
    if module.__name__ == "__main__":
        return False
    where = [path] if (path := getattr(module, "__file__", None)) else list(getattr(module, "__path__", ()))
    if not where:  # built in, frozen, or made at run time
        return module.__name__ in sys.builtin_module_names or getattr(module, "__spec__", None) is not None
    return _lie_reachable(where)


def _lie_reachable(where: Iterable[str]) -> bool:
    paths, roots = python_paths(), code_roots()
    return all(_lies_below(path, paths, roots) for path in where)


@lru_cache(maxsize=8192)  # asked for each module of the program, for each tool that is sent by value
def _lies_below(path: str, paths: tuple[str, ...], roots: tuple[str, ...]) -> bool:
    return is_below(path, (*paths, *roots, "/usr/lib", "/usr/local/lib"))


def _unreachable_modules() -> list[ModuleType]:
    """The user's own top-level modules and packages, which a cell cannot import."""
    return [
        module
        for name, module in list(sys.modules.items())
        if "." not in name
        and isinstance(module, ModuleType)  # pyright: ignore[reportUnnecessaryIsInstance] - sys.modules may hold anything
        and name == module.__name__  # by which cloudpickle knows it
        and not _reachable(module)
    ]


@contextmanager
def _by_value(modules: list[ModuleType]) -> Generator[None, None, None]:
    """Make cloudpickle send these modules by value. Its registry is global: one thread at a time changes it, and
    entries of the program stay.
    """
    with _registry:
        theirs = list_registry_pickle_by_value()
        ours = [module for module in modules if module.__name__ not in theirs]
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)
