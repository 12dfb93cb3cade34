"""What a cell is told: how it works, whose it is, and what comes with a call beside its arguments."""

import os
from collections.abc import Sequence
from typing import cast

from toolcell.pool.run import CellSpec, Run
from toolcell.wire.frames import Field
from toolcell.wire.messages import Finish, Load
from toolcell_sandbox.view import Bind


def load_of(spec: CellSpec, *, kept: bool, standby: bool) -> Load:
    """The tools, and how the cell works. Of a prewarmed cell, whose it is comes later: `introduction_to`."""
    profile = spec.profile
    options = {
        "environ": dict(profile.environment(os.environ)),
        "scratch": "/tmp",
        "kept": kept,
        "standby": standby,
        "unfinished": spec.unfinished,
        "cpu_s": profile.limits.cpu_s,
        "result_bytes": profile.limits.result_bytes,
        "file_bytes": profile.limits.file_bytes,
        **_of_session(spec),
    }
    tools = [dict(tool) for tool in spec.tools]
    return Load(cast("list[Field]", tools), cast("dict[str, Field]", options))


def introduction_to(spec: CellSpec, paths: Sequence[Bind]) -> Finish:
    """Whose a prewarmed cell is, and which paths it has got with that."""
    binds: list[Field] = [[os.fsencode(bind.path), bind.writable, bind.directory] for bind in paths]
    return Finish(binds, _of_session(spec))


def _of_session(spec: CellSpec) -> dict[str, Field]:
    writable = spec.profile.writable
    return {
        "cwd": spec.cwd,
        "writable": list(writable),
        "protected": list(spec.profile.protected) if writable else [],
        "session": dict(spec.session),
    }


def context_of(run: Run, now: float) -> dict[str, Field]:
    """What a call is told that its cell has not been told before."""
    context: dict[str, Field] = {"remaining_s": run.deadline_at - now}
    call, session = run.call, run.call.session
    if session is not None:
        if session.config:
            context["config"] = dict(session.config)
        if session.values:
            context["values"] = session.values
    if call.attempt > 1:
        context["attempt"] = call.attempt
    if run.preview:
        context["preview"] = True
    return context
