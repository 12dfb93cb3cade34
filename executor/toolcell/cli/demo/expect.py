"""The right outcome of a step, as text and as a check."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import psutil

from toolcell.profile import Profile
from toolcell.sessions.policy import code_roots
from toolcell_sandbox.explain import amount
from toolcell_sandbox.profile import is_below
from toolcell_tools.capability import Capability
from toolcell_tools.errors import (
    Crashed,
    ErrorBase,
    ExecutionError,
    LimitedResource,
    LimitExceeded,
    PermissionDenied,
    ProtocolViolation,
    Timeout,
    ToolError,
    UnknownTool,
    ValidationError,
)
from toolcell_tools.result import ToolResult

from .stage import DemoStage

SLACK_S = 0.5  # for a deadline on a busy machine


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that must hold after a step. `words` complete the sentence "Expected: …"."""

    words: str
    holds: Callable[[ToolResult, DemoStage], bool]


def happened(result: ToolResult) -> str:
    """The outcome in one line: the tool's display, or the error with its facts."""
    if result.error is not None:
        return _of_error(result.error)
    if result.tool == "shell":
        said = (result.output["stdout"] + result.output["stderr"]).strip().rpartition("\n")[2]
        return f"{said} (exit code {result.output['exit_code']})"
    number: object = getattr(errno, result.output, None) if isinstance(result.output, str) else None
    if isinstance(number, int):
        return f"{result.output}: {os.strerror(number)}"
    return next((line for line in result.display.splitlines() if line.strip()), "nothing")


def _of_error(error: ToolError) -> str:
    kind = type(error).__name__
    match error:
        case Crashed(signal=int(number)):
            return f"{kind}: signal {number}, {signal.Signals(number).name}"
        case Crashed(exit_code=int(code)):
            return f"{kind}: exit code {code}"
        case LimitExceeded(resource=resource, limit=int() | float() as limit):
            return f"{kind}: {resource}, over {amount(_FIELDS.get(resource, resource), limit)}"
        case PermissionDenied(missing=missing) if missing:
            return f"{kind}: no {' and no '.join(sorted(missing))}"
        case Timeout(elapsed=elapsed):
            return f"{kind}: after {elapsed:.2f} s"
        case UnknownTool(suggestions=suggestions):
            return f"{kind}: did you mean {' or '.join(suggestions)}?"
        case _:
            return f"{kind}: {error.message}"


_FIELDS: Mapping[LimitedResource, str] = MappingProxyType(
    {
        "memory": "memory_bytes",
        "cpu": "cpu_s",
        "file_size": "file_bytes",
        "scratch": "scratch_bytes",
        "output": "output_bytes",
        "result": "result_bytes",
    }
)
"""The limits with a unit. Processes and files are counts."""


# -- results ----------------------------------------------------------------------------------------------------------


def works() -> Expectation:
    """A result and no error."""
    return Expectation("a result", lambda result, _stage: not result.is_error)


def gives(value: object, *others: object) -> Expectation:
    """An output that is one of these values."""
    wanted = (value, *others)
    words = " or ".join(str(one) for one in wanted)
    return Expectation(words, lambda result, _stage: not result.is_error and result.output in wanted)


def has(**facts: object) -> Expectation:
    """An output object with these values, among others."""

    def holds(result: ToolResult, _stage: DemoStage) -> bool:
        output: Any = result.output
        return not result.is_error and all(output.get(name) == value for name, value in facts.items())

    return Expectation(", ".join(f"{name} {value}" for name, value in facts.items()), holds)


def mentions(text: str) -> Expectation:
    """A result whose text for the model contains this."""
    return Expectation(
        f"something about {text!r}", lambda result, _: not result.is_error and text in result.for_model()
    )


# -- errors -----------------------------------------------------------------------------------------------------------


def fails(kind: type[ErrorBase], **facts: object) -> Expectation:
    """An error of this kind with these facts."""

    def holds(result: ToolResult, _stage: DemoStage) -> bool:
        error = result.error
        return type(error) is kind and all(getattr(error, name) == value for name, value in facts.items())

    words = ", ".join([kind.__name__, *(f"{name} {value}" for name, value in facts.items())])
    return Expectation(words, holds)


def crashed(*, signal: int | None = None, exit_code: int | None = None) -> Expectation:
    return fails(Crashed, signal=signal, exit_code=exit_code)


