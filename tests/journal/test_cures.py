"""What is said about an error of the files in a state directory."""

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolcell import UsageError
from toolcell.store.cures import READ_ONLY, cure_of, told


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (errno.EACCES, "Give it to the user of this program."),
        (errno.EROFS, READ_ONLY),
        (errno.ENOSPC, "Free space there."),
        (errno.EDQUOT, "The user's quota is used up"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ELOOP, "Remove the link."),
        (errno.EIO, "Look at the disk."),
    ],
)
def test_each_error_of_the_system_has_its_cure(code: int, cure: str) -> None:
    assert cure in cure_of(OSError(code, "why"))


def test_an_error_of_another_kind_has_the_general_cure() -> None:
    assert cure_of(ValueError("what")) == cure_of(OSError("no number")) == "Look at the disk."
    assert cure_of(sqlite3.ProgrammingError("of the module")) == "Look at the disk."


def test_an_error_of_sqlite_is_known_by_its_code_also_by_an_extended_one(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE t (x)")
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader,
        pytest.raises(sqlite3.OperationalError) as found,
    ):
        reader.execute("INSERT INTO t VALUES (1)")
    assert cure_of(found.value) == READ_ONLY
    extended = sqlite3.OperationalError("disk I/O error")
    extended.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert "a quota or the limit on the size of files" in cure_of(extended)


def test_a_locked_database_names_the_other_program(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0.0)) as other:
        one.execute("BEGIN EXCLUSIVE")
        words = r"^x\.sqlite cannot be used: database is locked\. Another program holds"
        with pytest.raises(UsageError, match=words), told("x.sqlite"):
            other.execute("BEGIN EXCLUSIVE")


def test_the_file_that_an_error_names_is_named_without_its_directory(tmp_path: Path) -> None:
    words = r"^missing cannot be used: No such file or directory\. Something in it"
    with pytest.raises(UsageError, match=words), told("journal.log"):
        (tmp_path / "missing").read_bytes()


def test_another_error_passes() -> None:
    with pytest.raises(ZeroDivisionError), told("journal.log"):
        _ = 1 / 0
