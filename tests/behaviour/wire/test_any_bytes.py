"""Whatever bytes come, `receive` returns events: messages, or one Violation and then nothing. It never raises."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.values import json_values, scalars

from toolcell.wire.frames import HEADER, Violation, WireLimits, encode
from toolcell.wire.messages import (
    SHAPES,
    VERSION,
    Call,
    Cancel,
    Error,
    Exited,
    Failed,
    Heeds,
    Hello,
    Log,
    Message,
    Progress,
    Ready,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
    to_fields,
)
from toolcell.wire.protocol import CallLimits, CellLink, ControlLink, SupervisorLink, WireEvent

pytestmark = pytest.mark.usefixtures("nothing_is_left_of_the_module")

LIMITS = WireLimits(frame_bytes=4096, depth=12, elements=500, string_bytes=2000)
AMPLE = WireLimits()
Link = SupervisorLink | CellLink | ControlLink

fuzzed = settings(max_examples=80, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def stream(*messages: Message) -> bytes:
    return b"".join(buffer for message in messages for buffer in encode(to_fields(message), AMPLE))


def supervisor_called(*, kept: bool = False) -> SupervisorLink:
    link = SupervisorLink(LIMITS, CallLimits(frames=20, in_flight=3), kept=kept)
    link.call(*CALL[1:])
    if kept:
        link.receive(stream(Result(1, {})))
        link.next_kept_call()
        link.call(*CALL[1:])
    return link


def cell_called() -> CellLink:
    link = CellLink(LIMITS)
    link.receive(stream(CALL))
    return link


CALL = Call(1, "call-1", "read", {"grants": ["read"]}, {"path": "notes.txt"})
LINKS: list[Callable[[], Link]] = [
    lambda: SupervisorLink(LIMITS),
    supervisor_called,
    lambda: supervisor_called(kept=True),
    lambda: CellLink(LIMITS),
    cell_called,
    lambda: ControlLink(LIMITS),
]
OUT_OF_A_CELL: list[Message] = [
    Log(1, "info", "hello", {"n": 1}),
    Request(1, 1, "memory.search", {"query": "q", "limit": 5}),
    Progress(1, "half", 0.5),
    Request(1, 2, "web.fetch", {"url": "https://example.org"}),
    Heeds(1),
    SpanStart(1, 1, 0, "parse", 2**60, {"rows": 3}),
    SpanEnd(1, 1, 2**60, ""),
    Result(1, {"output": {"rows": [[1, 2.5], ["a", None]]}, "display": "é"}),
]
INTO_A_CELL: list[Message] = [CALL, Reply(1, 1, True, {"hits": []}), Reply(1, 2, False, "no"), Cancel(1, "gone")]
ON_CONTROL: list[Message] = [
    Hello(VERSION),
    Ready(1, True),
    Exited(1, -9, 0.25, 1 << 20),
    Ready(2, True),
    Failed("import", "no module", "", ""),
]
TALKS = [OUT_OF_A_CELL, INTO_A_CELL, ON_CONTROL, [*OUT_OF_A_CELL[:2], Error(1, "exception", "ValueError", {})]]

wild_keys: st.SearchStrategy[Any] = st.text(max_size=4) | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=4)
wild_values: st.SearchStrategy[Any] = st.recursive(
    scalars | st.binary(max_size=20) | st.just(float("nan")),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(wild_keys, inner, max_size=6),
    max_leaves=12,
)


def obeys(make: Callable[[], Link], data: bytes, cuts: list[int]) -> list[WireEvent]:
    """Feed `data` in one read and in pieces: the same events, of the right types, and nothing after a violation."""
    whole = make().receive(data)
    link = make()
    pieces = pairwise([0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)])
    events = [event for start, end in pieces for event in link.receive(data[start:end])]
    assert repr(events) == repr(whole)  # not ==: a NaN is not itself
    allowed = (Violation, *(shape[0] for shape in SHAPES.values()))
    assert all(isinstance(event, allowed) for event in events)
    assert not any(isinstance(event, Violation) for event in events[:-1])
    if events and isinstance(events[-1], Violation):
        assert len(str(events[-1])) < 400
        assert link.receive(stream(*OUT_OF_A_CELL)) == []
    return events


links = st.sampled_from(LINKS)
cut_lists = st.lists(st.integers(0, 5000), max_size=6)


@fuzzed
@given(json_values)
def test_any_json_value_crosses_and_comes_back_the_same(value: Any) -> None:
    link = SupervisorLink(AMPLE)
    cell = CellLink(AMPLE)
    call = CALL._replace(arguments={"value": value})
    assert cell.receive(b"".join(link.call(*call[1:]))) == [call]
    asked = Request(1, 1, "memory.store", {"value": value})
    assert link.receive(b"".join(cell.send(asked))) == [asked]
    reply = Reply(1, 1, True, value)
    (received,) = cell.receive(b"".join(link.send(reply)))
    assert repr(received) == repr(reply)  # 1, 1.0 and True are equal and not the same
    answer = Result(1, {"output": value})
    (received,) = link.receive(b"".join(cell.send(answer)))
    assert repr(received) == repr(answer)


@fuzzed
@given(links, st.binary(max_size=300), cut_lists)
def test_random_bytes_are_a_violation_or_nothing_yet(make: Callable[[], Link], data: bytes, cuts: list[int]) -> None:
    obeys(make, data, cuts)


@fuzzed
@given(links, st.lists(st.tuples(st.integers(0x90, 0x9F), st.binary(max_size=60)), max_size=4), cut_lists)
def test_random_bodies_of_well_cut_frames_never_raise(
    make: Callable[[], Link], bodies: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    obeys(make, b"".join(HEADER.pack(len(rest) + 1) + bytes([first]) + rest for first, rest in bodies), cuts)


@fuzzed
@given(links, st.sampled_from([*SHAPES, 0, 99]) | wild_values, st.lists(wild_values, max_size=8), cut_lists)
def test_frames_of_random_fields_never_raise(
    make: Callable[[], Link], kind: object, rest: list[object], cuts: list[int]
) -> None:
    body = msgpack.packb([kind, *rest])
    obeys(make, HEADER.pack(len(body)) + body, cuts)


@fuzzed
@given(links, st.sampled_from(sorted(SHAPES)), st.data(), cut_lists)
def test_messages_with_one_field_replaced_never_raise(
    make: Callable[[], Link], kind: int, data: st.DataObject, cuts: list[int]
) -> None:
    messages = [message for talk in TALKS for message in talk]
    fields = list(to_fields(data.draw(st.sampled_from(messages))))
    fields[data.draw(st.integers(0, len(fields) - 1))] = data.draw(st.just(kind) | wild_values)
    body = msgpack.packb(fields)
    obeys(make, HEADER.pack(len(body)) + body, cuts)


@fuzzed
@given(links, st.sampled_from(TALKS), st.data(), cut_lists)
def test_valid_frames_with_bytes_flipped_never_raise(
    make: Callable[[], Link], talk: list[Message], data: st.DataObject, cuts: list[int]
) -> None:
    mutated = bytearray(stream(*talk))
    flips = st.tuples(st.integers(0, len(mutated) - 1), st.integers(1, 255))
    for at, mask in data.draw(st.lists(flips, min_size=1, max_size=4)):
        mutated[at] ^= mask
    obeys(make, bytes(mutated), cuts)


@fuzzed
@given(links, st.sampled_from(TALKS), st.data(), cut_lists)
def test_valid_streams_with_bytes_lost_or_inserted_never_raise(
    make: Callable[[], Link], talk: list[Message], data: st.DataObject, cuts: list[int]
) -> None:
    whole = stream(*talk)
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    obeys(make, whole[:start] + whole[end:], cuts)
    obeys(make, whole[:end], cuts)
    obeys(make, whole[:start] + data.draw(st.binary(max_size=8)) + whole[start:], cuts)


@fuzzed
@given(links, st.lists(st.sampled_from([message for talk in TALKS for message in talk]), max_size=12), cut_lists)
def test_valid_frames_duplicated_dropped_and_reordered_never_raise(
    make: Callable[[], Link], messages: list[Message], cuts: list[int]
) -> None:
    events = obeys(make, stream(*messages), cuts)
    given_out = [event for event in events if not isinstance(event, Violation)]
    remaining = iter(messages)
    assert all(event in remaining for event in given_out)  # in the order sent, and nothing that was not sent
