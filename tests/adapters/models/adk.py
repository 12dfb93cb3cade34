from collections.abc import AsyncGenerator as _AsyncGenerator

from google.adk.models.base_llm import BaseLlm as _Llm
from google.adk.models.llm_request import LlmRequest as _Request
from google.adk.models.llm_response import LlmResponse as _Response
from google.genai import types as _types


class _Scripted(_Llm):
    """Calls `pay` once, then says how it went."""

    async def generate_content_async(
        self, llm_request: _Request, stream: bool = False
    ) -> _AsyncGenerator[_Response, None]:
        parts = [part for content in llm_request.contents for part in content.parts or []]
        answers = [part.function_response.response for part in parts if part.function_response]
        said = (
            _types.Part.from_text(text=f"{answers[-1]}")
            if answers
            else _types.Part.from_function_call(name="pay", args={"amount": 50})
        )
        yield _Response(content=_types.Content(role="model", parts=[said]))


model = _Scripted(model="scripted")
