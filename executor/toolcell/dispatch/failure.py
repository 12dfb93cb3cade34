"""Failures that a tool declares as results: `failure_mode="return"`. Pure: the cell's report in, a value out."""

from functools import lru_cache
from typing import Any, cast

from pydantic_core import from_json, to_json

from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import ExecutionError

from .validate import Validator


def returned_failure(message: str, data: object, declaration: ToolDeclaration) -> dict[str, object] | ExecutionError:
    """The output of a call with a declared failure: `{"failure": data}`, so that no reader takes it for a success, or
    `{"failure": {"message": …}}` without data. Data that does not fit `failure_schema` is an ExecutionError.
    """
    failure = {"message": message} if data is None else data
    if declaration.failure_schema is not None:
        problem = _validator(declaration.name, to_json(declaration.failure_schema)).check_output(failure)
        if problem is not None:
            return ExecutionError(
                message=f"{message} (The data of this failure is not what the tool declared: {problem})", data=data
            )
    return {"failure": failure}


@lru_cache(maxsize=256)
def _validator(tool: str, schema: bytes) -> Validator:
    return Validator(tool, cast("dict[str, Any]", from_json(schema)))
