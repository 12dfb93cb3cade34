from typing import Any as _Any

from langchain_core.language_models import BaseChatModel as _Model
from langchain_core.messages import AIMessage as _AIMessage
from langchain_core.messages import BaseMessage as _Message
from langchain_core.messages import ToolMessage as _ToolMessage
from langchain_core.outputs import ChatGeneration as _Generation
from langchain_core.outputs import ChatResult as _Result


class _Scripted(_Model):
    """Calls `pay` once, then says how it went."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_tools: _Any, **_options: _Any) -> _Any:
        return self

    def _generate(self, messages: list[_Message], *_arguments: _Any, **_options: _Any) -> _Result:
        last, call = messages[-1], {"name": "pay", "args": {"amount": 50}, "id": "c1"}
        said = _AIMessage(str(last.content)) if isinstance(last, _ToolMessage) else _AIMessage("", tool_calls=[call])
        return _Result(generations=[_Generation(message=said)])


model = _Scripted()
