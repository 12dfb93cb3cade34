"""The state machines: two of them back to back, every conversation cut at every byte, and each rule broken once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgpack
import pytest

from toolcell.wire.frames import (
    HEADER,
    REPLY_BYTES,
    REQUEST_BYTES,
    Buffer,
    Field,
    FrameDecoder,
    TooLarge,
    Unpackable,
    Violation,
    WireLimits,
    encode,
    packed,
)
from toolcell.wire.messages import (
    OUTPUT_BYTES,
    REASONS,
    VERSION,
    Call,
    Cancel,
    Error,
    Exited,
    Failed,
    Heeds,
    Hello,
    Load,
    Log,
    Message,
    Output,
    Progress,
    Ready,
    Recycle,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
    from_fields,
    to_fields,
)
from toolcell.wire.protocol import (
    CallLimits,
    CellLink,
    ControlLink,
    LocalProtocolError,
    SupervisorLink,
    WireEvent,
    recycle,
    result_fits,
)
from toolcell.wire.sequence import Stage

pytestmark = pytest.mark.usefixtures("nothing_is_left_of_the_module")

LOAD = Load([{"name": "read"}], {}, "/tmp", False, True, False, 1.0, 1, 1, "/tmp", [], [], {})

LIMITS = WireLimits()
Receive = Callable[[bytes], list[WireEvent]]
Spoken = Result | Error | Progress | Log | Request | Heeds | SpanStart | SpanEnd


def stream(*messages: Message) -> bytes:
    return b"".join(buffer for message in messages for buffer in encode(to_fields(message), LIMITS))


def name_of(message: Message) -> str:
    return type(message).__name__


def call(seq: int = 1) -> Call:
    return Call(seq, f"call-{seq}", "read", {"grants": ["read"]}, {"path": "notes.txt"})


def send(link: SupervisorLink, message: Call | Reply | Cancel) -> list[Buffer]:
    """Have the machine say this; a call has the number that is due."""
    if not isinstance(message, Call):
        return link.send(message)
    assert message.seq == link.seq + 1
    return link.call(*message[1:])


def progress(seq: int = 1) -> Progress:
    return Progress(seq, "half", 0.5)


def begun(seq: int = 1) -> SpanStart:
    return SpanStart(seq, 1, 0, "parse", 2**60, {"rows": 3})


def over(seq: int = 1) -> SpanEnd:
    return SpanEnd(seq, 1, 2**60, "")


def log(seq: int = 1) -> Log:
    return Log(seq, "info", "hello", {})


def request(number: int = 1, seq: int = 1) -> Request:
    return Request(seq, number, "memory.search", {"query": "q"})


def result(seq: int = 1) -> Result:
    return Result(seq, {"output": "done"})


def error(seq: int = 1) -> Error:
    return Error(seq, "exception", "ValueError: no", {})


def called(seq: int = 1, *, kept: bool = False, call_limits: CallLimits | None = None) -> SupervisorLink:
    """A supervisor's machine with call number `seq` running and all before it over."""
    link = SupervisorLink(LIMITS, call_limits, kept=kept)
    for number in range(1, seq + 1):
        link.next_kept_call() if kept else link.next_call()
        send(link, call(number))
        if number < seq:
            assert link.receive(stream(result(number))) == [result(number)]
    return link


def ended(*, kept: bool = False) -> SupervisorLink:
    link = called(kept=kept)
    assert link.receive(stream(result())) == [result()]
    return link


def working() -> CellLink:
    link = CellLink(LIMITS)
    assert link.receive(stream(call())) == [call()]
    return link


def greeted() -> ControlLink:
    link = ControlLink(LIMITS)
    hello = Hello(VERSION)
    assert link.receive(stream(hello)) == [hello]
    return link


def only_violation(events: list[WireEvent]) -> Violation:
    (event,) = events
    assert isinstance(event, Violation), event
    return event


def refuses(link: SupervisorLink | CellLink | ControlLink, *messages: Message) -> Violation:
    """The violation that the last of `messages` is; after it the machine must be silent for good."""
    *before, last = messages
    assert link.receive(stream(*before)) == before
    violation = only_violation(link.receive(stream(last) + stream(call(), progress(), result(), Ready(1, True))))
    for later in (stream(progress()), stream(result()), stream(call(2)), stream(Ready(1, True)), b"\x00", b""):
        assert link.receive(later) == []
    return violation


# -- back to back -----------------------------------------------------------------------------------------------------

NEXT, NEXT_KEPT = "the call is over", "the call is over, its process stays"


@dataclass(frozen=True)
class Conversation:
    steps: tuple[Message | str, ...]
    kept: bool = False
    call_limits: CallLimits = field(default_factory=CallLimits)

    def messages(self) -> Iterable[Message]:
        return (step for step in self.steps if not isinstance(step, str))


