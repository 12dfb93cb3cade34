import re as _re
from typing import Any as _Any

from langchain_core.language_models import BaseChatModel as _Model
from langchain_core.messages import AIMessage as _AIMessage
from langchain_core.messages import BaseMessage as _Message
from langchain_core.messages import ToolMessage as _ToolMessage
from langchain_core.outputs import ChatGeneration as _Generation
from langchain_core.outputs import ChatResult as _Result


def _calls(messages: list[_Message]) -> list[_Any]:
    """What it does, by absolute paths in the project that the system prompt names."""
    (root,) = _re.findall(r"The project is in ([^\n]+)\.", str(messages[0].content))
    return [
        {"name": "write_file", "args": {"file_path": f"{root}/hello.py", "content": "print(6 * 7)"}, "id": "c1"},
        {"name": "execute", "args": {"command": f"python3 {root}/hello.py"}, "id": "c2"},
    ]


class _Scripted(_Model):
    """Writes a file, runs it, then says how it went."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_tools: _Any, **_options: _Any) -> _Any:
        return self

    def _generate(self, messages: list[_Message], *_arguments: _Any, **_options: _Any) -> _Result:
        calls = _calls(messages)
        done = [one for one in messages if isinstance(one, _ToolMessage)]
        said = (
            _AIMessage("", tool_calls=[calls[len(done)]])
            if len(done) < len(calls)
            else _AIMessage(str(done[-1].content))
        )
        return _Result(generations=[_Generation(message=said)])


model = _Scripted()
