"""ToolResult: the complete outcome of a call, for the model, for people and for records."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from reprlib import Repr
from typing import Annotated, Any, Generic, Literal, Self, cast, overload

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter
from pydantic_core import from_json, to_json
from typing_extensions import TypeVar

from .artifact import Artifact
from .content import AudioBlock, Content, ImageBlock, Json, TextBlock
from .errors import CutShort, ToolError, ToolFailed
from .preview import counted, printable, shortened
from .signals import Pending, Signal

__all__ = ["CapturedOutput", "Notice", "NoticeKind", "SandboxSummary", "ToolResult", "Usage", "quoted"]

SCHEMA_VERSION: Literal[1] = 1
NoticeKind = Literal["protected_name", "state_lost", "unchecked", "output_cut", "changed_files"]
FOR_MODEL_BYTES = 100_000  # about 25,000 tokens, the most that coding agents allow for one tool result


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
J = TypeVar("J", bound=Json)
R_co = TypeVar("R_co", covariant=True, default=Any)


@cache
def constructor(model: type[M]) -> Callable[[dict[str, Any]], M]:
    """A function that makes a `model` from a dict of its fields: `model_construct`, ten times as fast.

    The dict has all fields, in their order, with valid values. It becomes the model's own.
    """
    names = set(model.model_fields)  # shared: a frozen model is never assigned to, and copies have their own set

    def construct(fields: dict[str, Any]) -> M:
        made = _new(model)
        _set_fields(made, fields)
        _set_names(made, names)
        _set_extra(made, None)
        _set_private(made, None)
        return made

    return construct


_new = object.__new__
_set_fields, _set_names, _set_extra, _set_private = (  # a third of the time of object.__setattr__ with a name
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Usage(_Frozen):
    """What the call used, measured by the supervisor. A tool's own figures are not in it."""

    wall_s: float = 0.0
    """Seconds from the call's start to its end."""
    queue_s: float = 0.0
    """Seconds that the call waited for a process."""
    cpu_s: float = 0.0
    """CPU time in seconds, of the call and all processes that it started."""
    max_rss_bytes: int = 0
    """Peak resident memory of the call's own process, in bytes."""
    memory_bytes: int = 0
    """Peak memory of the call and all processes that it started, in bytes: what its cgroup was charged, page cache and
    scratch files included. Without a cgroup, the most that the watch saw processes hold. 0 if nothing was measured."""
    processes: int = 0
    """The most processes and threads that the watch saw at once; 0 for a call that ended before the watch looked."""
    sent_bytes: int = 0
    received_bytes: int = 0
    attempts: int = 1


class CapturedOutput(_Frozen):
    """What a call and its commands wrote to one stream: the `text` kept, the size in bytes, and the bytes left out.

    `text` is the first 20,000 and the last 10,000 bytes, with a line between them that counts the rest.
    """

    text: str = ""
    total_bytes: int = 0
    omitted_bytes: int = 0


class SandboxSummary(_Frozen):
    """Which mechanisms were on for the call's cell, which were allowed to be missing, and what network it had.

    `on` has the mechanisms that the supervisor found at its start, without those that the call's network policy leaves
    out. `idmapped_mounts` is also left out if the workspace's file system does not support them: such a cell is in a
    user namespace of its own. For a call that reached no cell, `on` has what the supervisor found.
    """

    on: tuple[str, ...] = ()
    allowed_missing: tuple[str, ...] = ()
    network: Literal["none", "proxy", "host"] = "none"


class Notice(_Frozen):
    """Something beside the result that its reader should know, and that is no error. `message` is a sentence."""

    kind: NoticeKind
    message: str