CONVERSATIONS = {
    "a call and its result": Conversation((call(), result())),
    "a call that fails": Conversation((call(), error())),
    "one that talks": Conversation((call(), progress(), log(), Progress(1, "", None), Progress(1, "", 1), result())),
    "a handle request": Conversation((call(), request(), Reply(1, 1, True, ["hit"]), result())),
    "a refusal": Conversation((call(), request(), Reply(1, 1, False, {"kind": "permission_denied"}), error())),
    "replies out of order": Conversation(
        (
            call(),
            request(1),
            request(2),
            Reply(1, 2, True, None),
            request(5),
            Reply(1, 5, True, 1),
            Reply(1, 1, True, 2),
            result(),
        )
    ),
    "a result without the reply": Conversation((call(), request(), result())),
    "a cancellation": Conversation((call(), Heeds(1), Cancel(1, "the caller has gone"), error())),
    "two processes": Conversation((call(), request(), result(), NEXT, call(2), request(1, 2), result(2))),
    "one kept process": Conversation(
        (call(), request(), result(), NEXT_KEPT, call(2), request(1, 2), Reply(2, 1, True, b"\x00"), result(2)),
        kept=True,
    ),
    "a long text": Conversation((call(), Result(1, {"output": "é" * 300}))),
    "as much as a call may say": Conversation(
        (call(), log(), log(), result()), call_limits=CallLimits(frames=3, in_flight=1)
    ),
    "one request at a time": Conversation(
        (call(), request(1), Reply(1, 1, True, 1), request(2), Reply(1, 2, True, 2), result()),
        call_limits=CallLimits(in_flight=1),
    ),
}


class LinkPair:
    """A supervisor's machine and a cell's, joined; `cut` is the byte of the whole talk at which a read ends early."""

    def __init__(self, conversation: Conversation, *, cut: int = -1, single_bytes: bool = False) -> None:
        self.supervisor = SupervisorLink(LIMITS, conversation.call_limits, kept=conversation.kept)
        self.cell = CellLink(LIMITS)
        self.cut = cut
        self.single_bytes = single_bytes
        self.sent = 0

    def play(self, steps: Iterable[Message | str]) -> None:
        for step in steps:
            if step == NEXT:
                self.supervisor.next_call()
                self.cell = CellLink(LIMITS)  # the next process
            elif step == NEXT_KEPT:
                self.supervisor.next_kept_call()
            elif isinstance(step, (Call, Reply, Cancel)):
                assert self.carry(send(self.supervisor, step), self.cell.receive) == [step]
                if isinstance(step, Reply):
                    self.supervisor.written(step.request)
            elif isinstance(step, (Result, Error, Progress, Log, Request, Heeds, SpanStart, SpanEnd)):
                assert self.carry(self.cell.send(step), self.supervisor.receive) == [step]
                assert not self.supervisor.partial
            assert self.supervisor.broken is None

    def carry(self, buffers: list[Buffer], receive: Receive) -> list[WireEvent]:
        data = b"".join(buffers)
        if self.single_bytes:
            return [event for at in range(len(data)) for event in receive(data[at : at + 1])]
        cut = min(max(self.cut - self.sent, 0), len(data))
        self.sent += len(data)
        events = receive(data[:cut])
        assert events == [] or cut == len(data)
        return events + receive(data[cut:])


