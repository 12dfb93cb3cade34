"""The record of a supervisor: what is read of it, and how large it becomes."""

import json
import os
from pathlib import Path

import pytest

from toolcell.workplaces.record import REWRITE_BYTES, InFlight, Process, RunRecord, read, started_at
from toolcell.workplaces.runtime import RuntimeDirectory
from toolcell_sandbox.view import Bound

from .conftest import Place


def test_a_record_that_grows_drops_what_is_over(place: Place) -> None:
    record, names = RunRecord(), ("a-name",)
    record.begin(RuntimeDirectory())
    try:
        record.enter((("/srv/in-flight",), names), 1, ())
        sizes = []
        for number in range(2_000):
            trees = ((f"/srv/{number:0200}",), names)
            record.enter(trees, 1, ())
            record.leave(trees)
            sizes.append(os.stat(record.path).st_size)
        assert max(sizes) < 3 * REWRITE_BYTES and sizes[-1] != max(sizes)
        text = Path(record.path).read_text()
        assert "/srv/in-flight" in text and text.count("/srv/0") < 1_000
    finally:
        record.end()


def test_a_record_is_written_anew_when_it_has_grown(place: Place) -> None:
    record = RunRecord()
    record.begin(RuntimeDirectory())
    trees = (("/srv/project",), tuple(f".name-{number}" for number in range(50)))
    sizes: list[int] = []
    for number in range(40_000):
        record.enter(trees, number, ())
        record.leave(trees)
        if number % 1000 == 0:
            sizes.append(os.path.getsize(record.path))
    assert max(sizes) < 300_000 and len(place.records) == 1
    record.enter(trees, 1, ())
    assert b".name-49" in Path(record.path).read_bytes()
    record.end()
    assert place.records == []


def lines(*lines: list[object]) -> bytes:
    """A record with these lines."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in [["toolcell", 1, 7, 17, "boot", 9], *lines])


ENTERED: list[list[object]] = [["names", 0, [".git"]], ["tree", 0, 0, ["/w"]], ["held", 0, [[1, 2]]], ["enter", 0, 5]]


def test_what_was_written_is_read(place: Place) -> None:
    record = RunRecord()
    record.begin(RuntimeDirectory())
    try:
        record.process(os.getpid())
        record.enter((("/w",), (".git",)), 5, (Bound("/w/.git", True, (1, 2)),))
        record.enter((("/v",), (".git",)), 6, ())
        record.leave((("/v",), (".git",)))
        left = read(Path(record.path).read_bytes())
    finally:
        record.end()
    assert left.owner == Process.of(os.getpid()) and left.owner.lives and left.is_of_this_boot
    assert left.processes == (Process.of(os.getpid()),)
    assert left.in_flight == (InFlight(("/w",), (".git",), 5, frozenset({(1, 2)})),)


def test_a_tree_is_in_flight_until_it_is_left() -> None:
    assert [flight.writable for flight in read(lines(*ENTERED)).in_flight] == [("/w",)]
    assert read(lines(*ENTERED, ["leave", 0])).in_flight == ()


def test_a_line_that_is_not_complete_is_left_out_and_an_odd_one_is_an_error() -> None:
    assert read(lines(*ENTERED) + b'["leave",').in_flight != ()
    for odd in (["leave", 1], ["enter", 3, 5], ["process", "7", 1], [], 5):
        with pytest.raises(ValueError):
            read(lines(*ENTERED) + json.dumps(odd).encode() + b"\n")


@pytest.mark.parametrize("path", ["w", "/w/../etc", "/w/", "/w\0", ""], ids=repr)
def test_a_path_that_no_supervisor_writes_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match="a path is not absolute and normalised"):
        read(lines(["cgroup", path, 1, 2]))


def test_a_process_is_known_by_the_tick_of_its_start() -> None:
    assert Process.of(os.getpid()).lives
    assert not Process(os.getpid(), started_at(os.getpid()) + 1).lives
    assert Process.of(2**22 + 5) == Process(2**22 + 5, 0) and not Process.of(2**22 + 5).lives