_UNSEEN = (  # control characters, and those of Unicode that are not shown: DerivedCoreProperties, Default_Ignorable
    r"\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_BLANK = rf"(?:[\s{_UNSEEN}]|\\[nrtbf]|\\u00[01789][0-9a-f])*"  # these escapes are JSON's
_WORD = rf"(?:[{_UNSEEN}]|\\[bf]|\\u00[01789][0-9a-f])*".join("notice")
_NOTICE = re.compile(rf"\[(?={_BLANK}{_WORD}{_BLANK}:)", re.IGNORECASE)
_REPR = Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, 160, 160
_PENDING = {field.name for field in fields(Pending)}
_NO_USAGE, _NO_CAPTURE, _NO_SANDBOX = Usage(), CapturedOutput(), SandboxSummary()


class ToolResult(_Frozen, Generic[R_co]):
    """The outcome of a call. A tool may return one itself, with `output`, `display`, `text_member`, `artifacts`,
    `content` and `signals` only.

    `output` is for the model, a text or JSON, `display` a sentence for people. Errors are data: `error` is set, nothing
    is raised.
    For type checkers, `ToolResult[R]` is the result of a tool whose function returns R; alone it is `ToolResult[Any]`.
    Store or send a result with `model_dump(mode="json")` or `model_dump_json()`, and read it with `ToolResult.parse`.
    `schema_version` is the version of the stored form.

    `stdout` and `stderr` are the output of the call and of the commands that it ran through `ctx.shell`, however it
    ended. If the call was cut short (`CutShort`: at its deadline, by a limit, a crash or a cancellation), the model
    sees them and the last progress: `for_model()` is then `{"error": {…, "progress": {"message", "fraction"}},
    "stdout": text, "stderr": text, "stdout_omitted_bytes": n, "stderr_omitted_bytes": n}`, without empty parts. The
    full text of a stream of more than 30,000 bytes is in an artifact of kind "stdout" or "stderr", and a notice of
    kind "output_cut" names it.
    """

    # JSON has no NaN, and null would mean "no value". So NaN is a string, as in `for_model`.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    schema_version: Literal[1] = SCHEMA_VERSION
    output: Any = None
    display: str = ""
    text_member: str = ""
    """The member of `output` that is a text. A model reads it as it is, after the other members as JSON."""
    artifacts: list[Artifact] = Field(default_factory=list[Artifact])
    content: list[Content] = Field(default_factory=list[Content])
    error: ToolError | None = None
    notices: tuple[Notice, ...] = ()
    usage: Usage = _NO_USAGE
    call_id: str = ""
    tool: str = ""
    version: str = ""
    session_id: str = ""
    arguments: dict[str, Any] | None = None
    """The arguments that the call ran with, after repairs, hooks and approval; None for a call that never ran."""
    sandbox: SandboxSummary = _NO_SANDBOX
    stdout: CapturedOutput = _NO_CAPTURE
    stderr: CapturedOutput = _NO_CAPTURE
    values: dict[str, Any] = Field(default_factory=dict[str, Any])
    signals: tuple[Signal, ...] = ()
    """What the tool tells the loop that called it. Empty for an error."""
    confirmation: str = ""
    """The id of the request in `supervisor.approvals` that the call waits for, or "". The supervisor sets it."""

    def __str__(self) -> str:
        """One line for people, of about 300 characters: the tool, its output or error, what else there is, the time."""
        if self.error is not None:
            said = f"{type(self.error).__name__}: {printable(shortened(self.error.message))}"
        elif self.output is None and self.content:
            said = counted(len(self.content), "content block")
        else:
            said = shortened(_REPR.repr(self.output))
        more = [
            counted(len(each), name) for each, name in ((self.artifacts, "artifact"), (self.notices, "notice")) if each
        ]
        took = [f"{self.usage.wall_s:.3g} s"] if self.usage.wall_s else []
        return f"<ToolResult of {self.tool or 'no tool'}: {' · '.join([said, *more, *took])}>"

    @property
    def is_error(self) -> bool:
        return self.error is not None

    @property
    def pending(self) -> Pending | None:
        """The Pending that a long-running tool returned in place of a result, or None."""
        output: object = self.output
        if self.error is not None or not isinstance(output, dict):
            return None
        said = cast("dict[str, object]", output)
        if said.keys() != _PENDING or not all(isinstance(value, str) for value in said.values()):
            return None
        return Pending(**cast("dict[str, str]", said))

    @classmethod
    def build(
        cls,
        *,
        output: object = None,
        display: str = "",
        text_member: str = "",
        artifacts: Sequence[object] = (),
        content: Sequence[object] = (),
        error: ToolError | None = None,
        notices: Sequence[Notice] = (),
        usage: Usage = _NO_USAGE,
        call_id: str = "",
        tool: str = "",
        version: str = "",
        session_id: str = "",
        arguments: dict[str, Any] | None = None,
        sandbox: SandboxSummary = _NO_SANDBOX,
        stdout: CapturedOutput = _NO_CAPTURE,
        stderr: CapturedOutput = _NO_CAPTURE,
        values: Mapping[str, Any] | None = None,
        signals: Sequence[Signal] = (),
        confirmation: str = "",
    ) -> Self:
        """A result made of valid parts, which are not validated again.

        Only `artifacts` and `content` are validated, if there are any, because they may be dicts from a cell.
        """
        parts: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "output": output,
            "display": display,
            "text_member": text_member,
            "artifacts": _ARTIFACTS.validate_python(artifacts) if artifacts else [],
            "content": _CONTENT.validate_python(content) if content else [],
            "error": error,
            "notices": tuple(notices),
            "usage": usage,
            "call_id": call_id,
            "tool": tool,
            "version": version,
            "session_id": session_id,
            "arguments": arguments,
            "sandbox": sandbox,
            "stdout": stdout,
            "stderr": stderr,
            "values": dict(values) if values else {},
            "signals": tuple(signals),
            "confirmation": confirmation,
        }
        made: Self = constructor(cls)(parts)
        return made

    @classmethod
    def parse(cls, data: Mapping[str, Any] | str | bytes) -> Self:
        """The result of `data`, a dict as `model_dump` makes it, or the same as JSON text.

        Raises ValueError for a `schema_version` newer than this toolcell reads, and pydantic's ValidationError, which
        is a ValueError too, for data that is no result.
        """
        given: object = from_json(data) if isinstance(data, (str, bytes)) else data
        version = cast("Mapping[str, object]", given).get("schema_version") if isinstance(given, Mapping) else None
        if type(version) is not int:
            raise ValueError("This is not a stored ToolResult: it has no schema_version. Pass what model_dump gave.")
        if version > SCHEMA_VERSION:
            raise ValueError(
                f"The result has schema_version {version}, and this toolcell reads up to {SCHEMA_VERSION}. "
                "Read it with the version of toolcell that wrote it, or a later one."
            )
        return cls.model_validate(given)

    def for_model(self, max_bytes: int = FOR_MODEL_BYTES) -> str:
        """The text for the model: the output and the content blocks as lines, or `{"error": …}`. An output that is a
        text is that text; any other is JSON.

        Images, audio and resources without text are named in brackets; adapters send the media themselves. Beyond
        `max_bytes` of UTF-8 the middle is left out. A line in its place says how many bytes were kept, and names the
        artifact with the rest if the supervisor wrote one. Notices follow, a line each, and are never left out. A tool
        cannot write one: where its text says `[notice:`, the model reads `[quoted notice:`.
        """
        return "\n".join([_bounded(self.encoded(), max_bytes, self._whole_output()), *self.told_notices()])

    def told_notices(self) -> list[str]:
        """The notices as lines for the model."""
        return [f"[notice: {quoted(' '.join(notice.message.split()))}]" for notice in self.notices]

    def told_changes(self, most: int = 20) -> str:
        """The files that the call created, changed and deleted as a text for a model, a line each; "" without any."""
        changed = [one for one in self.artifacts if one.kind in ("created", "modified", "deleted")]
        lines = [
            f"{one.kind} {printable(shortened(one.path))}" + ("" if one.size is None else f" ({one.size:,} bytes)")
            for one in changed[:most]
        ]
        return "\n".join([*lines, *([f"and {len(changed) - most:,} more"] if len(changed) > most else [])])

    def encoded(self) -> bytes:
        """The text of `for_model` before the notices, uncut, as UTF-8."""
        return quoted(self.given_text().decode()).encode()

    def given_text(self) -> bytes:
        """The text of `encoded` as the tool gave it."""
        if self.error is not None:
            return _json(self.told_error())
        told = [_told(block).encode() for block in self.content]
        if self.output is None and told:
            return b"\n".join(told)
        return b"\n".join([*self._told_output(), *told])

    def _told_output(self) -> list[bytes]:
        output: object = self.output
        if isinstance(output, str):
            return [output.encode("utf-8", "backslashreplace")]
        if self.text_member and isinstance(output, dict):
            members = cast("dict[str, object]", output)
            text = members.get(self.text_member)
            if isinstance(text, str):
                others = {name: value for name, value in members.items() if name != self.text_member}
                return [_json(others), text.encode("utf-8", "backslashreplace")]
        return [_json(self.output)]

    def told_error(self) -> dict[str, Any]:
        """The error as data for the model, with the printed output if the call was cut short; {} without an error."""
        if self.error is None:
            return {}
        shown = self.error.model_dump(mode="json", exclude_none=True, exclude={"delivered", "effect"})
        told: dict[str, Any] = {"error": shown}
        if isinstance(self.error, CutShort):
            if self.error.outcome == "outcome unknown":
                shown["outcome"] = "unknown: the call may have done a part of its work, or all of it"
            streams = {"stdout": self.stdout, "stderr": self.stderr}
            told |= {name: printable(one.text, keep="\n\t") for name, one in streams.items() if one.text}
            told |= {f"{name}_omitted_bytes": one.omitted_bytes for name, one in streams.items() if one.omitted_bytes}
        text = _json(told).decode()
        return told if quoted(text) == text else from_json(quoted(text))

    def _whole_output(self) -> Artifact | None:
        return next((one for one in self.artifacts if one.kind in _WHERE and one.uri is not None), None)

    @overload
    def unwrap(self: "ToolResult[Enum]") -> Any: ...  # a StrEnum is a str too, and arrives as one
    @overload
    def unwrap(self: "ToolResult[J]") -> J: ...
    @overload
    def unwrap(self) -> Any: ...
    def unwrap(self) -> Any:
        """The output. Raises ToolFailed, which holds the error, if there is one.

        The output is JSON data, as it came out of the cell: a dataclass or a model is a dict. `decoded` makes it again:
        `result.decoded(Report)`.
        """
        if self.error is not None:
            raise ToolFailed(self.error)
        return self.output

    def decoded(self, kind: type[T]) -> T:
        """The output as a value of `kind`, such as the type in the tool's `output_schema` or `success`.

        Raises ToolFailed if there is an error, and pydantic's ValidationError, a ValueError, if it is no `kind`.
        """
        output = to_json(self.unwrap(), inf_nan_mode="constants")
        return TypeAdapter(kind).validate_json(output)  # as JSON: strict models take a date from a string


