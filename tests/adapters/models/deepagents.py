from typing import Any as _Any

from langchain_core.language_models import BaseChatModel as _Model
from langchain_core.messages import AIMessage as _AIMessage
from langchain_core.messages import BaseMessage as _Message
from langchain_core.messages import ToolMessage as _ToolMessage
from langchain_core.outputs import ChatGeneration as _Generation
from langchain_core.outputs import ChatResult as _Result

_CALLS = [
    {"name": "write_file", "args": {"file_path": "/hello.py", "content": "print(6 * 7)"}, "id": "c1"},
    {"name": "execute", "args": {"command": "python3 hello.py"}, "id": "c2"},
]


class _Scripted(_Model):
    """Writes a file, runs it, then says how it went."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_tools: _Any, **_options: _Any) -> _Any:
        return self

    def _generate(self, messages: list[_Message], *_arguments: _Any, **_options: _Any) -> _Result:
        done = [one for one in messages if isinstance(one, _ToolMessage)]
        said = (
            _AIMessage("", tool_calls=[_CALLS[len(done)]])
            if len(done) < len(_CALLS)
            else _AIMessage(str(done[-1].content))
        )
        return _Result(generations=[_Generation(message=said)])


model = _Scripted()
