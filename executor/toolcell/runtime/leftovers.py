"""Clean up after supervisors that were killed, and begin the record that the next cleanup needs."""

import logging
from contextlib import ExitStack
from functools import partial

from toolcell.backends.threads import FILES, NoThread
from toolcell.dispatch.protected_names import MAX_TOLD, audit_data, printable, said
from toolcell.store.journal import Journal, Record
from toolcell.workplaces.cleanup import Audited, clean
from toolcell.workplaces.record import RunRecord
from toolcell.workplaces.runtime import RuntimeDirectory
from toolcell_sandbox.trees.quarantine import Quarantine

_log = logging.getLogger("toolcell")


async def begin_record(record: RunRecord, quarantine: Quarantine, journal: Journal) -> None:
    """Clean up after supervisors that were killed, and begin a record for the next one.

    Failures are only logged, because they do not concern the calls of this supervisor.
    """
    try:
        runtime = RuntimeDirectory()
        with ExitStack() as undo:
            undo.callback(runtime.close)
            try:
                if runtime.records():
                    for audited in await FILES.run(partial(clean, runtime, quarantine)):
                        _record_audited(journal, audited)
                if quarantine.exists():  # else the start takes no thread
                    await FILES.run(quarantine.expire)
                if dropped := quarantine.dropped():
                    _log.warning("old entries of the quarantine were deleted: %s", ", ".join(map(printable, dropped)))
            except (OSError, NoThread):
                _log.exception(
                    "cleanup after killed supervisors failed; their files remain, see the records in %s",
                    runtime.path,
                )
            record.begin(runtime)
            undo.pop_all()
    except OSError as error:
        _log.warning(
            "No record is kept of this supervisor, so what it leaves if it is killed stays: %s: %s. "
            "Records are in $XDG_RUNTIME_DIR/toolcell, or toolcell-<uid> among the temporary files.",
            error.strerror,
            error.filename,
        )


def _record_audited(journal: Journal, audited: Audited) -> None:
    _log.warning(
        "the supervisor %d was killed while calls ran; protected names that they made or changed: %d%s",
        audited.pid,
        len(audited.findings),
        "".join(f"; {said(each)}" for each in audited.findings[:MAX_TOLD])
        + (f"; not all could be checked: {audited.unknown}" if audited.unknown else "")
        + (f"; {audited.stuck}" if audited.stuck else ""),
    )
    data = {"event": "after an untidy end", "supervisor": audited.pid, **audit_data(audited)}
    journal.write(Record("quarantined", "", "", data))
