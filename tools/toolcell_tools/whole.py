"""Tools that take their arguments as one value: an object of a model, or a dict."""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args

from .definition import Tool
from .failures import ToolDefinitionError
from .signature import MISSING, Parameter

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from .docstrings import Documented

__all__ = ["INPUT_SCHEMA", "WholeTool"]

P = ParamSpec("P")
R = TypeVar("R")
_CONTEXT_NAMES = frozenset({"ctx", "context"})
INPUT_SCHEMA: dict[str, Any] = {  # as LlamaIndex declares a tool without a schema
    "type": "object",
    "properties": {"input": {"title": "input query string", "type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class WholeTool(Tool[P, R]):
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
        from .schema import object_schema

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
