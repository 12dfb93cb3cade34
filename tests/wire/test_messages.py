"""The table of messages: each crosses, and each field of each takes its own types and nothing else."""

from itertools import chain, filterfalse
from typing import NamedTuple, get_args, get_origin, get_type_hints

import pytest

from toolcell.wire.frames import Field, Violation, WireLimits, decode, encode
from toolcell.wire.messages import (
    KIND_OF,
    SHAPES,
    BindPaths,
    BindSession,
    Call,
    Cancel,
    CellFailed,
    CellMade,
    CellsRefused,
    Error,
    Exited,
    Failed,
    Heeds,
    Hello,
    Load,
    Log,
    MakeCell,
    Message,
    Output,
    PathsBound,
    Prepare,
    Progress,
    Ready,
    Recycle,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
    Started,
    from_fields,
    to_fields,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left_of_the_module")

MESSAGES: list[Message] = [
    Call(1, "call-1", "read", {"grants": ["read"]}, {"path": "a"}),
    Cancel(1, "the caller has gone"),
    Reply(1, 1, True, {"hits": []}),
    Result(1, {"output": None}),
    Error(1, "exception", "ValueError: no", {"traceback": ""}),
    Progress(1, "half", 0.5),
    Log(1, "info", "hello", {"n": 1}),
    Request(1, 1, "memory.search", {"query": "q"}),
    Output(1, 2, 0, b"printed"),
    Heeds(1),
    SpanStart(1, 2, 1, "parse", 2**60, {"rows": 3}),
    SpanEnd(1, 2, 2**60, "ValueError"),
    Hello(1),
    Failed("seccomp", "no", "seccomp", "Boot another kernel."),
    Ready(1, True),
    Exited(1, -9, 0.5, 1024),
    Load(
        [{"name": "read"}], {"HOME": "/tmp"}, "/tmp", False, True, False, 1.5, 9, 9, "/srv/a", ["/srv/a"], [".git"], {}
    ),
    Recycle(1, account=False),
    BindSession([["/srv/a", True, True]], "/srv/a", ["/srv/a"], [".git"], {"agent_id": "agent"}),
    Prepare({"identity": "root"}, ["proc"], None, ["/usr"]),
    MakeCell(1, {"grants": ["read"]}, ["root", 7, 7, 0], [], ["pydantic"], True, True, [[0, 0]]),
    BindPaths(1, [[0, 0]]),
    Started({"identity": "root"}, {"protocol": "4"}),
    CellsRefused("probe", "no", "seccomp", "Boot another kernel."),
    CellMade(1, 4711),
    PathsBound(1),
    CellFailed(1, "fork", "no", "", "Try again."),
]
VALUES: list[Field] = [None, True, 1, 1.5, "text", b"bytes", [], {}]
EVERYTHING = {type(value) for value in VALUES}


class Case(NamedTuple):
    message: Message
    place: int
    value: Field


def fields_of(message: Message) -> list[Field]:
    """The frame of a message, as the other side decodes it."""
    fields = decode(b"".join(encode(to_fields(message), WireLimits()))[4:], WireLimits())
    assert isinstance(fields, list)
    return fields


def allowed_by_hint(hint: object) -> set[type]:
    """The types of decoded values that a field's annotation means."""
    if hint == Field or (arguments := set(get_args(hint))) == set(get_args(Field)):
        return EVERYTHING
    if hint is float:
        return {int, float}
    if get_origin(hint) in (list, dict):
        return {list if get_origin(hint) is list else dict}
    if arguments:
        return set[type]().union(*(allowed_by_hint(one) for one in arguments))
    assert isinstance(hint, type)
    return {hint}


def with_field(case: Case) -> list[Field]:
    fields = fields_of(case.message)
    fields[case.place + 1] = case.value
    return fields


def cases_of(message: Message) -> list[Case]:
    """Each field of the message with each value."""
    return [Case(message, index, value) for index in range(len(message)) for value in VALUES]


def fits(case: Case) -> bool:
    _cls, types = SHAPES[KIND_OF[type(case.message)]]
    return type(case.value) in types[case.place]


def test_the_table_names_every_message_once() -> None:
    assert [shape[0] for shape in SHAPES.values()] == [type(message) for message in MESSAGES]
    assert set(KIND_OF) == set(get_args(Message))
    assert {KIND_OF[shape[0]]: shape for shape in SHAPES.values()} == SHAPES


def test_kinds_tell_the_direction() -> None:
    directions = {cls: min(kind // 16, 2) for cls, kind in KIND_OF.items()}
    assert {cls for cls, direction in directions.items() if direction == 0} == {Call, Cancel, Reply}
    assert {cls for cls, direction in directions.items() if direction == 1} == {
        Result,
        Error,
        Progress,
        Log,
        Request,
        Output,
        Heeds,
        SpanStart,
        SpanEnd,
    }


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_the_table_says_what_the_annotations_say(message: Message) -> None:
    _cls, types = SHAPES[KIND_OF[type(message)]]
    assert [set(one) for one in types] == [allowed_by_hint(hint) for hint in get_type_hints(type(message)).values()]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_crosses(message: Message) -> None:
    received = from_fields(fields_of(message))
    assert received == message
    assert type(received) is type(message)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_field_takes_each_of_its_types(message: Message) -> None:
    for case in filter(fits, cases_of(message)):
        received = from_fields(with_field(case))
        assert isinstance(received, type(message)), case
        assert received[case.place] == case.value, case


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_field_of_another_type_is_a_violation_that_names_it(message: Message) -> None:
    for case in filterfalse(fits, cases_of(message)):
        violation = from_fields(with_field(case))
        assert isinstance(violation, Violation), case
        assert violation.reason == "malformed message"
        name = f"{type(message).__name__}.{message._fields[case.place]}"
        assert violation.detail == f"{name} is of type {type(case.value).__name__}"


def test_a_bool_is_no_int_and_no_number() -> None:
    for case in chain.from_iterable(map(cases_of, MESSAGES)):
        if case.value is True and type(case.message[case.place]) in (int, float):
            assert not fits(case), case
            assert isinstance(from_fields(with_field(case)), Violation)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_too_few_or_too_many_fields_are_a_violation(message: Message) -> None:
    fields = fields_of(message)
    for count in range(1, 16):
        if count != len(fields):
            violation = from_fields((fields + [1] * 16)[:count])
            assert isinstance(violation, Violation), count
            assert violation.reason == "malformed message"


NO_KIND: list[Field] = [2**63, -(2**63), True, False, None, 1.0, 16.0, "1", "", b"\x01", [], [1], {}, {"kind": 1}]


@pytest.mark.parametrize("number", [number for number in (*range(-2, 64), 127, 255) if number not in SHAPES])
def test_a_number_that_is_no_kind_is_a_violation(number: int) -> None:
    assert from_fields([number, 1, {}]) == Violation("unknown message", f"kind {number}")


@pytest.mark.parametrize("kind", NO_KIND, ids=repr)
def test_an_unknown_kind_is_a_violation(kind: Field) -> None:
    for fields in ([kind], [kind, 1, {}]):
        violation = from_fields(fields)
        assert isinstance(violation, Violation)
        assert violation.reason == "unknown message"


def test_an_empty_frame_is_a_violation() -> None:
    assert from_fields([]) == Violation("unknown message", "a NoneType as kind")


HUGE: list[Field] = ["x" * 1_000_000, b"\x00" * 1_000_000, list[Field]([None]) * 1_000_000]


@pytest.mark.parametrize("kind", HUGE, ids=["str", "bytes", "list"])
def test_a_huge_kind_is_not_repeated_in_the_violation(kind: Field) -> None:
    violation = from_fields([kind])
    assert isinstance(violation, Violation)
    assert violation.detail == f"a {type(kind).__name__} as kind"
