"""What a cell is told: how it works, whose it is, and what comes with a call beside its arguments."""

import os
from collections.abc import Sequence
from typing import NamedTuple, cast

from toolcell.pool.run import CellSpec, Run
from toolcell.wire.frames import Field
from toolcell.wire.messages import BindSession, Load
from toolcell_sandbox.view import Bind


def load_of(spec: CellSpec, *, kept: bool, standby: bool) -> Load:
    """The tools, and how the cell works. Of a prewarmed cell, whose it is comes later: `introduction_to`."""
    limits, of_session = spec.profile.limits, _of_session(spec)
    return Load(
        tools=[cast("Field", dict(tool)) for tool in spec.tools],
        environ=dict(spec.profile.environment(os.environ)),
        scratch="/tmp",
        kept=kept,
        standby=standby,
        unbound=spec.unbound,
        cpu_s=limits.cpu_s,
        result_bytes=limits.result_bytes,
        file_bytes=limits.file_bytes,
        **of_session._asdict(),
    )


def introduction_to(spec: CellSpec, paths: Sequence[Bind]) -> BindSession:
    """Whose a prewarmed cell is, and which paths it has got with that."""
    return BindSession([cast("Field", bind.to_wire()) for bind in paths], *_of_session(spec))


class _OfSession(NamedTuple):
    """The last fields of both."""

    cwd: str
    writable: list[Field]
    protected: list[Field]
    session: dict[str, Field]


def _of_session(spec: CellSpec) -> _OfSession:
    writable = spec.profile.writable
    return _OfSession(spec.cwd, list(writable), list(spec.profile.protected) if writable else [], dict(spec.session))


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
