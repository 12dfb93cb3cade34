"""The tricks for speed, and which are on: all except those that the environment variable TOOLCELL_PLAIN names. Each has
a switch, a test and a measured gain: docs/performance.md, "Tricks".

`TOOLCELL_PLAIN=1` turns all of them off, `TOOLCELL_PLAIN=warm_up,prewarm` these two. The variable is read once, when
this module is imported. A supervisor passes it on to its zygotes. A trick changes the cost of a call, not its effect.
"""

import gc
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Final

VARIABLE: Final = "TOOLCELL_PLAIN"

TRICKS: Final[Mapping[str, str]] = {
    "prewarm": "keep a cell in reserve for the next session",
    "prespawn": "begin the next cell before it is asked for",
    "fork_ahead": "fork the process for a cell's next call while a call lasts",
    "requests": "go through a request in the zygote after it has prespawned a cell",
    "warm_up": "run a made-up call in a standby, so that its pages are its own",
    "code_pages": "have forks inherit the page tables of the interpreter's code",
    "fork_handlers": "run handlers of os.register_at_fork only in processes that need them",
    "hand_packed": "pack and read the frames of each call's begin and end by hand",
    "flat_answer": "read an answer of short texts and numbers in one step",
    "whole_frame": "read a call that is the only frame without the decoder",
    "flat_arguments": "check and pack arguments of a flat schema in one step",
    "at_once": "resume the caller in the event that ends its call",
    "wide_pipes": "let a pipe hold more once a frame did not fit",
    "stay_awake": "poll instead of sleeping while a kept process is about to answer",
    "imports": "collect no garbage while the runtime is imported",
}
"""Each trick's name and what it does."""


def off_by(value: str) -> frozenset[str]:
    """The tricks that a value of TOOLCELL_PLAIN turns off. Raises ValueError for an unknown name."""
    names = frozenset(filter(None, value.replace(" ", "").split(",")))
    if names <= {"0"}:
        return frozenset()
    if names == frozenset({"1"}):
        return frozenset(TRICKS)
    unknown = sorted(names - TRICKS.keys())
    if unknown:
        raise ValueError(f"{VARIABLE} names no trick: {unknown[0]!r}. Pass 1, or some of {', '.join(TRICKS)}.")
    return names


OFF: Final = off_by(os.environ.get(VARIABLE, ""))


def is_on(trick: str) -> bool:
    """Whether this trick is on."""
    assert trick in TRICKS
    return trick not in OFF


class Uncollected:
    """Turns the garbage collector off, and on again at the end, if it was on.

    Modules, classes and functions stay, so a collection finds nothing among them. It would look at all of them several
    times. The collector is off for the whole process, for the tenth of a second that the import takes.
    """

    def __enter__(self) -> None:
        self._was_on = gc.isenabled() and is_on("imports")
        if self._was_on:
            gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_on:
            gc.enable()
