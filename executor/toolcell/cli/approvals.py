"""`toolcell approvals`: read and answer the requests of a state directory, even while its supervisor runs."""

import getpass
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, cast

import click

from toolcell.errors import UsageError
from toolcell.store.approvals import ApprovalEntry, ApprovalRequest, Approvals, StandingApproval
from toolcell.store.approvals.request import to_data
from toolcell.store.cures import cure_of
from toolcell.store.database import is_damage
from toolcell.store.directory import DATABASE
from toolcell.store.journal.narrative import time_of
from toolcell_tools.preview import SUMMARY_CHARS, Preview, argument_lines, fitted, printable, written

from .audit import directory_of

_DAMAGED = "Start the supervisor, which keeps what can be read, or restore a copy."
SHORT = 12
"""How many characters of an id a list shows. They are enough for the other commands."""


def show_list(state: str | None, *, everything: bool, as_json: bool) -> None:
    with _opened(state) as store:
        entries = store.all() if everything else store.pending()
        standing = store.standing()
    for entry in entries:
        click.echo(json.dumps(_data(entry)) if as_json else _line(entry))
    for each in standing:
        click.echo(json.dumps({"standing": asdict(each)}) if as_json else _standing_line(each))
    if not (entries or standing or as_json):
        click.echo("No request waits for an answer.")
    if entries and not as_json:
        click.echo("`toolcell approvals show REQUEST` prints all of a request. Read it before you approve.")


def show(state: str | None, id: str, *, as_json: bool) -> None:
    with _opened(state) as store:
        entry = store.get(id)
    if as_json:
        click.echo(json.dumps(_data(entry)))
        return
    for line in _story(entry):
        click.echo(line)


def approve(
    state: str | None,
    id: str,
    *,
    arguments: str | None,
    payload: str | None,
    for_session: bool,
    matching: tuple[str, ...],
    for_s: float,
) -> None:
    with _opened(state) as store:
        standing = store.approve(
            id,
            arguments=None if arguments is None else _arguments(arguments),
            payload=None if payload is None else _json("--payload", payload),
            for_session=for_session,
            pattern=_pattern(matching),
            for_s=for_s,
            by=_who(),
        )
    click.echo("Approved." if standing is None else f"Approved. Later calls too: {_standing_line(standing)}")


def deny(state: str | None, id: str, message: str) -> None:
    with _opened(state) as store:
        store.deny(id, message, by=_who())
    click.echo("Denied.")


def withdraw(state: str | None, id: str) -> None:
    with _opened(state) as store:
        store.withdraw(id)
    click.echo("Withdrawn.")


def revoke(state: str | None, id: str) -> None:
    with _opened(state) as store:
        store.revoke(id)
    click.echo("Revoked.")


def guarded(run: Callable[[], None]) -> int:
    """Run one of the commands. Return the exit status: 2 for wrong use."""
    try:
        run()
    except sqlite3.Error as error:
        cure = _DAMAGED if is_damage(error) else cure_of(error)
        click.echo(printable(f"{DATABASE} cannot be used: {error}. {cure}"), err=True)
        return 2
    except (UsageError, OSError) as error:
        click.echo(printable(str(error)), err=True)
        return 2
    return 0


@contextmanager
def _opened(state: str | None) -> Generator[Approvals]:
    directory = directory_of(state)
    if not directory.path.is_dir():
        raise UsageError(
            f"There is no state directory {str(directory.path)!r}. Pass the directory of Supervisor(state=…)."
        )
    with Approvals.open(directory.path) as store:
        yield store


def _who() -> str:
    try:
        return f"{getpass.getuser()} (toolcell approvals)"
    except (OSError, KeyError):  # a user without a name
        return "toolcell approvals"


