"""Failures that a tool declares as results: `failure_mode="return"`. Pure: what the cell reported in, value out."""

from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
from pydantic_core import from_json, to_json

from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import ExecutionError


def returned_failure(message: str, data: object, declaration: ToolDeclaration) -> dict[str, object] | ExecutionError:
    """The output of a call that failed as its tool said it might: `{"failure": data}`, so that no reader takes it for a
    success; `{"failure": {"message": …}}` where there was no data. Data that is not what `failure_schema` says is an
    ExecutionError.
    """
    failure = {"message": message} if data is None else data
    if declaration.failure_schema is not None:
        problem = next(iter(_compiled(to_json(declaration.failure_schema)).iter_errors(failure)), None)
        if problem is not None:
            where = "".join(f"[{step!r}]" for step in problem.instance_path)
            return ExecutionError(
                message=f"{message} (The data{where} of this failure is not what the tool declared: {problem.message})",
                data=data,
            )
    return {"failure": failure}


@lru_cache(maxsize=256)
def _compiled(schema: bytes) -> Any:
    options = jsonschema_rs.RegexOptions()  # the linear engine, as for arguments
    return jsonschema_rs.Draft202012Validator(cast("dict[str, Any]", from_json(schema)), pattern_options=options)
