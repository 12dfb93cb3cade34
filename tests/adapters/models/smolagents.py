from typing import Any as _Any

from smolagents import ChatMessage as _Message
from smolagents import Model as _Model
from smolagents.models import ChatMessageToolCall as _Call
from smolagents.models import ChatMessageToolCallFunction as _Function


class _Scripted(_Model):
    """Calls `pay` once, then says how it went. Where no tools are offered, it writes code."""

    def generate(self, messages: list[_Any], *, tools_to_call_from: _Any = None, **_options: _Any) -> _Message:
        said = str(messages[-1].content) if "Observation" in str(messages[-1].content) else ""
        if tools_to_call_from is None:
            return _Message(role="assistant", content="<code>\nfinal_answer(pay(amount=50))\n</code>")
        name, arguments = ("final_answer", {"answer": said}) if said else ("pay", {"amount": 50})
        call = _Call(id="c1", type="function", function=_Function(name=name, arguments=arguments))
        return _Message(role="assistant", content="", tool_calls=[call])


model = _Scripted(model_id="scripted")
