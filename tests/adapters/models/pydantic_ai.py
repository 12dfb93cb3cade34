from pydantic_ai import ModelMessage as _Message
from pydantic_ai import ModelResponse as _Response
from pydantic_ai import TextPart as _Text
from pydantic_ai import ToolCallPart as _Call
from pydantic_ai.models.function import AgentInfo as _Info
from pydantic_ai.models.function import FunctionModel as _FunctionModel


def _answer(messages: list[_Message], _info: _Info) -> _Response:
    """Call `pay` once, then say how it went."""
    last = messages[-1].parts[-1]
    return _Response([_Text(f"{last.content}") if last.part_kind == "tool-return" else _Call("pay", {"amount": 50})])


model = _FunctionModel(_answer)
