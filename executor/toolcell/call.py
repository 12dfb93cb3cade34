"""ToolCall: one call of a tool as the runtime asked for it, the value that every step of the pipeline takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` are plain JSON data. `attempt` counts from 1; a repaired call is a new ToolCall of the next
    attempt.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    attempt: int = 1
