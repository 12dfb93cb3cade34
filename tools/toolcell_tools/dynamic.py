"""Tools whose parameters are known only at run time: a JSON Schema, taken unchanged, or a model."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from . import definition
from .failures import ToolDefinitionError
from .options import DynamicHostOptions, DynamicOptions, Kind, answers_parameter, check_flag
from .outside_cells import HostTool
from .typed import SingleArgumentTool

if TYPE_CHECKING:
    from .declaration import Documented

__all__ = ["DynamicHostTool", "DynamicTool", "dynamic_host_tool", "dynamic_tool", "is_dynamic"]

_ANYTHING: dict[str, Any] = {"type": "object"}


class DynamicTool(SingleArgumentTool[..., Any]):
    """A tool made of a handler and separate parameters. Made by `dynamic_tool`."""

    kind: ClassVar[Kind] = "dynamic"

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        parameters: object = None,
        *,
        validate: bool = True,
        derive: bool = True,
        **options: Any,
    ) -> None:
        if not callable(handler):
            raise ToolDefinitionError(f"tool {name!r}: handler={handler!r} is not a function.")
        self._given = _ANYTHING if parameters is None else parameters
        self.parameters_type = None if isinstance(self._given, Mapping) else parameters
        super().__init__(handler, derive=False, name=name, **options)
        check_flag(self.name, "validate", validate)
        if not validate and self.parameters_type is not None:
            raise ToolDefinitionError(
                f"tool {self.name!r}: validate=False is for parameters in JSON Schema, and a type always validates. "
                "Pass the JSON Schema, or leave validate out."
            )
        self.validate = validate
        if derive:
            self._derive(None)

    def _words(self) -> "Documented":
        from .declaration import Documented

        return Documented("", {})  # a handler's docstring is for its maintainers

    def _derived_parameters(self, words: "Documented") -> dict[str, Any]:
        if self.parameters_type is not None:
            schema = super()._derived_parameters(words)
            self._check_answers(schema.get("properties", {}))
            return schema
        from .schemas.untrusted import check_foreign_schema

        return deepcopy(check_foreign_schema(self.name, "parameters", cast("Mapping[str, Any]", self._given)))

    def _check_answers(self, listed: Mapping[str, Any]) -> None:
        """Refuse a type that takes the answers of a person, by `mcp_metadata`, from an argument that a client sends."""
        answers = answers_parameter(self.metadata)
        if not answers:
            return
        from .schemas.of_types import other_names

        for other in sorted(other_names(self.parameters_type, answers) & listed.keys()):
            raise ToolDefinitionError(
                f"tool {self.name!r}: the answers of a person are in {answers!r}, and also taken from {other!r}, which "
                "a client can send. Remove that alias."
            )


class DynamicHostTool(HostTool[..., Any], DynamicTool):
    """A dynamic tool whose handler runs in the supervisor's process. Made by `dynamic_host_tool`."""

    kind: ClassVar[Kind] = "dynamic"


def dynamic_tool(
    name: str,
    *,
    handler: Callable[..., Any],
    parameters: object = None,
    description: str = "",
    success: object = None,
    validate: bool = True,
    **options: Unpack[DynamicOptions],
) -> DynamicTool:
    """Make a tool that is described at run time. `handler(arguments)` or `handler(ctx, arguments)`, sync or async.

    If `parameters` is a JSON Schema, it is declared unchanged and the handler gets the arguments as a dict;
    `validate=False` then leaves validation to the handler. For a pydantic model, dataclass or TypedDict the handler
    gets an instance; for `str`, one text, called `input`; for None, a dict of anything. `success` and `failure` are
    JSON Schemas or types; a type in `success` also serialises the result. Raises ToolDefinitionError.
    """
    said: dict[str, Any] = {"description": description, "output_schema": success, **options}
    return DynamicTool(name, handler, parameters, validate=validate, derive=definition.deriving, **said)


def dynamic_host_tool(
    name: str,
    *,
    handler: Callable[..., Any],
    parameters: object = None,
    description: str = "",
    success: object = None,
    validate: bool = True,
    **options: Unpack[DynamicHostOptions],
) -> DynamicHostTool:
    """Make a dynamic tool that runs in the supervisor's own process, outside any sandbox, to forward calls to a client.

    The options are those of `dynamic_tool`, except the ones that only a cell can enforce: `uses`, `mutates`, `limits`
    and `lifetime`. A handler that takes a context gets a HostContext. The default tier is SYSTEM, and no Worker can
    call it unless it is `harmless`, as with `host_tool`. Raises ToolDefinitionError.
    """
    said: dict[str, Any] = {"description": description, "output_schema": success, **options}
    return DynamicHostTool(name, handler, parameters, validate=validate, derive=definition.deriving, **said)


def is_dynamic(obj: object) -> bool:
    """Whether `obj` is a dynamic tool, or the declaration of one."""
    if getattr(obj, "kind", None) != "dynamic":
        return False
    from .declaration import ToolDeclaration

    return isinstance(obj, DynamicTool | ToolDeclaration)
