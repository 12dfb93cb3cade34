"""What becomes of a result before anybody sees it: held to the tool's output schema, and to the bounds of any result.

What a hook leaves is held to the same as what came out of a cell, whether it put in another result or changed one in
place: plain JSON data, the elements, depth and size of a result, the output schema.
"""

from dataclasses import replace
from typing import Any

from toolcell.wire.protocol import result_fits
from toolcell_sandbox.limits import Limits
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json, encode_return
from toolcell_tools.errors import ExecutionError, ToolError
from toolcell_tools.failures import Unencodable
from toolcell_tools.result import ToolResult

from .output import OutputSchema
from .result import limit_exceeded

NOTHING: dict[str, Any] = {"output": None, "display": "", "artifacts": [], "content": [], "values": {}}
"""What a result has no more of when an error takes its place. What was made is there all the same: see `fitting`."""


def fitting(result: ToolResult, schema: OutputSchema | None) -> ToolResult:
    """A tool's success, if its output is what its schema says; else the error that says where it is not."""
    misfit = None if schema is None else schema.misfit(result.output)
    if misfit is None:
        return result
    return result.model_copy(update={**NOTHING, "artifacts": result.artifacts, "error": misfit})


def left_by_hooks(result: ToolResult, tool: Tool[..., Any], limits: Limits, schema: OutputSchema | None) -> ToolResult:
    """The result as hooks left it, if it is one that a tool could have returned; else an error that says why not.

    `schema` is None where the output need not fit one: a tool's failure that is a result is none of its outputs.
    """
    artifacts = [one if one.uri is None else replace(one, uri=None) for one in result.artifacts]
    bare = result.model_copy(update={"error": None, "artifacts": artifacts})
    try:
        payload = encode_return(bare)
        payload["values"] = encode_json(result.values)
        if result.error is not None:
            payload["error"] = encode_json(result.error.model_dump(mode="json"))
    except Unencodable as refusal:
        return _refused(result, ExecutionError(message=f"The result that a hook put in is none: {refusal}"))
    if not result_fits(payload, limits.result_bytes):
        return _refused(result, limit_exceeded("result", tool.name, limits))
    if result.error is None and schema is not None:
        misfit = schema.misfit(payload["output"], "A hook")
        if misfit is not None:
            return _refused(result, misfit)
    return result.model_copy(update={"output": payload["output"], "display": payload["display"]})


def _refused(result: ToolResult, error: ToolError) -> ToolResult:
    return result.model_copy(update={**NOTHING, "error": error})