def quoted(text: str) -> str:
    """The text of a tool, with each `[notice:` marked as a quotation: a notice is the supervisor's own."""
    return _NOTICE.sub("[quoted ", text)


def _json(value: object) -> bytes:
    return to_json(value, inf_nan_mode="strings")


def _told(block: Content) -> str:
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, (ImageBlock, AudioBlock)):
        return f"[{block.type}, {block.mime_type}, {len(block.to_bytes()):,} bytes]"
    return f"[resource, {block.uri}]" if block.text is None else block.text


_WHERE = {
    "output": "in the workspace; read on there",
    "stored": "with the program that runs this session; ask for less",
}
"""The kinds of artifact that hold a full output, and where each is, in words for the model."""


def _bounded(encoded: bytes, max_bytes: int, whole: Artifact | None) -> str:
    total = len(encoded)
    if total <= max_bytes:
        return encoded.decode()
    # If a cut falls inside a character, that character is dropped. The counts are of the bytes that are really kept.
    head = encoded[: max_bytes - max_bytes // 2].decode(errors="ignore")
    tail = encoded[total - max_bytes // 2 :].decode(errors="ignore") if max_bytes > 1 else ""
    first, last = len(head.encode()), len(tail.encode())
    note = f"kept {first + last:,} of {total:,} bytes: the first {first:,} and the last {last:,}"
    if whole is not None:
        note += f"; the rest is artifact {whole.path!r}, {_WHERE[whole.kind]}"
    return f"{head}\n[… {note} …]\n{tail}"


_ARTIFACTS: TypeAdapter[list[Artifact]] = TypeAdapter(Annotated[list[Artifact], FailFast()])
_CONTENT: TypeAdapter[list[Content]] = TypeAdapter(Annotated[list[Content], FailFast()])
