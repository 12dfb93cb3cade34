"""Check a result before anybody sees it: against the tool's output schema, and against the bounds of any result.

A result from a hook, new or changed in place, is checked like one from a cell: plain JSON data, the number of elements,
depth and size, the output schema.
"""

from dataclasses import replace
from typing import Any, cast

from toolcell.wire.protocol import result_fits
from toolcell_sandbox.limits import Limits
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json
from toolcell_tools.errors import ExecutionError, ToolError
from toolcell_tools.failures import Unencodable
from toolcell_tools.preview import is_printable, printable, shortened
from toolcell_tools.result import ToolResult
from toolcell_tools.returned import DISPLAY_TEXT_CHARS, encode_return
from toolcell_tools.signals import checked_signals

from .output import OutputSchema
from .result import limit_exceeded

NOTHING: dict[str, Any] = {"output": None, "display": "", "artifacts": [], "content": [], "values": {}, "signals": ()}
"""The fields that are cleared when an error replaces a result. `fitting` keeps the artifacts: the files exist."""


def fitting(result: ToolResult, schema: OutputSchema | None) -> ToolResult:
    """A tool's success if its output fits its schema, else an error that names the place."""
    misfit = None if schema is None else schema.misfit(result.output)
    if misfit is None:
        return result
    return result.model_copy(update={**NOTHING, "artifacts": result.artifacts, "error": misfit})


def for_people(result: ToolResult) -> ToolResult:
    """The result with a display that a terminal shows as it is: each control character but newline and tab is escaped,
    and a display that needs it is cut. A file's name, or a line of a file, may have any character."""
    if is_printable(result.display, keep="\n\t"):
        return result
    shown = printable(shortened(result.display, DISPLAY_TEXT_CHARS), keep="\n\t")
    return result.model_copy(update={"display": shown})


def left_by_hooks(result: ToolResult, tool: Tool[..., Any], limits: Limits, schema: OutputSchema | None) -> ToolResult:
    """The result as the hooks left it, if a tool could have returned it; else an error with the reason.

    `schema` is None if the output need not fit one: the schema does not cover a failure that is returned as a result.
    """
    artifacts = [one if one.uri is None else replace(one, uri=None) for one in result.artifacts]
    bare, error = result.model_copy(update={"error": None, "artifacts": artifacts, "signals": ()}), result.error
    try:
        checked_signals(tool.name, tool.signals, result.signals)
        payload = encode_return(bare)
        payload["values"] = encode_json(result.values)
        if error is not None:
            payload["error"] = said = cast("dict[str, Any]", encode_json(error.model_dump()))
            if isinstance(error, ExecutionError):
                error = error.model_copy(update={"data": said["data"]})
    except Unencodable as refusal:
        return _refused(result, ExecutionError(message=f"The result that a hook put in is none: {refusal}"))
    if not result_fits(payload, limits.result_bytes):
        return _refused(result, limit_exceeded("result", tool.name, limits))
    if result.error is None and schema is not None:
        misfit = schema.misfit(payload["output"], "A hook")
        if misfit is not None:
            return _refused(result, misfit)
    signals = () if result.error is not None else result.signals
    shown = {"output": payload["output"], "display": payload["display"]}
    return result.model_copy(update={**shown, "error": error, "signals": signals})


def _refused(result: ToolResult, error: ToolError) -> ToolResult:
    return result.model_copy(update={**NOTHING, "error": error})
