"""ToolResult: everything a call came to, for the model, for people and for the books."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import to_json

from .artifact import Artifact
from .content import Content
from .errors import ToolError, ToolFailed

__all__ = ["CapturedOutput", "SandboxSummary", "ToolResult", "Usage"]

FOR_MODEL_BYTES = 100_000  # about 25,000 tokens, the most that coding agents let one tool answer take


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Usage(_Frozen):
    """What the call cost, by the supervisor's own count: what a tool says of itself is not in it."""

    wall_s: float = 0.0
    """Seconds from its start to its end."""
    queue_s: float = 0.0
    """Seconds that it waited for a process."""
    cpu_s: float = 0.0
    """Seconds of processor, of the call with all it started."""
    max_rss_bytes: int = 0
    """Resident memory of the call's own process at its peak."""
    memory_bytes: int = 0
    """Memory of the call with all it started, at its peak: what its cgroup was charged, page cache and scratch files
    included. Without a cgroup, the most that the watch saw of what processes hold. 0 where nothing was counted."""
    processes: int = 0
    """Most processes and threads at once that the watch saw; 0 for a call that was over before it looked."""
    attempts: int = 1
    sent_bytes: int = 0
    received_bytes: int = 0


class CapturedOutput(_Frozen):
    """What a call wrote to one of its streams: the `text` kept, how much there was and how much is left out."""

    text: str = ""
    total_bytes: int = 0
    omitted_bytes: int = 0


class SandboxSummary(_Frozen):
    """Which mechanisms were on for the call, which were allowed to be missing, and how far its network went."""

    on: tuple[str, ...] = ()
    allowed_missing: tuple[str, ...] = ()
    network: Literal["none", "proxy", "host"] = "none"


_NO_USAGE, _NO_CAPTURE, _NO_SANDBOX = Usage(), CapturedOutput(), SandboxSummary()


class ToolResult(_Frozen):
    """The outcome of a call. A tool may return one itself, with `output`, `display`, `artifacts` and `content` only.

    `output` is JSON for the model, `display` a sentence for people. Errors are data: `error` is set, nothing is raised.
    """

    output: Any = None
    display: str = ""
    artifacts: list[Artifact] = Field(default_factory=list[Artifact])
    content: list[Content] = Field(default_factory=list[Content])
    error: ToolError | None = None
    usage: Usage = _NO_USAGE
    call_id: str = ""
    tool: str = ""
    version: str = ""
    session_id: str = ""
    sandbox: SandboxSummary = _NO_SANDBOX
    stdout: CapturedOutput = _NO_CAPTURE
    stderr: CapturedOutput = _NO_CAPTURE
    values: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def is_error(self) -> bool:
        return self.error is not None

    @classmethod
    def build(
        cls,
        *,
        output: object = None,
        display: str = "",
        artifacts: Sequence[object] = (),
        content: Sequence[object] = (),
        error: ToolError | None = None,
        usage: Usage = _NO_USAGE,
        call_id: str = "",
        tool: str = "",
        version: str = "",
        session_id: str = "",
        sandbox: SandboxSummary = _NO_SANDBOX,
        stdout: CapturedOutput = _NO_CAPTURE,
        stderr: CapturedOutput = _NO_CAPTURE,
        values: Mapping[str, Any] | None = None,
    ) -> Self:
        """A result from parts that are known to be right, without validating them again.

        Only `artifacts` and `content`, which may be dicts fresh from a cell, are validated, if there are any.
        """
        return cls.model_construct(
            _ALL_FIELDS,
            output=output,
            display=display,
            artifacts=_ARTIFACTS.validate_python(artifacts) if artifacts else [],
            content=_CONTENT.validate_python(content) if content else [],
            error=error,
            usage=usage,
            call_id=call_id,
            tool=tool,
            version=version,
            session_id=session_id,
            sandbox=sandbox,
            stdout=stdout,
            stderr=stderr,
            values=dict(values) if values else {},
        )

    def for_model(self, max_bytes: int = FOR_MODEL_BYTES) -> str:
        """The text that goes back to the model: the output as JSON, or `{"error": …}`.

        Over `max_bytes` of UTF-8 the middle is left out, and a line in its place says exactly how much was kept.
        """
        answer: object = self.output
        if self.error is not None:
            answer = {"error": self.error.model_dump(mode="json", exclude_none=True)}
        # JSON has no NaN: as a string it stays visible to the model, as null it would read as "no value".
        return _bounded(to_json(answer, inf_nan_mode="strings"), max_bytes)

    def unwrap(self) -> Any:
        """The output; raises ToolFailed, with the error in it, if there is one."""
        if self.error is not None:
            raise ToolFailed(self.error)
        return self.output


def _bounded(encoded: bytes, max_bytes: int) -> str:
    total = len(encoded)
    if total <= max_bytes:
        return encoded.decode()
    # A cut inside a character drops the rest of that character: what is counted is what is there.
    head = encoded[: max_bytes - max_bytes // 2].decode(errors="ignore")
    tail = encoded[total - max_bytes // 2 :].decode(errors="ignore") if max_bytes > 1 else ""
    first, last = len(head.encode()), len(tail.encode())
    note = f"kept {first + last:,} of {total:,} bytes: the first {first:,} and the last {last:,}"
    return f"{head}\n[… {note} …]\n{tail}"


_ALL_FIELDS = set(ToolResult.model_fields)
_ARTIFACTS: TypeAdapter[list[Artifact]] = TypeAdapter(list[Artifact])
_CONTENT: TypeAdapter[list[Content]] = TypeAdapter(list[Content])
