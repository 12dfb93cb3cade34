"""Tools in the dialects of model providers: `toolcell_tools.exports` as users of `toolcell` look for it."""

from toolcell_tools.exports import (
    Call,
    DialectName,
    Export,
    Finding,
    Grammar,
    InvalidCall,
    NameMap,
    ProviderTool,
    Report,
    anthropic,
    gemini,
    mcp,
    openai_chat,
    openai_responses,
    parse_call,
    result_for,
)

__all__ = [
    "Call",
    "DialectName",
    "Export",
    "Finding",
    "Grammar",
    "InvalidCall",
    "NameMap",
    "ProviderTool",
    "Report",
    "anthropic",
    "gemini",
    "mcp",
    "openai_chat",
    "openai_responses",
    "parse_call",
    "result_for",
]
