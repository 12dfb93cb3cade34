"""ToolCall: one call of a tool, as the program requested it. Every step of the pipeline takes this value."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from toolcell_tools.declaration import ToolDeclaration
    from toolcell_tools.session_info import SessionInfo


class ToolCall(NamedTuple):
    """`arguments` are plain JSON data. `attempt` counts from 1; a repaired call is a new ToolCall of the next attempt.
    Hooks and policies may read `session` and `declaration`.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    attempt: int = 1
    session: "SessionInfo | None" = None
    declaration: "ToolDeclaration | None" = None

    def with_arguments(self, arguments: Mapping[str, Any]) -> "ToolCall":
        """The same call with other arguments. A hook returns it to replace the arguments."""
        return self._replace(arguments=arguments)
