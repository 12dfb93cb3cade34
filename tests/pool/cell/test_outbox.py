"""The queue in front of a pipe: what is sent at once, what waits, and what is reported as sent."""

import os
from functools import partial

import pytest

from toolcell.pool.cell.channels import IOV_MAX, Outbox, read_available


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


def test_what_is_dropped_is_not_sent_later() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    wants: list[bool] = []
    outbox = Outbox(writer, wants.append)
    outbox.write([b"x" * 200_000])
    outbox.clear()
    outbox.flush()
    while set(read_available(reader, 200_000) or b"") == {ord("x")}:
        pass
    outbox.write([b"next"])
    assert read_available(reader, 10) == b"next" and wants == [True, False]
    os.close(reader)
    os.close(writer)


def test_more_buffers_than_one_call_of_the_kernel_takes_leave_in_order() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    outbox = Outbox(writer, lambda want: None)
    outbox.write([b"%03d" % number for number in range(3 * IOV_MAX + 1)])
    assert not outbox
    assert os.read(reader, 10_000) == b"".join(b"%03d" % number for number in range(3 * IOV_MAX + 1))
    os.close(reader)
    os.close(writer)


def test_reading_tells_nothing_yet_from_the_end() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    assert read_available(reader, 3) is None
    os.write(writer, b"abcde")
    assert read_available(reader, 3) == b"abc" and read_available(reader, 3) == b"de"
    os.close(writer)
    assert read_available(reader, 3) == b""
    os.close(reader)
