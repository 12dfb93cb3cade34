"""The list of withdrawn and revoked approvals beside the database."""

import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcell.store.approvals.ended import MOST_BYTES, EndedList
from toolcell.store.database import Signer

SIGNER = Signer(b"k" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "approvals.ended"


@pytest.fixture
def small_files() -> Iterator[None]:
    """A write beyond 100 bytes of a file fails, or writes less, as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_each_process_reads_what_the_others_have_added(path: Path) -> None:
    mine, other = EndedList(path, SIGNER), EndedList(path, SIGNER)
    assert mine.read() == {}
    other.add("a", "withdrawn")
    mine.add("b", "revoked")
    assert mine.read() == other.read() == {"a": "withdrawn", "b": "revoked"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_that_were_edited_or_cut_off_are_left_out(path: Path) -> None:
    EndedList(path, SIGNER).add("a", "withdrawn")
    EndedList(path, SIGNER).add("b", "withdrawn")
    first, second = path.read_text().splitlines()
    path.write_text(
        "\n".join([first.replace(" a ", " c "), second, "withdrawn d", "\udcff", first[:40]]), errors="replace"
    )
    assert EndedList(path, SIGNER).read() == {"b": "withdrawn"}
    assert EndedList(path, Signer(b"x" * 32)).read() == {}


def test_a_line_after_one_that_a_power_failure_cut_off_holds(path: Path) -> None:
    EndedList(path, SIGNER).add("a", "withdrawn")
    path.write_bytes(path.read_bytes() + b"withdrawn b 12")
    EndedList(path, SIGNER).add("c", "revoked")
    assert EndedList(path, SIGNER).read() == {"a": "withdrawn", "c": "revoked"}


def test_a_file_beyond_the_bound_is_an_error_because_an_approval_in_the_rest_would_hold(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(OSError, match="more than 16,777,216 bytes"):
        EndedList(path, SIGNER).read()


def test_what_the_journal_knows_is_removed_and_what_others_add_meanwhile_stays(path: Path) -> None:
    writers = [EndedList(path, SIGNER) for _ in range(4)]
    threads = [
        threading.Thread(
            target=lambda own=own, writer=writer: [writer.add(f"{own}-{n}", "withdrawn") for n in range(20)]
        )
        for own, writer in enumerate(writers)
    ]
    for thread in threads:
        thread.start()
    for number in range(20):
        EndedList(path, SIGNER).remove({f"0-{number}"})
    for thread in threads:
        thread.join()
    EndedList(path, SIGNER).remove({f"0-{number}" for number in range(20)})
    assert EndedList(path, SIGNER).read().keys() == {f"{own}-{n}" for own in (1, 2, 3) for n in range(20)}


@pytest.mark.usefixtures("small_files")
def test_on_a_full_disk_an_approval_is_not_ended_by_half_a_line(path: Path) -> None:
    ended = EndedList(path, SIGNER)
    ended.add("a", "withdrawn")
    before = path.read_bytes()
    with pytest.raises(OSError, match="the disk is full"):
        ended.add("b", "withdrawn")
    assert path.read_bytes() == before and EndedList(path, SIGNER).read() == {"a": "withdrawn"}
