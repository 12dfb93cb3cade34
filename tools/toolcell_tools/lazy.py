"""Replacements for names of pydantic in tool modules, so that a cell that imports such a module needs no pydantic."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    from .artifact import Artifact

__all__ = ["Answer", "LazyField"]


class LazyField:
    """`pydantic.Field(description=…, **restrictions)`, made when a schema is derived. A cell never derives one."""

    __slots__ = ("description", "restrictions")

    def __init__(self, description: str, **restrictions: object) -> None:
        self.description = description
        self.restrictions = restrictions

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic import Field

        restrictions: dict[str, Any] = self.restrictions
        return handler.generate_schema(Annotated[source, Field(description=self.description, **restrictions)])


class Answer(NamedTuple):
    """A `ToolResult` with the same fields, whose parts are already checked. A block of content is the JSON of a content
    block."""

    output: object
    display: str
    artifacts: "Sequence[Artifact]" = ()
    content: "Sequence[Mapping[str, Any]]" = ()
    text_member: str = ""