@pytest.fixture(params=CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def conversation(request: pytest.FixtureRequest) -> Conversation:
    found = request.param
    assert isinstance(found, Conversation)
    return found


def test_a_conversation_comes_across_cut_at_every_byte(conversation: Conversation) -> None:
    for cut in range(len(stream(*conversation.messages()))):
        LinkPair(conversation, cut=cut).play(conversation.steps)


def test_a_conversation_comes_across_byte_by_byte(conversation: Conversation) -> None:
    pair = LinkPair(conversation, single_bytes=True)
    pair.play(conversation.steps)
    assert (
        pair.supervisor.seq
        == pair.cell.seq
        == max(message.seq for message in conversation.messages() if isinstance(message, Call))
    )


def test_all_that_a_cell_says_in_one_call_may_come_in_one_read() -> None:
    said: list[Message] = [log(), request(1), progress(), request(2), result()]
    assert called().receive(stream(*said)) == said


def test_all_that_a_cell_says_may_be_cut_anywhere_across_its_frames() -> None:
    said: list[Message] = [log(), request(1), progress(), request(2), result()]
    data = stream(*said)
    for cut in range(len(data) + 1):
        link = called()
        assert link.receive(data[:cut]) + link.receive(data[cut:]) == said


def test_a_call_its_cancellation_and_the_next_call_may_come_in_one_read() -> None:
    cell = CellLink(LIMITS)
    said: list[Message] = [call(), Cancel(1, "gone")]
    assert cell.receive(stream(*said)) == said
    assert cell.seq == 1


def test_the_whole_frame_of_a_call_is_taken_in_one_step() -> None:
    cell = CellLink(LIMITS)
    assert cell.called(stream(call())) == call()
    assert (cell.state, cell.seq) == (Stage.CALLED, 1)
    assert cell.called(stream(call(2))) is None  # not while one runs: that is for `receive` to refuse
    cell.send(result())
    assert cell.called(stream(call(2))) == call(2)


@pytest.mark.parametrize(
    "data", [stream(Cancel(1, "")), stream(call(), call(2)), stream(call())[:-1], b"", b"\0\0\0\2\x96\1"]
)
def test_what_is_not_the_whole_frame_of_a_call_is_not_taken_for_one(data: bytes) -> None:
    cell = CellLink(LIMITS)
    assert cell.called(data) is None
    assert (cell.state, cell.seq) == (Stage.IDLE, 0)


def test_the_rest_of_a_frame_is_not_taken_for_a_call() -> None:
    inner = stream(call(7))
    outer = call()._replace(arguments={"path": inner})
    data = b"".join(encode(to_fields(outer), LIMITS))
    start = data.index(inner)
    cell = CellLink(LIMITS)
    assert cell.receive(data[:start]) == []
    assert cell.called(inner) is None
    assert cell.receive(data[start:]) == [outer]


def test_the_state_goes_from_idle_to_called_to_done_and_back() -> None:
    link = SupervisorLink(LIMITS)
    cell = CellLink(LIMITS)
    assert (link.state, cell.state, link.seq) == (Stage.IDLE, Stage.IDLE, 0)
    cell.receive(b"".join(send(link, call())))
    assert (link.state, cell.state, link.seq) == (Stage.CALLED, Stage.CALLED, 1)
    link.receive(b"".join(cell.send(result())))
    assert (link.state, cell.state, link.seq) == (Stage.DONE, Stage.DONE, 1)
    link.next_call()
    assert (link.state, link.seq) == (Stage.IDLE, 1)


def test_the_repr_names_state_call_and_requests() -> None:
    link = called()
    link.receive(stream(request(1), request(2)))
    assert repr(link) == "<SupervisorLink called · call 1 · 2 requests pending>"
    assert repr(working()) == "<CellLink called · call 1>"


# -- rule 1: a cell speaks only when called ---------------------------------------------------------------------------

EVERY_WORD: list[Spoken] = [progress(), log(), begun(), over(), request(), result(), error()]
INTO_A_CELL: list[Message] = [call(), Reply(1, 1, True, None), Cancel(1, "")]
ON_CONTROL: list[Message] = [
    Hello(VERSION),
    Failed("", "", "", ""),
    Ready(1, True),
    Exited(1, 0, 0, 0),
    LOAD,
    Recycle(1, account=False),
]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("seq", [0, 1, 2, -1])
@pytest.mark.parametrize("word", EVERY_WORD, ids=name_of)
def test_a_frame_before_the_first_call_is_a_violation(word: Spoken, seq: int, kept: bool) -> None:
    link = SupervisorLink(LIMITS, kept=kept)
    assert refuses(link, word._replace(seq=seq)).reason == "frame out of place"
    assert link.stale == 0


@pytest.mark.parametrize("word", EVERY_WORD, ids=name_of)
def test_a_frame_before_the_next_call_is_a_violation(word: Spoken) -> None:
    for seq in (1, 2):
        link = ended()
        link.next_call()
        assert refuses(link, word._replace(seq=seq)).reason == "frame out of place"


@pytest.mark.parametrize("seq", [-1, 0, 1, 3, 2**63])
@pytest.mark.parametrize("word", EVERY_WORD, ids=name_of)
def test_a_frame_of_another_call_number_is_a_violation(word: Spoken, seq: int) -> None:
    assert refuses(called(2), word._replace(seq=seq)).reason == "wrong call number"


@pytest.mark.parametrize("seq", [-1, 0, 3])
@pytest.mark.parametrize("word", EVERY_WORD, ids=name_of)
def test_a_kept_process_may_not_speak_of_a_call_that_never_was(word: Spoken, seq: int) -> None:
    link = called(2, kept=True)
    assert refuses(link, word._replace(seq=seq)).reason == "wrong call number"
    assert link.stale == 0


@pytest.mark.parametrize("message", [*INTO_A_CELL, *ON_CONTROL], ids=name_of)
@pytest.mark.parametrize("kept", [False, True])
def test_what_is_not_a_call_process_to_say_is_a_violation(message: Message, kept: bool) -> None:
    for link in (SupervisorLink(LIMITS, kept=kept), called(kept=kept), ended(kept=kept), called(2, kept=kept)):
        assert refuses(link, message).reason in {"frame out of place", "second result"}


@pytest.mark.parametrize("late", [progress(), log(), begun(), over(), request(), Heeds(1)], ids=name_of)
def test_the_late_frames_of_a_kept_process_are_dropped_and_counted(late: Spoken) -> None:
    link = ended(kept=True)
    assert link.receive(stream(late)) == []  # its call has ended
    link.next_kept_call()
    assert link.receive(stream(late)) == []  # between the calls
    send(link, call(2))
    assert link.receive(stream(late, progress(2), late)) == [progress(2)]  # during the next one
    assert link.stale == 4
    assert link.receive(stream(result(2))) == [result(2)]
    assert link.broken is None


def test_a_late_request_of_a_kept_process_does_not_use_up_numbers_or_places() -> None:
    link = called(2, kept=True, call_limits=CallLimits(in_flight=1))
    assert link.receive(stream(request(7, 1), request(8, 1), request(1, 2))) == [request(1, 2)]
    link.send(Reply(2, 1, True, None))
    with pytest.raises(LocalProtocolError):
        link.send(Reply(2, 7, True, None))


@pytest.mark.parametrize("terminal", [result(), error()], ids=["Result", "Error"])
def test_a_late_result_of_a_kept_process_is_a_violation(terminal: Spoken) -> None:
    done, between = ended(kept=True), ended(kept=True)
    between.next_kept_call()
    for link in (done, between, called(2, kept=True)):
        assert refuses(link, terminal).reason == "second result"


def test_too_many_late_frames_are_a_violation() -> None:
    link = called(3, kept=True, call_limits=CallLimits(frames=3))
    assert link.receive(stream(log(1), log(2), log(1))) == []
    assert link.stale == 3
    assert refuses(link, log(2)).reason == "too many frames"


# -- rule 2: the first terminal frame wins ----------------------------------------------------------------------------


@pytest.mark.parametrize("first", [result(), error()], ids=["Result", "Error"])
@pytest.mark.parametrize("second", [result(), error()], ids=["Result", "Error"])
def test_a_second_result_is_a_violation(first: Spoken, second: Spoken) -> None:
    assert refuses(called(), first, second).reason == "second result"


@pytest.mark.parametrize("late", [progress(), log(), begun(), over(), request(), Heeds(1)], ids=name_of)
def test_a_frame_after_the_end_is_a_violation(late: Spoken) -> None:
    assert refuses(called(), result(), late).reason == "frame out of place"


def test_a_result_and_its_double_in_one_read_are_the_result_and_a_violation() -> None:
    events = called().receive(stream(result(), result()))
    assert events[0] == result()
    assert only_violation(events[1:]).reason == "second result"


def test_half_a_frame_after_the_end_shows_as_partial() -> None:
    link = called()
    assert link.receive(stream(result()) + b"\x00") == [result()]
    assert link.partial


# -- rule 3: requests and frames are bounded --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 0, -1, -(2**63)])
def test_a_request_number_is_used_once_and_in_order(number: int) -> None:
    assert refuses(called(), request(1), request(2), request(number)).reason == "request number"


def test_a_request_number_stays_used_after_its_reply() -> None:
    link = called()
    link.receive(stream(request(1)))
    link.send(Reply(1, 1, True, None))
    assert refuses(link, request(1)).reason == "request number"


@pytest.mark.parametrize("number", [0, -1])
def test_the_first_request_number_is_positive(number: int) -> None:
    assert refuses(called(), request(number)).reason == "request number"


def test_request_numbers_begin_anew_with_each_call() -> None:
    for kept in (False, True):
        link = called(kept=kept)
        link.receive(stream(request(9), result()))
        link.next_kept_call() if kept else link.next_call()
        send(link, call(2))
        assert link.receive(stream(request(1, 2))) == [request(1, 2)]
        with pytest.raises(LocalProtocolError, match="Request 9 is not waiting"):
            link.send(Reply(2, 9, True, None))


def test_too_many_requests_waiting_at_once_are_a_violation() -> None:
    link = called(call_limits=CallLimits(in_flight=2))
    assert refuses(link, request(1), request(2), request(3)).reason == "too many requests"


def test_256_requests_may_wait_at_once_unless_another_number_is_given() -> None:
    link = called()
    asked = [request(number) for number in range(1, 257)]
    assert link.receive(stream(*asked)) == asked
    assert refuses(link, request(257)).reason == "too many requests"


def test_a_reply_makes_room_for_another_request_when_it_is_written() -> None:
    for written in (False, True):
        link = called(call_limits=CallLimits(in_flight=2))
        assert link.receive(stream(request(1), request(2))) == [request(1), request(2)]
        link.send(Reply(1, 1, True, None))
        if written:
            link.written(1)
        assert refuses(link, *[request(3)] * written, request(4)).reason == "too many requests"


# -- what is said before the result is held to lower limits -----------------------------------------------------------

MANY: dict[str, dict[str, Field]] = {
    "bytes": {"body": b"x" * (REQUEST_BYTES + 1)},
    "elements": {"a": [0 for _ in range(10_001)]},
    "containers": {"a": [[] for _ in range(1_001)]},
}


@pytest.mark.parametrize("given", MANY.values(), ids=list(MANY))
def test_a_request_that_is_too_large_is_refused_before_it_is_sent(given: dict[str, Field]) -> None:
    cell = working()
    with pytest.raises(TooLarge):
        cell.send(Request(1, 1, "http.request", given))
    assert cell.state is Stage.CALLED
    assert cell.send(Request(1, 1, "http.request", {"body": b"x" * (REQUEST_BYTES - 100)}))


@pytest.mark.parametrize("given", MANY.values(), ids=list(MANY))
def test_a_request_that_is_too_large_is_a_violation(given: dict[str, Field]) -> None:
    assert refuses(called(), Request(1, 1, "http.request", given)).reason in (
        "request too large",
        "too many elements",
        "too many containers",
    )


def test_a_request_that_is_too_large_is_a_violation_when_its_head_has_come() -> None:
    assert only_violation(called().receive(HEADER.pack(REQUEST_BYTES + 1) + b"\x95\x14")).reason == "request too large"


def test_a_kind_in_a_longer_spelling_is_held_to_the_same_limits() -> None:
    body = b"\x95\xcc\x14" + b"".join(map(msgpack.packb, [1, 1, "http.request", {"a": [0] * 10_001}]))
    assert only_violation(called().receive(HEADER.pack(len(body)) + body)).reason == "too many elements"


def test_a_result_may_be_larger_than_a_request() -> None:
    large = Result(1, {"output": ["x" * REQUEST_BYTES, *[[]] * 10_001]})
    assert called().receive(stream(large)) == [large]


def test_a_reply_that_is_too_large_is_refused_and_its_request_waits_still() -> None:
    link = called()
    link.receive(stream(request(1)))
    with pytest.raises(TooLarge):
        link.send(Reply(1, 1, True, b"x" * (REPLY_BYTES + 1)))
    assert link.send(Reply(1, 1, True, b"x" * (REPLY_BYTES - 100)))


def test_too_many_frames_in_one_call_are_a_violation() -> None:
    link = called(call_limits=CallLimits(frames=3))
    assert refuses(link, log(), progress(), request(), log()).reason == "too many frames"


def test_the_result_counts_as_a_frame() -> None:
    assert refuses(called(call_limits=CallLimits(frames=1)), log(), result()).reason == "too many frames"


@pytest.mark.parametrize(
    ("payload", "fits"),
    [
        ({"output": "x" * 900}, True),
        ({"output": "x" * 1_200}, False),
        ({"output": "done", "display": "x" * 1_500}, True),
        ({"output": "done", "display": "é" * 700}, True),
        ({"output": "x" * 1_200, "display": "x" * 100}, False),
        ({"output": "done", "display": ["x" * 1_500]}, False),
        ({"output": "done", "other": "x" * 1_500}, False),
    ],
)
def test_of_a_result_all_but_the_text_for_people_counts(payload: dict[str, object], fits: bool) -> None:
    limits = WireLimits.for_results(1_000)
    link = SupervisorLink(limits)
    send(link, call())
    answer = Result(1, payload)  # type: ignore[arg-type]
    (event,) = link.receive(stream(answer))
    assert (event == answer) is fits and result_fits(answer.payload, 1_000) is fits
    assert fits or (isinstance(event, Violation) and event.reason == "result too large")


def test_frames_are_counted_for_each_call_anew() -> None:
    link = called(call_limits=CallLimits(frames=2))
    link.receive(stream(log(), result()))
    link.next_call()
    send(link, call(2))
    assert link.receive(stream(log(2), result(2))) == [log(2), result(2)]


@pytest.mark.parametrize("report", [log(), progress(), begun(), over()], ids=name_of)
def test_too_many_bytes_of_reports_are_a_violation(report: Spoken) -> None:
    size = len(stream(report))
    link = called(call_limits=CallLimits(report_bytes=3 * size))
    assert refuses(link, report, report, report, report).reason == "too many bytes"


def test_requests_and_the_result_do_not_count_as_report_bytes() -> None:
    link = called(call_limits=CallLimits(report_bytes=len(stream(log()))))
    said: list[Message] = [log(), request(1), request(2), result()]
    assert link.receive(stream(*said)) == said


def test_report_bytes_are_those_that_came_however_they_came() -> None:
    data = stream(log()) * 3
    for cut in range(len(data) + 1):
        link = called(call_limits=CallLimits(report_bytes=len(data)))
        assert link.receive(data[:cut]) + link.receive(data[cut:]) == [log()] * 3
        only_violation(link.receive(stream(log())))


def test_report_bytes_are_counted_for_each_call_anew() -> None:
    link = called(call_limits=CallLimits(report_bytes=len(stream(log()))))
    link.receive(stream(log(), result()))
    link.next_call()
    send(link, call(2))
    assert link.receive(stream(log(2), result(2))) == [log(2), result(2)]


def test_a_report_that_our_own_encoding_would_make_longer_is_no_error_of_ours() -> None:
    link = SupervisorLink(WireLimits(frame_bytes=2_000))
    send(link, call())
    singles = b"\xca\x3d\xcc\xcc\xcd" * 300  # 32-bit floats: 5 bytes each; we would write 9
    body = b"\x95\x13\x01\xa0\xa0\x81\xa1k\xdc\x01\x2c" + singles
    (event,) = link.receive(HEADER.pack(len(body)) + body)
    assert isinstance(event, Log)


def test_a_million_frames_end_at_the_limit() -> None:
    link = called(call_limits=CallLimits(frames=1_000))
    events = link.receive(stream(log()) * 3_000)
    assert len(events) == 1_001
    assert only_violation(events[-1:]).reason == "too many frames"


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_each_reason_of_an_error_is_known(reason: str) -> None:
    message = Error(1, reason, "", {})
    assert called().receive(stream(message)) == [message]


@pytest.mark.parametrize("reason", ["", "Exception", "worker_lost", "timeout", "exception ", "x" * 100_000])
def test_an_error_of_another_reason_is_a_violation(reason: str) -> None:
    violation = refuses(called(), Error(1, reason, "", {}))
    assert violation.reason == "malformed message"
    assert len(violation.detail) < 100


@pytest.mark.parametrize(
    "output",
    [
        Output(1, 0, 0, b"x"),
        Output(1, 3, 0, b"x"),
        Output(1, 1, -1, b"x"),
        Output(1, 1, 2**40 + 1, b"x"),
        Output(1, 2, 0, bytes(OUTPUT_BYTES + 1)),
    ],
    ids=["stream 0", "stream 3", "less than nothing before it", "too much before it", "too long"],
)
def test_an_output_of_no_stream_or_out_of_bounds_is_a_violation(output: Output) -> None:
    assert refuses(called(), output).reason == "malformed message"
    fits = Output(1, 2, 2**40, bytes(OUTPUT_BYTES))
    assert called().receive(stream(fits)) == [fits]


# -- rule 4: the control socket ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [Hello(VERSION), Failed("landlock", "no", "landlock", "")], ids=["Hello", "Failed"])
def test_the_control_socket_opens_with_hello_or_failed(first: Message) -> None:
    data = stream(first)
    for cut in range(len(data) + 1):
        link = ControlLink(LIMITS)
        assert link.receive(data[:cut]) + link.receive(data[cut:]) == [first]


@pytest.mark.parametrize("first", [Ready(1, True), Exited(1, 0, 0.0, 0)], ids=["Ready", "Exited"])
def test_ready_or_exited_before_hello_is_a_violation(first: Message) -> None:
    violation = refuses(ControlLink(LIMITS), first)
    assert violation == Violation("frame out of place", f"{type(first).__name__} before Hello")


def test_ready_exited_and_failed_follow_hello() -> None:
    said: list[Message] = [
        Ready(1, True),
        Exited(1, 0, 0.1, 9),
        Ready(2, True),
        Exited(2, -9, 1, 9),
        Failed("import", "", "", ""),
    ]
    data = stream(*said)
    for cut in range(len(data) + 1):
        link = greeted()
        assert link.receive(data[:cut]) + link.receive(data[cut:]) == said


def test_a_second_hello_is_a_violation() -> None:
    assert refuses(greeted(), Hello(VERSION)).reason == "frame out of place"


@pytest.mark.parametrize("version", [0, VERSION + 1, -1, 2**64 - 1])
def test_a_cell_of_another_version_is_refused(version: int) -> None:
    assert refuses(ControlLink(LIMITS), Hello(version)).reason == "protocol version"


@pytest.mark.parametrize("message", [*INTO_A_CELL, *EVERY_WORD, LOAD, Recycle(1, account=False)], ids=name_of)
def test_no_other_message_may_come_from_the_init(message: Message) -> None:
    assert refuses(ControlLink(LIMITS), message).reason == "frame out of place"
    assert refuses(greeted(), message).reason == "frame out of place"


def test_what_the_supervisor_tells_the_init_is_one_frame() -> None:
    assert b"".join(greeted().send(LOAD)) == stream(LOAD)
    frames = FrameDecoder(LIMITS).feed(recycle(3, account=True) + recycle(70_000, account=False))
    assert [from_fields(frame) for frame in frames if isinstance(frame, list)] == [
        Recycle(3, account=True),
        Recycle(70_000, account=False),
    ]


# -- the cell's end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [*INTO_A_CELL[1:], *EVERY_WORD, *ON_CONTROL], ids=name_of)
def test_a_cell_takes_nothing_before_its_call(message: Message) -> None:
    assert refuses(CellLink(LIMITS), message).reason == "frame out of place"


def test_a_cell_takes_no_second_call_during_its_first() -> None:
    assert refuses(working(), call(2)).reason == "frame out of place"


def test_a_reply_or_cancellation_that_crossed_with_the_result_is_no_violation_and_not_the_next_calls() -> None:
    cell = working()
    cell.send(request())
    cell.send(result())
    crossed: list[Message] = [Cancel(1, "gone"), Reply(1, 1, True, None)]
    assert cell.receive(stream(*crossed)) == []
    assert cell.state is Stage.DONE
    assert cell.receive(stream(*crossed, call(2), Cancel(2, "gone"))) == [call(2), Cancel(2, "gone")]


def test_a_kept_cell_takes_its_next_call_after_its_result() -> None:
    cell = working()
    cell.send(result())
    assert cell.receive(stream(call(2))) == [call(2)]
    assert (cell.seq, cell.state) == (2, Stage.CALLED)
    cell.send(result(2))


def test_arguments_that_were_encoded_before_make_the_same_frame() -> None:
    given = call()
    data = packed(given.arguments)
    assert data is not None
    sent = SupervisorLink(LIMITS).call(*given[1:], data)
    assert sent == SupervisorLink(LIMITS).call(*given[1:])


# -- what our own side may not do -------------------------------------------------------------------------------------


def test_a_second_call_during_the_first_is_our_own_error() -> None:
    link = called()
    with pytest.raises(LocalProtocolError, match="Call cannot be sent while called"):
        send(link, call(2))


@pytest.mark.parametrize("message", [Reply(1, 1, True, None), Cancel(1, "")], ids=["Reply", "Cancel"])
def test_replies_and_cancellations_outside_a_call_are_our_own_error(message: Reply | Cancel) -> None:
    for link in (SupervisorLink(LIMITS), ended(), ended(kept=True)):
        with pytest.raises(LocalProtocolError, match=f"{type(message).__name__} cannot be sent while"):
            link.send(message)


def test_a_call_before_the_last_one_was_put_away_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError, match="Call cannot be sent while done"):
        send(ended(), call(2))


