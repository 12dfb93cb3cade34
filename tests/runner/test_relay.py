"""What commands print goes to the supervisor as it comes, and where it is too much, its end and an exact count."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from toolcell.pool.run import Capture, Captured
from toolcell.runner import live_output as relay_module
from toolcell.runner.link import Link
from toolcell.runner.live_output import SNAPSHOT_BYTES, Relay
from toolcell.wire.frames import WireLimits
from toolcell.wire.messages import Output
from toolcell.wire.protocol import SupervisorLink

LINES = "".join(f"{number}\n" for number in range(20_000)).encode()
Ends = tuple[Link, SupervisorLink, int]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A call process's end of its pipes, the supervisor's, and what is read from."""
    with ExitStack() as closing:
        (calls, to_call), (frames, to_frames) = os.pipe(), os.pipe()
        for fd in (calls, to_call, frames, to_frames):
            closing.callback(os.close, fd)
        supervisor, link = SupervisorLink(WireLimits()), Link(WireLimits(), calls, to_frames)
        os.write(to_call, b"".join(supervisor.call("call-1", "shell", {}, {})))
        link.wait_for_call()
        yield link, supervisor, frames


def heard(ends: Ends) -> list[Output]:
    """What has come over."""
    _link, supervisor, frames = ends
    return [event for event in supervisor.receive(os.read(frames, 1 << 20)) if isinstance(event, Output)]


def captured(outputs: list[Output], keep_bytes: int) -> Captured:
    capture = Capture(keep_bytes)
    for output in outputs:
        capture.relay(output.data, output.skipped)
    return capture.take()


def test_what_is_printed_now_and_then_goes_over_as_it_comes(ends: Ends) -> None:
    relay = Relay(ends[0], 1_000)
    for stream, data in ((1, b"a"), (2, b"b"), (1, b"c")):
        relay.feed(stream, data)
        assert heard(ends) == [Output(1, stream, 0, data)] and relay.due_s() is None


@pytest.mark.parametrize("piece", [7, 1_000, 50_000])
def test_up_to_its_bound_a_stream_goes_over_whole_and_beyond_that_its_end(
    ends: Ends, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_bytes, keep_bytes = 20_000, 9_000
    monkeypatch.setattr(relay_module, "time", SimpleNamespace(monotonic=lambda: 0.0))  # all of it comes in a moment
    relay = Relay(ends[0], whole_bytes)
    for start in range(0, len(LINES), piece):
        relay.feed(1, LINES[start : start + piece])
    relay.flush(last=True)
    outputs = heard(ends)
    sent = b"".join(output.data for output in outputs)
    assert LINES.startswith(sent[:whole_bytes]) and LINES.endswith(sent[-SNAPSHOT_BYTES // 2 :])
    assert len(sent) < 60_000, "the rest is not worth its way"
    found = captured(outputs, keep_bytes)
    assert (found.total_bytes, found.omitted_bytes) == (len(LINES), len(LINES) - keep_bytes)
    assert LINES.decode().startswith(found.text[:6_000]) and LINES.decode().endswith(found.text[-3_000:])


def test_a_beginning_that_is_missing_is_counted_and_not_made_up(ends: Ends) -> None:
    found = captured([Output(1, 1, 0, b"ab"), Output(1, 1, 10, b"cd"), Output(1, 1, 0, b"ef")], 30)
    assert (found.total_bytes, found.omitted_bytes) == (16, 10)
    assert found.text == "ab\n[10 of 16 bytes left out]\ncdef"


def test_a_call_after_another_in_one_process_begins_anew(ends: Ends) -> None:
    link, supervisor, _frames = ends
    relay = Relay(link, 4)
    relay.feed(1, b"all of it")
    relay.feed(1, b"waits")
    assert len(heard(ends)) == 1 and relay.due_s() is not None
    link.protocol.seq = supervisor.seq = 2
    relay.feed(1, b"new")
    assert heard(ends) == [Output(2, 1, 0, b"new")]
