"""The one table: it has every message once for each way it can take, and the ends of the channels keep to it."""

from typing import get_args

import pytest
from tests.wire.test_messages import MESSAGES

from toolcell.wire.frames import Violation, WireLimits, encode
from toolcell.wire.messages import KIND_OF, VERSION, Failed, Hello, Message, to_fields
from toolcell.wire.protocol import ControlLink, LocalProtocolError, ZygoteLink
from toolcell.wire.sequence import FOLLOWS, OPEN, SILENT, Rows, Stage, Way, following

LIMITS = WireLimits()
ENDS = {Way.TO_ZYGOTE: ZygoteLink.of_supervisor, Way.FROM_ZYGOTE: ZygoteLink.of_zygote}
OTHER_END = {Way.TO_ZYGOTE: ZygoteLink.of_zygote, Way.FROM_ZYGOTE: ZygoteLink.of_supervisor}
EVERY = {
    type(message): message._replace(version=VERSION) if isinstance(message, Hello) else message for message in MESSAGES
}


def messages_of(rows: Rows) -> set[type[Message]]:
    return {message for row in rows.values() for message in row}


def opened(way: Way, stage: Stage) -> list[Message]:
    """What brings a way to that stage, in as few messages as possible."""
    ways: dict[Stage, list[Message]] = {SILENT: []}
    for at in (SILENT, OPEN):
        for cls, to in FOLLOWS[way][at].items():
            ways.setdefault(to, [*ways[at], EVERY[cls]])
    return ways[stage]


def test_every_message_goes_one_way() -> None:
    of_ways = [messages_of(rows) for rows in FOLLOWS.values()]
    assert set[type[Message]]().union(*of_ways) == set(KIND_OF) == set(get_args(Message))
    assert sum(map(len, of_ways)) == len(KIND_OF)


def test_every_stage_that_is_reached_has_a_row_or_is_another_ways() -> None:
    for way, rows in FOLLOWS.items():
        for row in rows.values():
            assert set(row.values()) <= set(rows), way


@pytest.mark.parametrize("way", ENDS, ids=lambda way: way.name)
@pytest.mark.parametrize("message", EVERY.values(), ids=lambda message: type(message).__name__)
def test_either_end_of_the_zygotes_socket_sends_and_takes_what_the_table_allows_and_nothing_else(
    way: Way, message: Message
) -> None:
    for stage in FOLLOWS[way]:
        sender, receiver = ENDS[way](), OTHER_END[way]()
        for before in opened(way, stage):
            assert receiver.receive(sender.send(before)) == before
        frame = b"".join(encode(to_fields(message), LIMITS))
        if following(way, stage, message) is not None:
            assert sender.send(message) == frame
            assert receiver.receive(frame) == message
        else:
            with pytest.raises(LocalProtocolError, match=f"cannot be sent while {stage.value}"):
                sender.send(message)
            refused = receiver.receive(frame)
            assert isinstance(refused, Violation) and refused.reason == "frame out of place"


@pytest.mark.parametrize("message", EVERY.values(), ids=lambda message: type(message).__name__)
def test_the_control_socket_takes_what_the_table_allows_and_nothing_else(message: Message) -> None:
    frame = b"".join(encode(to_fields(message), LIMITS))
    for stage in FOLLOWS[Way.FROM_INIT]:
        link = ControlLink(LIMITS)
        for before in opened(Way.FROM_INIT, stage):
            assert link.receive(b"".join(encode(to_fields(before), LIMITS))) == [before]
        (event,) = link.receive(frame)
        if following(Way.FROM_INIT, stage, message) is not None:
            assert event == message
        else:
            assert isinstance(event, Violation)


def test_nothing_follows_the_failure_of_a_cell() -> None:
    link = ControlLink(LIMITS)
    failed = Failed("import", "no", "", "")
    said: list[Message] = [Hello(VERSION), failed, failed]
    *known, last = link.receive(b"".join(buffer for one in said for buffer in encode(to_fields(one), LIMITS)))
    assert known == said[:2] and last == Violation("frame out of place", "Failed after Failed")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x02\x90", b"\x00\x00\x00\x01\xc0", b"\xff" * 9])
def test_half_a_message_of_the_zygotes_socket_is_a_violation(data: bytes) -> None:
    assert isinstance(ZygoteLink.of_zygote().receive(data), Violation)
