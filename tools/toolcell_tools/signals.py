"""What a tool tells the loop that called it: signals beside its result, and a Pending in place of one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast, get_args

from .failures import ToolDefinitionError, Unencodable

__all__ = ["MAX_SIGNALS", "SIGNAL_KINDS", "Pending", "Signal", "SignalKind"]

SignalKind = Literal["end_turn", "leave_loop", "transfer", "skip_summarization"]
SIGNAL_KINDS: Final[frozenset[str]] = frozenset(get_args(SignalKind))
MAX_SIGNALS: Final = 8
"""The most signals of one result."""
TEXT_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal. The loop decides what to do about it; the supervisor only passes on what the tool has declared.

    "end_turn" ends the agent's turn. "leave_loop" ends the loop in which the agent runs, or hands over to its parent.
    "transfer" hands the conversation over to the agent `to`. "skip_summarization" asks the loop to show the result as
    it is, without another answer of the model. `reason` is for people.
    """

    kind: SignalKind
    to: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.kind) is not str or self.kind not in SIGNAL_KINDS:
            raise ValueError(f"There is no signal {self.kind!r}. There are: {', '.join(sorted(SIGNAL_KINDS))}.")
        for name in ("to", "reason"):
            text: object = getattr(self, name)
            if type(text) is not str or len(text) > TEXT_CHARS:
                raise ValueError(f"{name} of a signal is not a text of at most {TEXT_CHARS:,} characters.")
        if (self.kind == "transfer") != bool(self.to):
            raise ValueError("A signal of kind 'transfer' names an agent in `to`, and no other signal does.")

    def to_dict(self) -> dict[str, str]:
        """The signal as JSON data, without empty parts."""
        return {name: text for name, text in asdict(self).items() if text}

    @classmethod
    def from_dict(cls, data: object) -> "Signal":
        """The signal of what `to_dict` gave. Raises ValueError for anything else."""
        if type(data) is not dict or not data.keys() <= {"kind", "to", "reason"} or "kind" not in data:  # pyright: ignore[reportUnknownMemberType]
            raise ValueError("This is not a signal: it is no map of kind, to and reason.")
        return cls(**cast("dict[str, Any]", data))


def declared_signals(tool: str, given: Iterable[str] | None) -> frozenset[SignalKind]:
    """The signals that a tool's option names. Raises ToolDefinitionError for an unknown one."""
    if isinstance(given, str):
        raise ToolDefinitionError(f"tool {tool!r}: signals={given!r}. Pass a set: signals={{{given!r}}}.")
    found = frozenset(given or ())
    unknown = min(map(repr, found - SIGNAL_KINDS), default="")
    if unknown:
        known = ", ".join(sorted(SIGNAL_KINDS))
        raise ToolDefinitionError(f"tool {tool!r}: signals: there is no signal {unknown}. There are: {known}.")
    return cast("frozenset[SignalKind]", found)


def checked_signals(tool: str, declared: frozenset[SignalKind], signals: Sequence[Signal]) -> list[dict[str, str]]:
    """The signals as JSON data. Raises Unencodable if there are too many, or one that the tool does not declare."""
    if len(signals) > MAX_SIGNALS:
        raise Unencodable(f"$: {len(signals)} signals; a result has at most {MAX_SIGNALS}")
    for each in signals:
        if each.kind not in declared:
            raise Unencodable(undeclared(tool, each.kind))
    return [each.to_dict() for each in signals]


def read_signals(declared: frozenset[SignalKind], data: object) -> tuple[Signal, ...]:
    """The signals that a cell has sent. Raises ValueError for data that no honest cell sends."""
    if type(data) is not list or len(cast("list[object]", data)) > MAX_SIGNALS:
        raise ValueError(f"signals is a list of at most {MAX_SIGNALS}")
    found = tuple(map(Signal.from_dict, cast("list[Mapping[str, Any]]", data)))
    for each in found:
        if each.kind not in declared:
            raise ValueError(f"the signal {each.kind!r} is not in the tool's declaration")
    return found


def undeclared(tool: str, kind: str) -> str:
    """The message about a signal that the tool does not declare."""
    return f"the tool {tool!r} gives the signal {kind!r} without declaring it; declare signals={{{kind!r}}}"


@dataclass(frozen=True, slots=True)
class Pending:
    """An id of the running work, its status, and a message that tells the model which tool to ask for the result.

    The work runs where the end of a call does not stop it: at a service, in the program of a `host_tool`, in the
    process of a tool with `lifetime="session"`. `ToolResult.pending` reads a Pending back.
    """

    handle_id: str
    status: str = "pending"
    message: str = ""
