from typing import Any, TypedDict

class BaseTextEnvStepOutput(TypedDict, total=False):
    observations: list[dict[str, str]]
    reward: float
    done: bool
    metadata: dict[str, Any]
    postprocessed_action: str | None

class BaseTextEnv:
    turns: int
    max_turns: int
    tool_to_toolgroup: dict[str, str]
    def __init__(self) -> None: ...
    def init_tool_groups(self, tool_groups: list[Any] = ...) -> None: ...
    def _execute_tool(self, tool_group_name: str, tool_name: str, tool_input: Any) -> str: ...
    def step(self, action: str) -> BaseTextEnvStepOutput: ...
    def close(self) -> None: ...
