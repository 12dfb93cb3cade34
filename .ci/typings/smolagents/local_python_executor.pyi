from dataclasses import dataclass
from typing import Any

from . import Tool

class InterpreterError(ValueError): ...

@dataclass
class CodeOutput:
    output: Any
    logs: str
    is_final_answer: bool

class PythonExecutor:
    def send_tools(self, tools: dict[str, Tool]) -> None: ...
    def send_variables(self, variables: dict[str, Any]) -> None: ...
    def __call__(self, code_action: str) -> CodeOutput: ...
