"""Tools in the dialects of model providers and of MCP: declarations in, JSON out, and a report of what was lost.

    from toolcell_tools import base_tools, exports

    export = exports.openai_responses(base_tools(), strict=True)
    export.tools                       # for the request
    call = export.parse_call(item)     # from the answer: the tool's own name, arguments that fit its schema
    export.result_for(call, result)    # for the next request
    print(export.report)               # every difference between a tool and its export

No provider's SDK is imported.
"""

from collections.abc import Mapping
from typing import Any, Literal

from toolcell_tools.result import ToolResult

from .calls import InvalidCall, ModelCall
from .dialect import Dialect, NameMap
from .export import Export, ProviderDefined
from .for_anthropic import MESSAGES, anthropic
from .for_gemini import FUNCTIONS, gemini
from .for_mcp import TOOLS, mcp
from .for_openai import CHAT, RESPONSES, Grammar, openai_chat, openai_responses
from .report import Difference, Report

__all__ = [
    "DialectName",
    "Difference",
    "Export",
    "Grammar",
    "InvalidCall",
    "ModelCall",
    "NameMap",
    "ProviderDefined",
    "Report",
    "anthropic",
    "gemini",
    "mcp",
    "openai_chat",
    "openai_responses",
    "parse_call",
    "result_for",
]

DialectName = Literal["openai_chat", "openai_responses", "anthropic", "gemini", "mcp"]
_DIALECTS: dict[str, Dialect] = {one.name: one for one in (CHAT, RESPONSES, MESSAGES, FUNCTIONS, TOOLS)}


def parse_call(dialect: DialectName, payload: Mapping[str, Any]) -> ModelCall:
    """The call in a payload, without an export: names and arguments as the provider sent them. Raises InvalidCall."""
    return _DIALECTS[dialect].parse_call(payload)


def result_for(dialect: DialectName, call: ModelCall, result: ToolResult) -> dict[str, Any]:
    """A result in the form that the provider expects, without an export."""
    return _DIALECTS[dialect].render(call, result, False)
