"""What may follow what: one table for all the channels between our processes.

A channel has two ways, and each way its rows: at a stage, the messages that may come, and the stage after each. A
stage is of the channel where both ways share it (the pipes of a call process), and else of the way. What has no row is
out of place.
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
    Started,
)


class Way(Enum):
    """From whom to whom, and over what."""

    TO_CALL = "supervisor to call process, by pipe"
    FROM_CALL = "call process to supervisor, by pipe"
    TO_INIT = "supervisor to init, by control socket"
    FROM_INIT = "init to supervisor, by control socket"
    TO_ZYGOTE = "supervisor to zygote, by its socket"
    FROM_ZYGOTE = "zygote to supervisor, by its socket"


class Stage(Enum):
    """How far a channel, or a way, has come."""

    IDLE = "idle"  # no call yet
    CALLED = "called"  # a call is running
    DONE = "done"  # its terminal frame has passed
    SILENT = "silent"  # nothing has been said yet
    OPEN = "open"  # what comes first has been said
    OVER = "over"  # the last word has been said

    __hash__ = object.__hash__  # Enum's is a function of Python's, and every message is looked up by the stage


IDLE, CALLED, DONE, SILENT, OPEN, OVER = Stage  # looked up once: a member takes a function of Python's before 3.12
Rows = Mapping[Stage, Mapping[type[Message], Stage]]

FOLLOWS: Final[Mapping[Way, Rows]] = {
    Way.TO_CALL: {
        IDLE: {Call: CALLED},
        CALLED: {Reply: CALLED, Cancel: CALLED},
        DONE: {
            Call: CALLED,
            Reply: DONE,
            Cancel: DONE,
        },  # the next call of a kept process; what crossed with the answer
    },
    Way.FROM_CALL: {
        IDLE: {},
        CALLED: {
            Progress: CALLED,
            Log: CALLED,
            Request: CALLED,
            Output: CALLED,
            Heeds: CALLED,
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
    """The stage after a message; None for one that is out of place."""
    return FOLLOWS[way][stage].get(type(message))
