import warnings as _warnings
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from llama_index.core.base.llms.types import ChatMessage as _Message
from llama_index.core.base.llms.types import ToolCallBlock as _Call
from llama_index.core.llms.mock import MockFunctionCallingLLM as _Llm
from pydantic.warnings import PydanticDeprecationWarning as _Deprecation

_warnings.simplefilter("ignore", _Deprecation)  # LlamaIndex looks at attributes that pydantic no longer wants


def _answer(messages: _Sequence[_Message], **_options: _Any) -> _Message:
    """Call `pay` once, then say how it went."""
    if messages[-1].role == "tool":
        return _Message(role="assistant", content=messages[-1].content)
    return _Message(role="assistant", blocks=[_Call(tool_call_id="c1", tool_name="pay", tool_kwargs={"amount": 50})])


model = _Llm(response_generator=_answer)
