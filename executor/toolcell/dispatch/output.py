"""Validate what a tool returned against the schemas that it declares, in the supervisor.

A cell can send anything. Output of a tool with a schema fits the schema, or becomes an error that names the place.
"""

from collections.abc import Mapping
from typing import Any

from toolcell_tools.errors import ExecutionError

from .explain import explained
from .validate import MAX_MESSAGE_CHARS, Validator


class OutputSchema:
    """One tool's compiled output schema. Raises UsageError if it does not compile."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._validator = Validator(tool, schema)

    def misfit(self, output: object, who: str = "") -> ExecutionError | None:
        """None for an output that fits, else the error. Its `data["path"]` is a JSON path such as `$.rows[3]`.

        `who` says in words who returned the output, if it was not the tool itself.
        """
        found = self._validator.problems(output)
        if not found:
            return None
        path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found[0].path)
        name = f"the tool {self._tool!r}"
        said = (
            f"{who} put in what the output schema of {name}" if who else f"T{name[1:]} returned what its output schema"
        )
        message = f"{said} does not allow: {explained(found)}"
        return ExecutionError(message=message[:MAX_MESSAGE_CHARS], data={"path": path[:MAX_MESSAGE_CHARS]})
