from collections.abc import Callable
from typing import Any

class Tool:
    name: str
    description: str
    inputs: dict[str, dict[str, Any]]
    output_type: str
    output_schema: dict[str, Any] | None
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = ..., **kwargs: Any) -> Any: ...
    def forward(self, *args: Any, **kwargs: Any) -> Any: ...

class FinalAnswerTool(Tool): ...

def tool(tool_function: Callable[..., Any]) -> Tool: ...
def __getattr__(name: str) -> Any: ...  # the rest is for tests and examples
