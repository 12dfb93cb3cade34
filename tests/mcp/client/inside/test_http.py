"""Server-sent events, as a hostile host may write them."""

from toolcell.mcp.client.inside.http import EventReader

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
