"""The messages to a cell: how it works, its session, and the context of each call."""

import os
from collections.abc import Sequence
from typing import NamedTuple, cast

from toolcell.pool.run import CellSpec, Run
from toolcell.wire.frames import Field
from toolcell.wire.messages import BindSession, Load
from toolcell_sandbox.view import Bind


def load_of(spec: CellSpec, *, kept: bool, standby: bool) -> Load:
    """The tools, and how the cell works. A prewarmed cell gets its session later: `introduction_to`."""
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
    """The session of a prewarmed cell, and the session's paths in it."""
    return BindSession([cast("Field", bind.to_wire()) for bind in paths], *_of_session(spec))


class _OfSession(NamedTuple):
    """The fields about the session that both messages share."""

    cwd: str
    writable: list[Field]
    protected: list[Field]
    session: dict[str, Field]


def _of_session(spec: CellSpec) -> _OfSession:
    writable = spec.profile.writable
    return _OfSession(spec.cwd, list(writable), list(spec.profile.protected) if writable else [], dict(spec.session))


def context_of(run: Run, now: float) -> dict[str, Field]:
    """The context of a call: the facts that the cell does not know yet."""
    context: dict[str, Field] = {"remaining_s": run.deadline_at - now}
    call, session = run.sent, run.sent.session
    if session is not None:
        if session.config:
            context["config"] = dict(session.config)
        if session.values:
            context["values"] = session.values
        if session.invocation_id:
            context["invocation_id"] = session.invocation_id
    if call.attempt > 1:
        context["attempt"] = call.attempt
    if run.preview:
        context["preview"] = True
    if run.confirm is not None:
        context["confirm"] = run.confirm
    if run.trace is not None:
        context["trace"] = run.trace
    return context
