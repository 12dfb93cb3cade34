"""The log of a durable journal: the end of the program that writes it."""

import subprocess
import sys
from pathlib import Path

from tests.helpers import PATIENCE_S

from toolcell.store.journal.entries import entries

PROGRAM = """
import sys
from pathlib import Path
from toolcell.store.journal.journal import Record
from toolcell.store.journal.log import JournalLog

log = JournalLog(Path(sys.argv[1]))
list(log.open())
log.append(Record("call", "main-1", "a", {}))
"""


def test_a_program_that_does_not_close_its_log_ends_and_has_written_its_records(tmp_path: Path) -> None:
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", PROGRAM, str(path)], check=True, timeout=PATIENCE_S)
    with path.open("rb") as file:
        assert [each.record.call_id for each in entries(file)] == ["a"]
