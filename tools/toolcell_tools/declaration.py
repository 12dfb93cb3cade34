"""ToolDeclaration: the data that a model, a policy and a person see of a tool. It can be stored and compared."""

import hashlib
import inspect
import json
from collections.abc import Callable
from types import CodeType
from typing import Any, Literal, Protocol, cast, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from .annotations import Annotations
from .capability import Capability, PermissionTier
from .options import FailureMode, Kind, Placement
from .signature import underlying

__all__ = ["Declared", "ToolDeclaration", "fingerprint"]


@runtime_checkable
class Declared(Protocol):
    """Anything with a declaration, such as a Tool or a TypedTool."""

    @property
    def declaration(self) -> "ToolDeclaration": ...


class ToolDeclaration(BaseModel):
    """A tool without its code. `fingerprint` changes whenever its name, version, description, schema or code does.

    `requires_approval` is "depends" where it is a function of the arguments. `failure_schema` describes the data of
    failures. A declaration of kind "provider" carries what that provider defines, untouched, and no parameters schema
    that means anything.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    version: str = "1.0.0"
    tier: PermissionTier
    needs: frozenset[Capability] = frozenset()
    uses: frozenset[Capability] = frozenset()
    parameters_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    failure_schema: dict[str, Any] | None = None
    failure_mode: FailureMode = "error"
    annotations: Annotations = Field(default_factory=Annotations)
    timeout: float | None = None
    requires_approval: bool | Literal["depends"] = False
    has_preview: bool = False
    long_running: bool = False
    return_direct: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    fingerprint: str
    kind: Kind = "function"
    placement: Placement = "cell"
    provider: str | None = None
    provider_definition: dict[str, Any] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether its schema became known at run time only, so that nothing about it can be checked before."""
        return self.kind == "dynamic"

    @field_serializer("needs", "uses")
    def _in_order(self, capabilities: frozenset[Capability]) -> list[Capability]:
        return sorted(capabilities)


def fingerprint(said: object, *code: object) -> str:
    """`sha256:<hex>` over what a tool says, as JSON data, and what it does: the source of functions and classes, or
    their bytecode where no source can be had."""
    hashed = hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode())
    for one in code:
        hashed.update(b"\0" + _does(one))
    return f"sha256:{hashed.hexdigest()}"


def _does(code_of: object) -> bytes:
    if isinstance(code_of, type):
        return _class_does(code_of)
    function = underlying(cast("Callable[..., object]", code_of))
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return (
            f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', repr(type(function)))}".encode()
        )
    try:
        return inspect.getsource(code).encode()
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, made by exec, or the file changed since
        return "\n".join(_instructions(code)).encode()


def _class_does(cls: type) -> bytes:
    """The source of the class and of its methods: for a class made by exec, Python 3.13 finds the lines of another."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError, SyntaxError):
        source = f"{cls.__module__}:{cls.__qualname__}"
    return b"\0".join([source.encode(), *(_does(one) for one in vars(cls).values() if hasattr(one, "__code__"))])


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
