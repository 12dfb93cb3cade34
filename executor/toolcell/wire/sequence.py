"""The permitted order of messages: one table for all the channels between our processes.

A channel has two ways (directions). Each way has rows: a stage, the messages that may come at it, and the stage after
each. The two ways of a call process's pipes share a stage; every other way has its own. A message without a row is out
of place.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from .messages import (
    BindPaths,
    BindSession,
    Call,
    Cancel,
    CellFailed,
    CellMade,
    CellsRefused,
    Error,
    Exited,
    Failed,
    Heeds,
    Hello,
    Load,
    Log,
    MakeCell,
    Message,
    Output,
    PathsBound,
    Prepare,
    Progress,
    Ready,
    Recycle,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
    Started,
)


class Way(Enum):
    """Sender, receiver and channel."""

    TO_CALL = "supervisor to call process, by pipe"
    FROM_CALL = "call process to supervisor, by pipe"
    TO_INIT = "supervisor to init, by control socket"
    FROM_INIT = "init to supervisor, by control socket"
    TO_ZYGOTE = "supervisor to zygote, by its socket"
    FROM_ZYGOTE = "zygote to supervisor, by its socket"

    __hash__ = object.__hash__  # Enum's own is a Python function, and every message needs a look-up by way


class Stage(Enum):
    """The progress of a channel, or of a way."""

    IDLE = "idle"  # no call yet
    CALLED = "called"  # a call is running
    DONE = "done"  # its terminal frame has passed
    SILENT = "silent"  # no message yet
    OPEN = "open"  # the first message has passed
    OVER = "over"  # the last message has passed

    __hash__ = object.__hash__


IDLE, CALLED, DONE, SILENT, OPEN, OVER = Stage  # looked up once: before 3.12, each access calls a Python function
Rows = Mapping[Stage, Mapping[type[Message], Stage]]

FOLLOWS: Final[Mapping[Way, Rows]] = {
    Way.TO_CALL: {
        IDLE: {Call: CALLED},
        CALLED: {Reply: CALLED, Cancel: CALLED},
        # A kept process gets its next call. A reply or a cancellation may cross the answer.
        DONE: {Call: CALLED, Reply: DONE, Cancel: DONE},
    },
    Way.FROM_CALL: {
        IDLE: {},
        CALLED: {
            Progress: CALLED,
            Log: CALLED,
            Request: CALLED,
            Output: CALLED,
            Heeds: CALLED,
            SpanStart: CALLED,
            SpanEnd: CALLED,
            Result: DONE,
            Error: DONE,
        },
        DONE: {},
    },
    Way.TO_INIT: {
        SILENT: {Load: OPEN},
        OPEN: {Recycle: OPEN, BindSession: OPEN},
    },
    Way.FROM_INIT: {
        SILENT: {Hello: OPEN, Failed: OVER},
        OPEN: {Ready: OPEN, Exited: OPEN, Failed: OVER},
        OVER: {},
    },
    Way.TO_ZYGOTE: {
        SILENT: {Prepare: OPEN},
        OPEN: {MakeCell: OPEN, BindPaths: OPEN},
    },
    Way.FROM_ZYGOTE: {
        SILENT: {Started: OPEN, CellsRefused: OVER},
        OPEN: {CellMade: OPEN, PathsBound: OPEN, CellFailed: OPEN},
        OVER: {},
    },
}


def following(way: Way, stage: Stage, message: Message) -> Stage | None:
    """The stage after a message; None if the message is out of place."""
    return FOLLOWS[way][stage].get(type(message))
