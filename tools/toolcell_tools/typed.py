"""Tools whose function takes all arguments as one value. TypedTool: such a tool as a class, with set-up and tear-down.
`as_tool`: make a Tool of whatever a user passes."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, cast, get_args, get_origin

from . import definition
from .capability import Capability, PermissionTier
from .context import ToolContext
from .definition import Tool
from .failures import ToolDefinitionError
from .options import ExceptionsShown, FailureMode, Kind, Lifetime, ToolOptions, suggested_name
from .signature import MISSING, Parameter, evaluated

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from .declaration import Documented, ToolDeclaration
    from .options import Annotations
    from .preview import Preview
    from .signals import SignalKind

__all__ = ["INPUT_SCHEMA", "SingleArgumentTool", "TypedTool", "TypedToolAdapter", "as_tool"]

P = ParamSpec("P")
R = TypeVar("R")
In = TypeVar("In")
_CONTEXT_NAMES = frozenset({"ctx", "context"})
INPUT_SCHEMA: dict[str, Any] = {  # as LlamaIndex declares a tool without a schema
    "type": "object",
    "properties": {"input": {"title": "input query string", "type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class SingleArgumentTool(Tool[P, R]):
    """A tool whose function takes one value that holds all arguments, besides the context.

    `parameters_type` is the value's type: a pydantic model, dataclass or TypedDict (or `T | None` of one), `str` for a
    single text called `input`, or None for a dict as it comes.
    """

    parameters_type: Any
    _argument: str
    _adapter: "TypeAdapter[Any] | None" = None

    @property
    def whole(self) -> str:
        return ""  # arguments are never given by the name of the function's parameter

    def prepare(self) -> None:
        """Build now the one validator that binds all arguments, so that processes forked later share it."""
        self._argument_adapter()
        self._output_adapter()

    def bind(self, arguments: Mapping[str, Any], context: object) -> dict[str, Any]:
        """The value, made of `arguments` that fit the schema, and the context. Raises pydantic's ValidationError."""
        value: Any = {**self._defaults, **arguments}
        adapter = self._argument_adapter()
        if self.parameters_type is str:
            value = value["input"]
        elif adapter is not None:
            from pydantic_core import to_json

            value = adapter.validate_json(to_json(value))  # as JSON: strict models take a date from a string
        bound = {self._argument: value}
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    def _argument_adapter(self) -> "TypeAdapter[Any] | None":
        if self._adapter is None and self.parameters_type not in (None, str):
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(without_none(self.parameters_type))
        return self._adapter

    def _context_of(self, fn: Callable[..., object]) -> str | None:
        annotated = super()._context_of(fn)
        context, argument = _roles(self.name, fn, annotated, self.context_type.__name__)
        if fn is self.fn:
            self._argument = argument
        return context

    def _parameters_of(self, localns: Mapping[str, object] | None) -> tuple[Parameter, ...]:
        return (Parameter(self._argument, self.parameters_type, MISSING),)

    def _derived_parameters(self, words: "Documented") -> dict[str, Any]:
        if self.parameters_type is str:
            return INPUT_SCHEMA
        from .schemas.of_types import object_schema

        return object_schema(self.name, without_none(self.parameters_type))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_adapter": None}


def without_none(kind: Any) -> Any:
    """`T` of `T | None`: arguments are always present, so `None` never occurs."""
    members = [member for member in get_args(kind) if member is not NoneType]
    return members[0] if NoneType in get_args(kind) and len(members) == 1 else kind


def _roles(name: str, fn: Callable[..., object], context: str | None, context_type: str) -> tuple[str | None, str]:
    """The parameters of `fn` that take the context, if any, and the arguments."""
    found = list(inspect.signature(fn).parameters.values())
    others = [one for one in found if one.name != context]
    if context is None and len(others) > 1 and others[0].name in _CONTEXT_NAMES:
        context = others.pop(0).name
    taken = [one for one in others if one.default is one.empty]
    if len(taken) == 1 and taken[0].kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        return context, taken[0].name
    has = ", ".join(str(one) for one in found) or "nothing"
    raise ToolDefinitionError(
        f"tool {name!r}: its function takes ({has}). Write one parameter for all the arguments, and a "
        f"{context_type} before it if you need one: def handler(ctx: {context_type}, arguments)."
    )


