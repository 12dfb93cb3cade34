"""Server-sent events, as a hostile host may write them, and the wait for what was posted."""

import time

import pytest

from toolcell.mcp.client.inside.http import EventReader, HttpTransport, Post
from toolcell.mcp.client.inside.jsonrpc import Message
from toolcell.testing import context
from toolcell_tools.handles import HttpResponse

MESSAGE = b'{"jsonrpc":"2.0","method":"ping"}'


def events_in(body: bytes) -> list[object]:
    return list(EventReader().read(body, is_end=True))


def test_messages_are_found_between_comments_other_events_and_empty_data() -> None:
    body = (
        b": hello\n\nid: 7\ndata:\n\nevent: other\ndata: " + MESSAGE + b"\n\nevent: message\ndata: " + MESSAGE + b"\n\n"
    )
    assert list(events_in(body)) == [{"jsonrpc": "2.0", "method": "ping"}]


def test_line_ends_of_every_kind_and_data_of_several_lines_are_read() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        parts = [b'data: {"jsonrpc":"2.0",', b'data: "method":"ping"}', b"", b""]
        assert list(events_in(end.join(parts))) == [{"jsonrpc": "2.0", "method": "ping"}]


def test_an_event_without_its_end_counts_and_noise_is_none() -> None:
    assert list(events_in(b"data: " + MESSAGE)) == [{"jsonrpc": "2.0", "method": "ping"}]
    assert list(events_in(b"data: {}\n\ndata: x\n\n")) == [None, None]
    assert list(events_in(b"")) == []


def test_events_that_arrive_line_by_line_are_found_once_and_at_their_ends() -> None:
    body = b"event: message\r\ndata: " + MESSAGE + b"\r\n\r\n: comment\ndata: " + MESSAGE + b"\n\ndata: " + MESSAGE
    lines = body.splitlines(keepends=True)
    reader = EventReader()
    found = [len(list(reader.read(line))) for line in lines[:-1]]
    assert found == [0, 0, 1, 0, 0, 1]
    assert len(list(reader.read(lines[-1], is_end=True))) == 1


class Slow:
    """A request that the server accepts after so many waits."""

    received = 0

    def __init__(self, waits: int) -> None:
        self.left = waits

    def wait(self, seconds: float, *, events: bool = True) -> bytes | HttpResponse | None:
        time.sleep(min(seconds, 0.001))
        self.left -= 1
        return HttpResponse(202, {}, b"") if self.left < 0 else None

    def leave(self) -> None:
        raise AssertionError("it is waited for, and not left")


class Slowly(HttpTransport):
    """Sends messages as requests of `Slow`."""

    def __init__(self, post: Slow) -> None:
        super().__init__("https://mcp.example.org/", {})
        self._post = post

    def _send(self, number: int, message: Message) -> Post:
        return self._post


@pytest.mark.parametrize(("waits", "deadline_s", "is_accepted"), [(5, 30.0, True), (10**9, 0.2, False)])
def test_a_cancellation_is_waited_for_until_it_is_accepted_and_for_a_part_of_the_time_at_most(
    waits: int, deadline_s: float, is_accepted: bool
) -> None:
    slow = Slow(waits)
    transport = Slowly(slow)
    transport.begin(context(deadline_s=deadline_s))
    transport.post({"method": "notifications/cancelled", "params": {"requestId": 1}})
    transport.flush()
    assert (slow.left < 0) == is_accepted and slow.left < waits
