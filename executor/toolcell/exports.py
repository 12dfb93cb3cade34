"""Tools in the dialects of model providers: the names of `toolcell_tools.exports`."""

from toolcell_tools.exports import (
    DialectName,
    Difference,
    Export,
    Grammar,
    InvalidCall,
    ModelCall,
    NameMap,
    ProviderDefined,
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