@pytest.mark.parametrize("message", [Reply(1, 1, True, None), Cancel(3, "")], ids=["Reply", "Cancel"])
def test_a_reply_or_cancellation_of_another_call_is_our_own_error(message: Reply | Cancel) -> None:
    with pytest.raises(LocalProtocolError, match=f"Call number 2 is running, not {message.seq}"):
        called(2).send(message)


def test_a_reply_to_no_request_or_a_second_reply_is_our_own_error() -> None:
    link = called()
    with pytest.raises(LocalProtocolError, match="Request 1 is not waiting"):
        link.send(Reply(1, 1, True, None))
    link.receive(stream(request(1)))
    link.send(Reply(1, 1, True, None))
    with pytest.raises(LocalProtocolError, match="Request 1 is not waiting"):
        link.send(Reply(1, 1, True, None))


@pytest.mark.parametrize("word", EVERY_WORD, ids=name_of)
def test_a_cell_that_speaks_before_its_call_or_after_its_result_is_our_own_error(word: Spoken) -> None:
    finished = working()
    finished.send(result())
    for cell in (CellLink(LIMITS), finished):
        with pytest.raises(LocalProtocolError, match=f"{type(word).__name__} cannot be sent while"):
            cell.send(word)


# -- what cannot be sent moves nothing --------------------------------------------------------------------------------