def _json(option: str, text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{option} is not JSON: {error}.") from None
    return found


def _arguments(text: str) -> Mapping[str, Any]:
    found = _json("--arguments", text)
    if not isinstance(found, dict):
        raise UsageError("--arguments is not a JSON object. Write, for example, '{\"amount\": 5}'.")
    return cast("dict[str, Any]", found)


def _pattern(matching: tuple[str, ...]) -> Mapping[str, str] | None:
    if not matching:
        return None
    pairs = [each.partition("=") for each in matching]
    if wrong := [name for name, equals, _glob in pairs if not equals or not name]:
        raise UsageError(f"--matching {wrong[0]!r} is not NAME=GLOB, for example 'path=src/*'.")
    return {name: glob for name, _equals, glob in pairs}


def _left(expires_at: float) -> str:
    seconds = expires_at - time.time()
    if seconds <= 0:
        return "expired"
    if seconds < 60:
        return f"{seconds:.0f} s left"
    return f"{seconds / 3600:.1f} h left" if seconds >= 3600 else f"{seconds / 60:.0f} min left"


def _line(entry: ApprovalEntry) -> str:
    request = entry.request
    if request is None:
        return f"{printable(entry.id[:SHORT])}  invalid    The row does not fit its signature."
    if entry.state == "used":
        state = f"used, {'approved' if entry.approved else 'denied':<17}"
    else:
        left = _left(request.expires_at) if entry.state in ("pending", "approved", "denied") else ""
        state = f"{entry.state:<9}  {left:<12}"
    return f"{printable(entry.id[:SHORT])}  {state}  {printable(request.sender)}  {_call(request)}"


def _call(request: ApprovalRequest) -> str:
    """The call by its arguments, or the question of a confirmation, in a line. A tool's preview may leave some out."""
    line = Preview.of_call(request.tool, request.arguments).summary
    return printable(line if request.asks == "approval" else f"{fitted(request.hint, SUMMARY_CHARS)} {line}")


def _standing_line(approval: StandingApproval) -> str:
    where = f"session {approval.session_id}" if approval.session_id else f"agent {'/'.join(approval.line)}"
    match = ", ".join(f"{name}={glob}" for name, glob in approval.pattern.items()) or "all arguments"
    return printable(
        f"{approval.id[:SHORT]}  standing   {_left(approval.expires_at):<12}  {where}  {approval.tool} with {match}"
    )


def _story(entry: ApprovalEntry) -> Iterator[str]:
    yield f"request     {printable(entry.id)}"
    yield f"state       {entry.state}"
    if entry.request is None:
        yield "            The row does not fit its signature: it was edited. Withdraw it."
        return
    yield from _asked(entry.request)
    if entry.answered_at is not None:
        answer = "approved" if entry.approved else "denied"
        yield f"answered    {time_of(entry.answered_at)}, {answer} by {printable(entry.answered_by) or 'a program'}"
    if entry.arguments is not None:
        yield f"instead     {written(dict(entry.arguments))}"
    if entry.payload is not None:
        yield f"payload     {written(entry.payload)}"
    if entry.message:
        yield f"message     {printable(entry.message)}"


def _asked(request: ApprovalRequest) -> Iterator[str]:
    yield f"tool        {printable(request.tool)} {printable(request.version)} (tier {request.tier})"
    yield printable(f"who         agent {'/'.join(request.line)}, {request.session_kind} session {request.session_id}")
    yield f"call        {printable(request.call_id)}"
    yield f"why asked   {printable(request.reason)}"
    yield f"asked at    {time_of(request.created_at)}"
    yield f"expires at  {time_of(request.expires_at)} ({_left(request.expires_at)})"
    yield f"preview, by the {request.preview_by}"
    shown = request.preview.for_people()
    for text in (shown.summary, shown.details, shown.diff or ""):
        yield from (f"    | {line}" for line in text.splitlines())
    yield "arguments"  # last, so that a long preview does not push them off the screen
    yield from (f"    {line}" for line in argument_lines(request.arguments))
    if request.asks == "confirmation":
        yield from ("question", f"    {written(request.hint)}", "payload", f"    {written(request.payload)}")


def _data(entry: ApprovalEntry) -> dict[str, Any]:
    data = {name: getattr(entry, name) for name in entry.__slots__}
    return {**data, "request": None if entry.request is None else to_data(entry.request)}
