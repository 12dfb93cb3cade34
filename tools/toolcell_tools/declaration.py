"""ToolDeclaration: what a model, a policy and a person see of a tool. Data only; it can be stored and compared."""

import hashlib
import inspect
import json
from collections.abc import Callable
from types import CodeType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from .annotations import Annotations
from .capability import Capability, PermissionTier
from .signature import underlying

__all__ = ["Placement", "ToolDeclaration", "fingerprint"]

Placement = Literal["cell", "host"]


class ToolDeclaration(BaseModel):
    """A tool without its code. `fingerprint` changes whenever its name, version, description, schema or code does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    version: str = "1.0.0"
    tier: PermissionTier
    needs: frozenset[Capability] = frozenset()
    uses: frozenset[Capability] = frozenset()
    parameters_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: Annotations = Field(default_factory=Annotations)
    timeout: float | None = None
    fingerprint: str
    placement: Placement = "cell"

    @field_serializer("needs", "uses")
    def _in_order(self, capabilities: frozenset[Capability]) -> list[Capability]:
        return sorted(capabilities)


def fingerprint(name: str, version: str, description: str, schema: dict[str, Any], fn: Callable[..., object]) -> str:
    """`sha256:<hex>` over what a tool says and what it does: its source, or its bytecode where no source can be had."""
    said = json.dumps([name, version, description, schema], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(said.encode() + b"\0" + _does(fn)).hexdigest()
    return f"sha256:{digest}"


def _does(fn: Callable[..., object]) -> bytes:
    function = underlying(fn)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return (
            f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', repr(type(function)))}".encode()
        )
    try:
        return inspect.getsource(code).encode()
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, made by exec, or the file changed since
        return "\n".join(_instructions(code)).encode()


def _instructions(code: CodeType) -> list[str]:
    """Bytecode, names and constants, nested functions included, without addresses: equal in every process."""
    lines = [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines.extend(_instructions(constant))
        elif isinstance(constant, frozenset):
            lines.append(repr(sorted(map(repr, constant))))  # pyright: ignore[reportUnknownArgumentType]
        else:
            lines.append(repr(constant))
    return lines