def exceeded(resource: str, limit: float) -> Expectation:
    return fails(LimitExceeded, resource=resource, limit=limit)


def denied(*missing: Capability) -> Expectation:
    return fails(PermissionDenied, missing=tuple(sorted(missing)))


def broke_the_protocol() -> Expectation:
    return fails(ProtocolViolation)


def invalid(field: str) -> Expectation:
    return fails(ValidationError, field=field)


def unknown(suggestion: str) -> Expectation:
    """An UnknownTool whose first suggestion is this."""

    def holds(result: ToolResult, _stage: DemoStage) -> bool:
        return isinstance(result.error, UnknownTool) and result.error.suggestions[:1] == (suggestion,)

    return Expectation(f"UnknownTool that suggests {suggestion}", holds)


def timed_out(seconds: float) -> Expectation:
    """A Timeout at the deadline."""

    def holds(result: ToolResult, _stage: DemoStage) -> bool:
        late = result.usage.wall_s + result.usage.queue_s - seconds
        return isinstance(result.error, Timeout) and -0.01 < late < SLACK_S

    return Expectation(f"Timeout after {seconds:g} s", holds)


def tells_the_model(text: str) -> Expectation:
    """An ExecutionError that says this, and shows no traceback."""

    def holds(result: ToolResult, _stage: DemoStage) -> bool:
        shown = result.for_model()
        return isinstance(result.error, ExecutionError) and text in shown and "Traceback" not in shown

    return Expectation(f"ExecutionError with {text!r} and without a traceback", holds)


# -- the world --------------------------------------------------------------------------------------------------------


def said(text: str) -> Expectation:
    """The last message of the channel is this."""
    return Expectation(f"the channel got {text!r}", lambda _result, stage: stage.inbox.messages[-1:] == [text])


def unsaid(text: str) -> Expectation:
    return Expectation(f"the channel did not get {text!r}", lambda _result, stage: text not in stage.inbox.messages)


def holds_text(path: str, text: str) -> Expectation:
    """A file of the project contains this."""
    return Expectation(f"{path} contains {text.strip()!r}", lambda _, stage: text in (stage.project / path).read_text())


def unchanged(path: str, text: str) -> Expectation:
    """A file of the project has exactly this content."""
    return Expectation(f"{path} is unchanged", lambda _, stage: (stage.project / path).read_text() == text)


def no_connection() -> Expectation:
    return Expectation("nobody connected", lambda _result, stage: stage.listener.connections() == 0)


def not_on_the_host(path: Path) -> Expectation:
    return Expectation(f"the host has no {path}", lambda _result, _stage: not path.exists())


def gone(name: str, within_s: float = 1.0) -> Expectation:
    """No process of this name is left. The sweep may end shortly after the result."""

    def holds(_result: ToolResult, _stage: DemoStage) -> bool:
        until = time.monotonic() + within_s
        while any(process.info["name"] == name for process in psutil.process_iter(["name"])):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    return Expectation(f"no process {name} is left", holds)


def on_record(kind: str, **facts: object) -> Expectation:
    """The journal has a record of this call, of this kind and with these facts."""

    def holds(result: ToolResult, stage: DemoStage) -> bool:
        records = stage.journal.of(kind=kind, session_id=result.session_id, call_id=result.call_id)
        return any(all(record.data.get(name) == value for name, value in facts.items()) for record in records)

    return Expectation(f"a record {kind!r} in the journal", holds)


def sees_only_what_is_bound(paths: Iterable[str]) -> Expectation:
    """Each path is absent, is refused (if the cell has no root of its own), or only leads to a path that the profile
    binds, such as an interpreter below a home.
    """
    wanted = tuple(paths)

    def holds(result: ToolResult, stage: DemoStage) -> bool:
        profile = Profile.for_kind("main")
        bound = (*profile.system, *profile.readable, *profile.writable, *code_roots(), str(stage.project))
        output: Any = result.output
        return not result.is_error and all(_fits(path, output[path], bound) for path in wanted)

    return Expectation("absent or refused, except on the way to a bound path", holds)


def _fits(path: str, seen: object, bound: tuple[str, ...]) -> bool:
    if seen in ("ENOENT", "EACCES"):
        return True
    if not isinstance(seen, list):
        return False
    entries = [f"{path}/{name}" for name in cast("list[str]", seen)]
    return all(any(is_below(root, (entry,)) or is_below(entry, (root,)) for root in bound) for entry in entries)
