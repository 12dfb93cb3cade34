"""Holding what a tool returned against the output schema that it declares, in the supervisor.

A cell can send what it likes; what carries a schema to a model or a program fits it, or is an error that says where.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

import jsonschema_rs

from toolcell.errors import UsageError
from toolcell_tools.errors import ExecutionError

MAX_MESSAGE_CHARS = 2_000


class _Compiled(Protocol):
    def is_valid(self, instance: object) -> bool: ...
    def iter_errors(self, instance: object) -> Any: ...


class OutputSchema:
    """One tool's output schema, compiled. Linear regular expressions and no remote references, as for arguments."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        try:
            self._compiled = cast(
                "_Compiled",
                jsonschema_rs.Draft202012Validator(
                    dict(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_remote
                ),
            )
        except ValueError as error:
            problem = str(error).partition("\n")[0].rstrip(".")
            raise UsageError(
                f"The output schema of tool {tool!r} does not compile: {problem}. Mend the schema."
            ) from error

    def misfit(self, output: object) -> ExecutionError | None:
        """None for an output that fits; else what is wrong, with `data["path"]` as a JSON path such as `$.rows[3]`."""
        if self._compiled.is_valid(output):
            return None
        problem = next(iter(self._compiled.iter_errors(output)))
        path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.instance_path)
        message = (
            f"The tool {self._tool!r} returned what its output schema does not allow, at {path}: {problem.message}"
        )
        return ExecutionError(message=message[:MAX_MESSAGE_CHARS], data={"path": path[:MAX_MESSAGE_CHARS]})


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"a schema may not refer to {uri}: only local references are followed")