class TypedTool(ABC, Generic[In]):
    """A tool as a class. `In`, a pydantic model, dataclass or TypedDict, is its parameters.

    The options of `tool` are attributes of the class, or of the instance before its first use: `name` (else the class's
    name in lower case), `description` (else the docstring of the class, then of `call`), `needs`, `lifetime` and so on.
    `requires_approval` and `mutates` may be methods that take the arguments. Pass an instance wherever a tool is taken.
    The instance is sent to cells with its attributes, so open connections in `setup`, not in `__init__`.
    """

    name: str
    description: str
    version: str
    tier: PermissionTier
    needs: Iterable[Capability | str]
    uses: Iterable[Capability | str]
    annotations: "Annotations"
    timeout: float
    limits: Mapping[str, float]
    parameters_schema: Mapping[str, Any]
    output_schema: object
    failure: object
    failure_mode: FailureMode
    lifetime: Lifetime
    long_running: bool
    return_direct: bool
    metadata: Mapping[str, Any]
    instructions: str
    exceptions: ExceptionsShown
    signals: "Iterable[SignalKind]"
    confirms: bool
    # requires_approval and mutates have no annotation, because a subclass may define them as methods

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A class that is unpickled by value is still empty here. It was checked where it was defined.
        if definition.deriving and not {"call", "__orig_bases__"}.isdisjoint(vars(cls)):
            from .schemas.of_types import object_schema

            found = _input_type(cls)
            if not isinstance(found, TypeVar):  # a generic class: its subclasses give the type
                object_schema(str(vars(cls).get("name", cls.__qualname__)), without_none(found))

    @abstractmethod
    def call(self, ctx: ToolContext, input: In) -> Any:
        """Do the work and return the result. May be `async def`."""

    def setup(self, ctx: ToolContext) -> Any:
        """Run before the first call in a process. May be `async def`. With `lifetime="session"`, calls share it."""

    def teardown(self) -> Any:
        """Run after the last call in a process that was set up. May be `async def`."""

    def preview(self, ctx: ToolContext, input: In) -> "Preview | str":
        """Describe the effect of `call` without causing it. A plain `def`. By default people see the arguments."""
        raise NotImplementedError(f"{type(self).__qualname__} has no preview of its own")

    @cached_property
    def tool(self) -> "TypedToolAdapter[In]":
        """The Tool that a supervisor runs for this instance."""
        return TypedToolAdapter(self, derive=definition.deriving)

    @property
    def declaration(self) -> "ToolDeclaration":
        """The data that a model and a policy see of this tool."""
        return self.tool.declaration


class TypedToolAdapter(SingleArgumentTool[..., Any], Generic[In]):
    """The Tool of a TypedTool: sets it up, binds arguments to its model, and tears it down."""

    kind: ClassVar[Kind] = "typed"

    def __init__(self, typed: TypedTool[In], *, derive: bool = True) -> None:
        self.typed = typed
        self.parameters_type = _input_type(type(typed))
        self._is_set_up = False
        options = {key: getattr(typed, key) for key in ToolOptions.__annotations__ if hasattr(typed, key)}
        del options["preview"]
        if type(typed).preview is not cast("type[TypedTool[In]]", TypedTool).preview:
            options["preview"] = typed.preview
        super().__init__(typed.call, derive=derive, **cast("ToolOptions", options))
        self.takes_context = True  # `setup` does

    @property
    def origin(self) -> str:
        return f"{type(self.typed).__module__}:{type(self.typed).__qualname__}"

    def run(self, bound: Mapping[str, Any], context: object) -> object:
        """Set up unless this process has done so, then call. With `lifetime="call"`, tear down after the call."""
        try:
            if not self._is_set_up:
                self._completed(self.typed.setup(cast("ToolContext", context)))
                self._is_set_up = True
            return super().run(bound, context)
        finally:
            if self.lifetime == "call":
                self.close()

    def close(self) -> None:
        try:
            if self._is_set_up:
                self._is_set_up = False
                self._completed(self.typed.teardown())
        finally:
            super().close()

    def _own_name(self) -> str:
        return suggested_name(type(self.typed).__name__)

    def _words(self) -> "Documented":
        from .declaration import documented

        for cls in type(self.typed).__mro__:
            if cls is TypedTool:
                break
            if vars(cls).get("__doc__"):
                return documented(cls)
        return documented(self.fn) if type(self.typed).call.__doc__ else super()._words()

    def _code(self) -> tuple[object, ...]:
        classes = type(self.typed).__mro__
        return classes[: classes.index(TypedTool)]


def _input_type(cls: type[TypedTool[Any]]) -> Any:
    """The type argument of TypedTool, or of a generic class between TypedTool and `cls`."""
    for one in cls.__mro__:
        for base in vars(one).get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, TypedTool):
                argument = get_args(base)[0]
                if isinstance(argument, TypeVar) and one is not cls:
                    continue
                namespace = vars(inspect.getmodule(one) or object())
                return (
                    argument
                    if isinstance(argument, TypeVar)
                    else evaluated(cls.__name__, "In", argument, dict(namespace), None)
                )
    raise ToolDefinitionError(
        f"class {cls.__qualname__}: its parameters have no type. Write class {cls.__name__}(TypedTool[Parameters]), "
        "with a pydantic model, dataclass or TypedDict."
    )


def as_tool(obj: object) -> Tool[..., object]:
    """`obj` if it is a Tool, the Tool of a TypedTool, or a Tool of any other callable; else ToolDefinitionError."""
    if isinstance(obj, Tool):
        return cast("Tool[..., object]", obj)
    if isinstance(obj, TypedTool):
        return cast("TypedTool[object]", obj).tool
    if callable(obj) and not isinstance(obj, type):
        return definition.tool(obj)
    raise _not_a_tool(obj)


def _not_a_tool(obj: object) -> ToolDefinitionError:
    from .outside_cells import ProviderTool  # only errors need it, and every zygote imports this module

    if isinstance(obj, type) and issubclass(obj, TypedTool):
        return ToolDefinitionError(f"{obj.__name__} is the class of a tool. Pass an instance: {obj.__name__}().")
    if isinstance(obj, ProviderTool):
        return ToolDefinitionError(f"{obj.name!r} is run by its provider, {obj.provider}, and cannot be run here.")
    return ToolDefinitionError(f"{obj!r} is not a tool and not a function. Pass a Tool or a plain function.")