SMALL = WireLimits(frame_bytes=512)
TOO_LONG = "x" * 600


def test_a_call_that_cannot_be_sent_was_never_made() -> None:
    link = SupervisorLink(SMALL)
    with pytest.raises(TooLarge):
        send(link, call()._replace(arguments={"path": TOO_LONG}))
    with pytest.raises(Unpackable):
        send(link, call()._replace(tool="\ud800"))
    assert (link.state, link.seq) == (Stage.IDLE, 0)
    send(link, call())
    assert (link.state, link.seq) == (Stage.CALLED, 1)


def test_a_reply_that_cannot_be_sent_leaves_its_request_waiting() -> None:
    link = SupervisorLink(SMALL)
    send(link, call())
    link.receive(stream(request(1)))
    with pytest.raises(TooLarge):
        link.send(Reply(1, 1, True, TOO_LONG))
    with pytest.raises(Unpackable):
        link.send(Reply(1, 1, True, "\ud800"))
    assert link.send(Reply(1, 1, False, "too large"))


def test_a_cancellation_that_cannot_be_sent_leaves_the_call_running() -> None:
    link = SupervisorLink(SMALL)
    send(link, call())
    with pytest.raises(TooLarge):
        link.send(Cancel(1, TOO_LONG))
    assert link.state is Stage.CALLED


