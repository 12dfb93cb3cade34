"""`toolcell audit`: read the journal of a state directory, even while a supervisor writes to it."""

import json
import os
import sys
from collections.abc import Callable, Iterable

import click

from toolcell.errors import UsageError
from toolcell.rules.toml.load import load_config
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.entries import BrokenChain, Head
from toolcell.store.journal.journal import Record
from toolcell.store.journal.narrative import line_of, story_of
from toolcell.store.journal.reading import JournalReader, Numbered, Wanted
from toolcell_tools.preview import counted, printable


def directory_of(state: str | None) -> StateDirectory:
    """The given state directory, or the one in the user's settings. Raises UsageError, also if a file in it is none."""
    place = state if state is not None else load_config().state
    if place is None:
        raise UsageError("No state directory is set. Pass --state DIRECTORY, or set state in the user's toolcell.toml.")
    directory = StateDirectory(place)
    directory.require_files()
    return directory


def reader_of(state: str | None) -> JournalReader:
    """The reader of a state directory's journal. Raises UsageError."""
    directory = directory_of(state)
    return JournalReader(directory.log, directory.index)


def show_list(state: str | None, *, kind: str | None, session: str | None, last: int, as_json: bool) -> None:
    conditions = [(column, value) for column, value in (("kind", kind), ("session", session)) if value is not None]
    where = " AND ".join(f"{column} = ?" for column, _value in conditions)
    found = reader_of(state).records(
        where, tuple(value for _column, value in conditions), wanted=_wanted(kind, session), last=last
    )
    _print(found, as_json=as_json)
    if not found:
        asked = [f"--{column} {value!r}" for column, value in conditions]
        click.echo(f"The journal has no record{' with ' if asked else ''}{' and '.join(asked)}.", err=True)


def show_call(state: str | None, call: str, *, as_json: bool) -> None:
    found = reader_of(state).records("call = ?", (call,), wanted=lambda record: record.call_id == call, last=100_000)
    if not found:
        raise UsageError(f"The journal has no call {call!r}. `toolcell audit list` shows the ids.")
    if as_json:
        _print(found, as_json=True)
    else:
        for line in story_of(record for _number, record in found):
            click.echo(line)


def follow(state: str | None, *, kind: str | None, session: str | None, as_json: bool) -> None:
    for one in reader_of(state).follow(_wanted(kind, session)):
        _print([one], as_json=as_json)
        sys.stdout.flush()


def verify(state: str | None, head: str | None) -> None:
    try:
        known = None if head is None else Head.parse(head)
    except ValueError as error:
        raise UsageError(f"--head is not a head: {error}") from None
    present = reader_of(state).verify(known)
    entries = counted(present.number, "entry", "entries")
    click.echo(f"The chain of {entries} is intact. Keep this head elsewhere:\n{present}")


def export(state: str | None) -> None:
    for each in reader_of(state).entries():
        _print([(each.head.number, each.record)], as_json=True)


def guarded(run: Callable[[], None]) -> int:
    """Run one of the commands. Return the exit status: 1 for a broken chain, 2 for wrong use."""
    try:
        run()
    except BrokenChain as error:
        click.echo(printable(f"The journal is damaged. {error} {error.cure}"), err=True)
        return 1
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # the reader, such as head(1), has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes at its end
        return 0
    except (UsageError, OSError) as error:
        click.echo(printable(str(error)), err=True)
        return 2
    return 0


def _wanted(kind: str | None, session: str | None) -> Wanted:
    def wanted(record: Record) -> bool:
        return (kind is None or record.kind == kind) and (session is None or record.session_id == session)

    return wanted


def _print(found: Iterable[Numbered], *, as_json: bool) -> None:
    for number, record in found:
        if as_json:
            facts = {"number": number, "at": record.at, "kind": record.kind, "session": record.session_id}
            click.echo(json.dumps({**facts, "call": record.call_id, "data": record.data}, default=repr))
        else:
            click.echo(line_of(number, record))
