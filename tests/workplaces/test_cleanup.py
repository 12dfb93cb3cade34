"""The clean-up after dead supervisors, by records that need not be what they say."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import USER

from toolcell.workplaces import cleanup
from toolcell.workplaces.cleanup import audit_after, clean
from toolcell.workplaces.record import InFlight
from toolcell.workplaces.runtime import RuntimeDirectory
from toolcell_sandbox.trees.facts import RACY_NS
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED
from toolcell_sandbox.trees.quarantine import Quarantine

from .conftest import Place


def a_record(place: Place, *lines: list[object], pid: int = 0, boot: str = "", name: str = "1-forged") -> Path:
    """A record of a process that no longer exists."""
    first = ["toolcell", 1, pid or 2**22 + 5, 17, boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()]
    directory = place.path / "run" / "toolcell"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{name}.record"
    words = [[*first, os.stat("/proc/self/ns/pid").st_ino], *lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in words))
    return path


def cleaned(place: Place, within_s: float = 10.0) -> list[Any]:
    directory = RuntimeDirectory()
    try:
        return list(clean(directory, Quarantine(str(place.path / "quarantine")), within_s))
    finally:
        directory.close()


def as_noted(kind: str, path: Path) -> list[object]:
    info = os.stat(path, follow_symlinks=False)
    return ["directory", kind, str(path), info.st_dev, info.st_ino]


def test_a_directory_that_is_filled_while_it_is_removed_is_no_success(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-aaaaaaaa"
    outputs.mkdir(mode=0o700)
    (outputs / "late").write_text("written behind the look")
    record = a_record(place, as_noted("outputs", outputs))
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _fd: [])
        with pytest.raises(OSError, match="not empty"):
            cleanup._remove("outputs", str(outputs), (outputs.stat().st_dev, outputs.stat().st_ino))
    assert cleaned(place) == [] and not outputs.exists() and not record.exists()


def test_a_forged_record_removes_nothing_that_no_supervisor_made(place: Place) -> None:
    temporary = place.path / "temporary"
    precious, wide, link = (temporary / f"toolcell-outputs-{each * 8}" for each in "abc")
    named_otherwise = temporary / "precious"
    other_inode = temporary / "toolcell-outputs-dddddddd"
    for path in (precious, wide, named_otherwise, other_inode):
        path.mkdir(mode=0o700)
        (path / "file").write_text("precious")
    wide.chmod(0o755)
    link.symlink_to(precious)
    through = temporary / "through"
    through.symlink_to(temporary)
    others = temporary / "toolcell-outputs-eeeeeeee"
    others.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(others, USER, USER)
    forged = [
        ["directory", "outputs", "/etc", os.stat("/etc").st_dev, os.stat("/etc").st_ino],
        ["directory", "outputs", str(other_inode), 1, 2],
        ["directory", "outputs", str(through / precious.name), precious.stat().st_dev, precious.stat().st_ino],
        ["cgroup", str(named_otherwise), named_otherwise.stat().st_dev, named_otherwise.stat().st_ino],
        as_noted("outputs", wide),
        as_noted("outputs", named_otherwise),
        as_noted("outputs", link),
        *([as_noted("outputs", others)] if os.geteuid() == 0 else []),
    ]
    record = a_record(place, *forged)
    assert cleaned(place) == []
    assert not record.exists() and os.path.isdir("/etc") and link.is_symlink()
    for path in (precious, wide, named_otherwise, other_inode):
        assert (path / "file").read_text() == "precious"
    assert os.geteuid() or others.is_dir()


@pytest.mark.parametrize(
    "text",
    [b"", b"[]\n", b"{\n", b'["toolcell",2,1,1,"",1]\n', b"[" * 100_000 + b"\n", b"\xff\n", b"null\n[1]\n"],
    ids=["empty", "no header", "no JSON", "another version", "too deep", "no text", "not a header"],
)
def test_a_record_that_no_supervisor_has_written_is_put_aside(place: Place, text: bytes) -> None:
    record = a_record(place)
    record.write_bytes(text)
    assert cleaned(place) == []
    assert not record.exists() and record.with_suffix(".aside").read_bytes() == text


def test_of_the_records_put_aside_the_latest_eight_are_kept(place: Place) -> None:
    records = [a_record(place, name=f"{number}-forged") for number in range(10)]
    for record in records:
        record.write_bytes(b"nonsense")
        assert cleaned(place) == []
        time.sleep(0.05)  # a tick of the file system's clock
    assert [record.with_suffix(".aside").exists() for record in records] == [False] * 2 + [True] * 8


@pytest.mark.parametrize(
    "line",
    [
        ["directory", "outputs", "relative/path", 1, 2],
        ["directory", "outputs", "/tmp/../etc", 1, 2],
        ["directory", "home", "/root", 1, 2],
        ["enter", 7, 0],
        ["names", 0, [1]],
        ["something", 1],
    ],
    ids=str,
)
def test_a_record_with_one_odd_line_is_put_aside_whole(place: Place, line: list[object]) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(place, as_noted("outputs", outputs), line)
    assert cleaned(place) == []
    assert outputs.exists() and record.with_suffix(".aside").exists()


def test_a_record_whose_last_line_was_cut_off_is_good_for_the_others(place: Place) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    (outputs / "file").write_text("long")
    record = a_record(place, as_noted("outputs", outputs))
    with record.open("a") as file:
        file.write('["direct')
    assert cleaned(place) == []
    assert not outputs.exists() and not record.exists()


def test_a_record_whose_pid_another_process_has_now_is_that_of_a_dead_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(place, as_noted("outputs", outputs), ["process", os.getpid(), 17], pid=os.getpid())
    monkeypatch.setattr(cleanup, "PROCESSES_S", 3600.0)
    cleaned(place, within_s=3600.0)  # to wait for a process that is not the record's would take an hour
    assert not outputs.exists() and not record.exists()


def test_a_hundred_dead_records_are_cleaned_up_together(place: Place) -> None:
    outputs = [place.path / "temporary" / f"toolcell-outputs-{number:08}" for number in range(100)]
    for number, path in enumerate(outputs):
        path.mkdir(mode=0o700)
        a_record(place, as_noted("outputs", path), name=f"{number}-dead")
    assert cleaned(place) == []
    assert not any(path.exists() for path in outputs) and place.records == []


def test_a_clean_up_that_has_no_time_leaves_the_records_to_the_next_one(place: Place) -> None:
    for number in range(3):
        a_record(place, name=f"{number}-dead")
    cleaned(place, within_s=-1.0)
    assert len(place.records) == 3
    cleaned(place)
    assert place.records == []


def test_outputs_are_removed_with_the_directories_that_somebody_made_in_them(place: Place) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-abcdefgh"
    (outputs / "directory" / "below").mkdir(parents=True)
    outputs.chmod(0o700)
    (outputs / "directory" / "file").write_text("long")
    record = a_record(place, as_noted("outputs", outputs))
    assert cleaned(place) == []
    assert not outputs.exists() and not record.exists()


def test_a_record_that_is_too_large_to_be_read_is_put_aside(place: Place) -> None:
    outputs = place.path / "temporary" / "toolcell-outputs-abcdefgh"
    outputs.mkdir(mode=0o700)
    record = a_record(place, as_noted("outputs", outputs))
    os.truncate(record, 64 * 1024 * 1024 + 1)
    assert cleaned(place) == []
    assert outputs.exists() and record.with_suffix(".aside").exists() and not record.exists()


def test_links_that_calls_in_flight_left_in_a_git_directory_are_moved_away(tmp_path: Path) -> None:
    """Also an old link, in a directory that was moved there."""
    top = tmp_path / "top"
    for path in (".git/objects", ".git/refs", "aside"):
        (top / path).mkdir(parents=True)
    (top / ".git/HEAD").symlink_to("refs/heads/main")  # a person's
    (top / "aside/HEAD").symlink_to("../config")
    info = (top / ".git").stat()
    since_ns = time.time_ns() + 2 * RACY_NS
    while time.time_ns() < since_ns + 2 * RACY_NS:
        time.sleep(RACY_NS / 1e9)
    (top / "aside").rename(top / ".git/logs")
    (top / ".git/MERGE_MSG").symlink_to("config")
    flight = InFlight((str(top),), DEFAULT_PROTECTED, since_ns, frozenset([(info.st_dev, info.st_ino)]))
    settled = audit_after(flight, Quarantine(str(tmp_path / "quarantine")))
    left = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_symlink()}
    assert left == {".git/HEAD"} and len(settled.findings) == 2