def test_a_result_that_cannot_be_sent_leaves_room_for_the_error_that_says_so() -> None:
    cell = CellLink(SMALL)
    cell.receive(stream(call()))
    with pytest.raises(TooLarge):
        cell.send(Result(1, {"output": TOO_LONG}))
    with pytest.raises(Unpackable):
        cell.send(Result(1, {"output": "\ud800"}))
    told = Error(1, "result", "too large", {})
    assert called().receive(b"".join(cell.send(told))) == [told]
    assert cell.state is Stage.DONE


# -- broken for good --------------------------------------------------------------------------------------------------

GARBAGE = {
    "a length of nothing": HEADER.pack(0),
    "a length without end": b"\xff\xff\xff\xff",
    "text": b"Traceback (most recent call last):\n",
    "no array": HEADER.pack(1) + b"\x80",
    "an empty array": HEADER.pack(1) + b"\x90",
    "an unknown kind": HEADER.pack(2) + b"\x91\x0f",
    "half a value": HEADER.pack(2) + b"\x92\x10",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("make", [called, working, greeted], ids=["supervisor", "cell", "control"])
def test_a_machine_that_saw_a_violation_gives_no_more_events(
    make: Callable[[], SupervisorLink | CellLink | ControlLink], garbage: bytes
) -> None:
    after = stream(progress(), result(), Cancel(1, ""), Ready(1, True))
    for cut in range(1, len(garbage) + 1):
        link = make()
        events = link.receive(garbage[:cut]) + link.receive(garbage[cut:] + after)
        only_violation(events)
        for later in (after, garbage, b"\x00"):
            assert link.receive(later) == []


def test_a_violation_is_kept_and_outlives_the_call() -> None:
    for put_away in (SupervisorLink.next_call, SupervisorLink.next_kept_call):
        link = called()
        violation = only_violation(link.receive(stream(log(2))))
        assert link.broken == violation
        put_away(link)
        assert link.broken == violation
        assert link.receive(stream(log())) == []


def test_events_before_a_violation_in_the_same_read_are_given() -> None:
    events = called().receive(stream(log(), progress()) + HEADER.pack(0) + stream(result()))
    assert events[:2] == [log(), progress()]
    assert only_violation(events[2:]).reason == "frame length"


# -- partial frames and the end of a call -----------------------------------------------------------------------------


def test_partial_is_true_only_within_a_frame() -> None:
    data = stream(log())
    for cut in range(len(data) + 1):
        link = called()
        link.receive(data[:cut])
        assert link.partial is (0 < cut < len(data))
        link.receive(data[cut:])
        assert not link.partial


def test_half_a_frame_does_not_outlive_its_process() -> None:
    link = called()
    link.receive(stream(result()) + stream(log())[:-1])
    assert link.partial
    link.next_call()
    assert not link.partial
    send(link, call(2))
    assert link.receive(stream(result(2))) == [result(2)]


def test_half_a_frame_of_a_kept_process_is_completed_in_the_next_call() -> None:
    data = stream(log())
    for cut in range(1, len(data)):
        link = called(kept=True)
        assert link.receive(stream(result()) + data[:cut]) == [result()]
        link.next_kept_call()
        assert link.partial
        send(link, call(2))
        assert link.receive(data[cut:] + stream(result(2))) == [result(2)]
        assert link.stale == 1


def test_a_call_that_never_answered_can_be_put_away() -> None:
    link = called()
    link.receive(stream(request(1)))
    link.next_call()
    send(link, call(2))
    assert link.receive(stream(result(2))) == [result(2)]
