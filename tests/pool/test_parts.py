"""The small parts of the pool: deadlines, captures, outboxes, what an exit tells."""

import math
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.pool.capture import Capture
from toolcell.pool.cell.evidence import SHORT_CALL_S, Evidence, limit_of_exit
from toolcell.pool.deadlines import Deadlines
from toolcell.pool.outbox import Outbox, read_available
from toolcell_sandbox import Limits


def test_deadlines_ring_for_the_earliest_and_only_when_that_changes() -> None:
    rings: list[float] = []
    deadlines = Deadlines(rings.append)
    fired: list[str] = []
    deadlines.at(5.0, lambda: fired.append("five"))
    deadlines.at(9.0, lambda: fired.append("nine"))
    early = deadlines.at(1.0, lambda: fired.append("one"))
    assert rings == [5.0, 1.0]
    deadlines.cancel(early)
    assert list(deadlines.pop_due(1.0)) == []
    deadlines.at(4.0, lambda: fired.append("four"))
    assert rings == [5.0, 1.0]  # what is due is under way
    deadlines.ring_again()
    assert rings == [5.0, 1.0, 4.0]
    for action in deadlines.pop_due(9.0):
        action()
    deadlines.ring_again()
    assert rings == [5.0, 1.0, 4.0]  # nothing is left
    assert fired == ["four", "five", "nine"] and len(deadlines) == 0 and deadlines.next_due() == math.inf


def test_cancelled_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines(lambda when: None)
    for number in range(10_000):
        deadlines.cancel(deadlines.at(1000.0 + number, lambda: None))
    assert len(deadlines._heap) < 200 and len(deadlines) == 0  # pyright: ignore[reportPrivateUsage]


def test_cancelling_twice_or_after_the_fact_counts_once() -> None:
    deadlines = Deadlines(lambda when: None)
    fired, other = deadlines.at(1.0, lambda: None), deadlines.at(2.0, lambda: None)
    assert len(list(deadlines.pop_due(1.0))) == 1
    deadlines.cancel(fired)
    deadlines.cancel(other)
    deadlines.cancel(other)
    assert len(deadlines) == 0


def test_what_is_cancelled_by_what_is_due_before_it_is_not_done() -> None:
    deadlines = Deadlines(lambda when: None)
    done: list[str] = []

    def first() -> None:
        done.append("first")
        deadlines.cancel(second)
        deadlines.at(2.5, lambda: done.append("third"))

    deadlines.at(1.0, first)
    second = deadlines.at(2.0, lambda: done.append("second"))
    for action in deadlines.pop_due(3.0):
        action()
    assert done == ["first", "third"] and len(deadlines) == 0


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(3, 200))
def test_a_capture_keeps_head_and_tail_and_counts_the_rest_exactly(chunks: list[bytes], keep: int) -> None:
    chunks = [bytes(97 + byte % 26 for byte in chunk) for chunk in chunks]
    whole = b"".join(chunks)
    capture = Capture(keep)
    for chunk in chunks:
        capture.feed(chunk)
    captured = capture.take()
    assert captured.total_bytes == len(whole)
    assert captured.omitted_bytes == max(0, len(whole) - keep)
    head = keep - keep // 3
    if captured.omitted_bytes:
        assert captured.text.startswith(whole[:head].decode())
        assert captured.text.endswith(whole[len(whole) - keep // 3 :].decode())
    else:
        assert captured.text == whole.decode()
    assert capture.take().total_bytes == 0


def test_an_outbox_sends_what_the_pipe_takes_and_the_rest_later() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    wants: list[bool] = []
    outbox = Outbox(writer, wants.append)
    data = [bytes([number]) * 50_000 for number in range(10)]
    outbox.write(data)
    outbox.write([b"end"])
    got = b""
    while len(got) < 500_003:
        got += read_available(reader, 70_000) or b""
        outbox.flush()
    assert got == b"".join(data) + b"end" and not outbox and wants == [True, False]
    os.close(reader)
    outbox.write([b"nobody reads this"])
    assert not outbox
    os.close(writer)


@pytest.mark.trick
def test_an_outbox_widens_a_pipe_that_is_full_and_then_waits_for_nobody() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wants: list[bool] = []
    outbox = Outbox(writer, wants.append, pipe=True)
    outbox.write([b"x" * 200_000])
    assert not outbox and wants == []
    os.close(reader)
    os.close(writer)


def test_an_outbox_says_when_what_was_written_has_left_and_not_when_it_is_queued() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    outbox, left = Outbox(writer, lambda want: None), list[str]()
    outbox.write([b"x"], lambda: left.append("small"))
    assert left == ["small"]
    for name in ("first", "second", "third"):
        outbox.write([name.encode() * 20_000, b"."], partial(left.append, name))
        outbox.write([b"between"])
    assert left == ["small"]
    got, seen = b"", list[tuple[int, int]]()
    while len(got) < 1 + 320_003 + 21:
        got += read_available(reader, 5_000) or b""
        outbox.flush()
        seen.append((len(left), len(got)))
    assert left == ["small", "first", "second", "third"]
    ends = {2: 1 + 100_001, 3: 1 + 220_009, 4: 1 + 320_017}
    for count, end in ends.items():
        read = min(total for number, total in seen if number >= count)
        assert end - 70_000 <= read <= end + 5_000  # as soon as the pipe has all of it, and no sooner
    os.close(reader)
    os.close(writer)


def test_an_outbox_whose_reader_is_gone_says_that_nothing_waits() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    left = list[str]()
    for gone in ("cleared", "closed"):
        outbox = Outbox(writer, lambda want: None)
        outbox.write([b"x" * 200_000], partial(left.append, gone))
        assert gone not in left
        if gone == "cleared":
            outbox.clear()
        else:
            os.close(reader)
            outbox.flush()
        assert gone in left
    os.close(writer)


def test_an_exit_tells_of_a_limit_only_by_its_signal_and_its_account() -> None:
    limits = Limits(cpu_s=2.0)
    assert limit_of_exit(-signal.SIGXCPU, 2.1, limits) == "cpu"
    assert limit_of_exit(-signal.SIGKILL, 2.1, limits) == "cpu"
    assert limit_of_exit(-signal.SIGKILL, 0.1, limits) == ""
    assert limit_of_exit(-signal.SIGXFSZ, 0.1, limits) == "file_size"
    assert limit_of_exit(-signal.SIGSEGV, 0.1, limits) == "" and limit_of_exit(1, 9.0, limits) == ""


FAMILY = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        time.sleep(100)
print(flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""


def test_tasks_are_counted_in_full_after_a_process_that_was_forked_ahead_has_taken_over() -> None:
    started = time.monotonic() - 10 * SHORT_CALL_S
    command = [sys.executable, "-I", "-S", "-c", FAMILY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as init:
        assert init.stdin is not None and init.stdout is not None
        init.stdout.readline()
        evidence = Evidence(None, Limits(), kept=False)
        evidence.new_cell(init.pid)
        evidence.new_process()
        evidence.new_call()
        evidence.forked_ahead()
        assert evidence.account(started).tasks == 2, "one of the three is for the next call"
        evidence.new_process()
        evidence.new_call()
        assert evidence.account(started).tasks == 3
        init.stdin.close()
