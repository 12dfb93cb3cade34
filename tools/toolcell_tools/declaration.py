"""ToolDeclaration: the data that a model, a policy and a person see of a tool. It can be stored and compared.

Two of its parts are read of the function's source: the words of its docstring and the fingerprint.
"""

import hashlib
import inspect
import json
import linecache
import re
from collections.abc import Callable
from copy import deepcopy
from types import CodeType
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from .capability import Capability, PermissionTier
from .options import Annotations, ExceptionsShown, FailureMode, Kind, Placement
from .schemas.keywords import subschemas
from .signals import SignalKind
from .signature import underlying

__all__ = ["Declared", "Documented", "ToolDeclaration", "documented", "fingerprint"]

_SECTION = re.compile(r"^[ \t]*(:\w[^:\n]*:|\w[\w ]*:[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE)
_QUIET: Any = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}


@runtime_checkable
class Declared(Protocol):
    """Anything with a declaration, such as a Tool or a TypedTool."""

    @property
    def declaration(self) -> "ToolDeclaration": ...


class ToolDeclaration(BaseModel):
    """A tool without its code. `fingerprint` changes whenever its name, version, description, schema or code does.

    `requires_approval` is "depends" if it is a function of the arguments. `failure_schema` describes the data of
    failures. `instructions` is a text for the system prompt, `signals` are the signals that the tool may give, and a
    tool that `confirms` may ask for a confirmation while it runs. `exceptions` says what a model reads of an exception
    that the tool raised: "text" is its type and its text, "type" its type only. A declaration of kind "provider"
    carries the provider's own definition unchanged; its parameters schema has no meaning.
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
    instructions: str = ""
    signals: frozenset[SignalKind] = frozenset()
    confirms: bool = False
    exceptions: ExceptionsShown = "text"
    fingerprint: str
    kind: Kind = "function"
    placement: Placement = "cell"
    provider: str | None = None
    provider_definition: dict[str, Any] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether the tool's schema became known only at run time, so nothing can check it earlier."""
        return self.kind == "dynamic"

    @field_validator("parameters_schema", "output_schema", "failure_schema")
    @classmethod
    def _in_json(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        return schema if schema is None or _finite(schema) else _without_infinities(schema)

    @field_serializer("needs", "uses")
    def _in_order(self, capabilities: frozenset[Capability]) -> list[Capability]:
        return sorted(capabilities)

    @field_serializer("signals")
    def _signals_in_order(self, signals: frozenset[SignalKind]) -> list[SignalKind]:
        return sorted(signals)


def _without_infinities(schema: dict[str, Any]) -> dict[str, Any]:
    """A copy of the schema without NaN and infinities, which JSON lacks. A default of them is said in the
    description, and no argument can have such a value."""
    result = deepcopy(schema)
    pending: list[object] = [result]
    while pending:
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        here, inner = cast("dict[str, Any]", node), list(subschemas(cast("dict[str, Any]", node)))
        pending += [sub for _, sub in inner]
        for key in here.keys() - {steps[0] for steps, _ in inner}:
            if _finite(here[key]):
                continue
            value = here.pop(key)
            if key == "default":
                said = f"default: {json.dumps(value, default=str)}"
                before = str(here.get("description", "")).strip()
                here["description"] = f"{before} ({said})" if before else f"D{said[1:]}"
            elif key in ("enum", "examples"):
                here[key] = [one for one in value if _finite(one)]
            elif key == "const":
                here["enum"] = []  # no JSON value fits
    return result


def _finite(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=str)
    except ValueError:
        return False
    return True


class Documented(NamedTuple):
    """Summary and body in one text, and a description for each parameter that has one."""

    description: str
    parameters: dict[str, str]


def documented(fn: Callable[..., object]) -> Documented:
    """The parsed docstring of `fn`; empty if there is none."""
    text = inspect.getdoc(underlying(fn)) or ""
    if not _SECTION.search(text):
        return Documented(text.strip(), {})  # without sections there is no need to import griffe, which takes 50 ms
    from griffe import Docstring

    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in Docstring(text).parse("auto", per_style_options=_QUIET):
        kind, value = section.kind.value, section.value
        if kind == "text":
            prose.append(value)
        elif kind == "admonition":
            prose.append(f"{section.title or value.annotation}: {value.description}")
        elif kind in {"parameters", "other parameters"}:
            parameters |= {one.name: " ".join(one.description.split()) for one in value if one.description}
    return Documented("\n\n".join(prose).strip(), parameters)


def fingerprint(said: object, *code: object) -> str:
    """`sha256:<hex>` over a tool's declared data, as JSON, and its code: the source of functions and classes, or their
    bytecode if there is no source."""
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
        return _source_of(code, getattr(function, "__globals__", {})).encode()
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, made by exec, or the file has changed since
        return "\n".join(_instructions(code)).encode()


def _source_of(code: CodeType, namespace: dict[str, Any]) -> str:
    """The source of a function with these globals. inspect.getsource would search all loaded modules for its file.
    Raises OSError for a function made by exec: since Python 3.13, its file name is also that of `python -c`."""
    if code.co_filename == "<string>":
        raise OSError("no source")
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, namespace)[code.co_firstlineno - 1 :]
    if not lines:
        raise OSError("no source")
    return "".join(inspect.getblock(lines))


def _class_does(cls: type) -> bytes:
    """The source of the class and of its methods. For a class made by exec, Python 3.13 finds another class's lines."""
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
