"""A zygote whose cells note when they do what: `python -I stamped_zygote.py FD`, in place of `-m toolcell.runner FD`.

The notes are kept in memory, which forks hand on to the cell and to its call process; the tool `stamps` of
`test_budget.py` gives them back. Times are of the monotonic clock, which all processes share.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from toolcell.runner import cheap_forks

cheap_forks.keep_back()  # as `python -m toolcell.runner` does

from toolcell.runner import (  # noqa: E402
    call_process,
    init,
    loading,
    perform,
    warm,
)
from toolcell.runner.link import Link  # noqa: E402
from toolcell.runner.zygote import Zygote, main  # noqa: E402
from toolcell.wire.protocol import CellLink  # noqa: E402
from toolcell_sandbox.prespawn import Prespawned  # noqa: E402

STAMPS: list[tuple[str, float]] = []


def note(name: str) -> None:
    """Note that this has just happened."""
    STAMPS.append((name, time.perf_counter()))


def wrap(owner: Any, name: str, *, before: str = "", after: str = "") -> None:
    """Note when a function is called, and when it has returned."""
    function: Callable[..., Any] = getattr(owner, name)

    def noted(*args: Any, **options: Any) -> Any:
        if before:
            note(before)
        result = function(*args, **options)
        if after:
            note(after)
        return result

    setattr(owner, name, noted)


def prepare() -> None:
    """Put the notes in, before anything is forked."""
    wrap(Zygote, "on_cell", before="request")
    wrap(Zygote, "prespawn", before="to begin")
    wrap(Prespawned, "take", before="planned")
    spawn = import_module("toolcell_sandbox.spawn")  # the package has a function of this name too
    spawn.__dict__["enter"] = partial(spawn.__dict__["enter"], note=note)
    wrap(spawn, "enter", before="forked")
    wrap(init, "main", before="entered")
    wrap(loading, "load", before="told what to load", after="loaded")
    wrap(init.Init, "run", before="collected and frozen")
    wrap(call_process, "serve", before="call process forked")
    wrap(warm, "warm_up", before="confined", after="warmed up")
    wrap(call_process, "bind", before="told whose", after="closed")
    wrap(Link, "take", before="read")
    wrap(perform, "run", before="decoded", after="ran")
    wrap(CellLink, "send", after="encoded")
    wrap(Link, "send", after="written")


if __name__ == "__main__":
    prepare()
    main(int(sys.argv[1]))
