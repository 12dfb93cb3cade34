"""The messages that send a call, and the spec of its cell, to a node."""

import os
from typing import Any, Final, cast

from toolcell.dispatch.serving import SessionRun
from toolcell.pool.run import Run, context_of
from toolcell.sessions.grants import code_roots
from toolcell.wire.frames import packed
from toolcell_sandbox.profile import CellProfile

from .link import pack
from .messages import SendCall, SendSpec

__all__ = ["call_message", "spec_message"]

PLAIN: Final = frozenset({"changes", "preview", "invocation_id"})
"""The parts of a call's context that can always be encoded."""


def call_message(number: int, spec: int, run: Run, now: float) -> SendCall:
    """The message for a call, under these numbers. `now` is in seconds of time.monotonic(). Raises `UNPACKABLE` if the
    program chose a value that msgpack cannot carry: here, the error ends one call; later, it would end a batch."""
    arguments = run.packed if run.packed is not None else packed(run.sent.arguments)
    if arguments is None:
        arguments = pack(dict(run.sent.arguments))
    context = _context_of(run)
    if not PLAIN.issuperset(context):
        pack(context)
    return SendCall(
        number,
        spec,
        run.call_id,
        run.sent.tool,
        arguments,
        run.sent.attempt,
        max(0.0, run.deadline_at - now),
        bool(run.exclusive),
        context,
    )


def spec_message(number: int, run: Run, *, has_placed: bool, copy: str, sent_root: str) -> SendSpec:
    """The message for the spec of a call. `has_placed`: nodes serve some handles themselves. Raises `UNPACKABLE`."""
    spec, key = run.spec, run.spec.key
    placing = run if has_placed and isinstance(run, SessionRun) else None
    message = SendSpec(
        number=number,
        session_id=key.session_id,
        digest=key.code,
        profile=cast("dict[str, Any]", _with_environment(spec.profile).to_wire()),
        roots=list(code_roots()),
        grants=sorted(key.grants),
        kept_tool=key.kept_tool,
        cwd=spec.cwd,
        session=dict(spec.session),
        workspace=str(spec.session.get("workspace_root", spec.cwd)),
        placed=[] if placing is None else list(placing.placed),
        pages=[] if placing is None else list(placing.pages),
        copy=copy,
        sent_root=sent_root,
    )
    pack(message)  # the program chose the context of the session
    return message


def _with_environment(profile: CellProfile) -> CellProfile:
    """The profile with the values of this process for the variables in `pass_env`. A node's environment differs."""
    passed = {name: os.environ[name] for name in profile.pass_env if name in os.environ}
    return profile.replace(pass_env=(), env={**passed, **profile.env}) if profile.pass_env else profile


def _context_of(run: Run) -> dict[str, Any]:
    """The `context` of a `SendCall`. It lacks the remaining time and the attempt, which are fields of the message."""
    context: dict[str, Any] = context_of(run, 0.0)
    for name in ("remaining_s", "attempt"):
        context.pop(name, None)
    if isinstance(run, SessionRun) and run.changes is not None:
        context["changes"] = [run.changes.most, run.changes.texts]
    return context
