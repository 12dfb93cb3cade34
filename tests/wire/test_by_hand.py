"""What is packed by hand is what the plain codec packs and reads, and the other way round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.wire.frames import HEADER, FrameDecoder, WireLimits, encode, packed
from toolcell.wire.messages import Call, Exited, Message, Ready, Recycle, Result, from_fields, to_fields
from toolcell.wire.protocol import CALL, exited, flat_answer, ready, recycle, recycled

pytestmark = pytest.mark.trick
LIMITS = WireLimits()
NUMBERS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**31, 2**32 - 1]
WIDE = 2**31
"""From here on, msgpack takes the same width for a number as is taken by hand for each."""


def plain(message: Message) -> bytes:
    """What the plain encoder makes of a message, without its ways around a copy."""
    return b"".join(encode(to_fields(message), LIMITS))


def read(frames: bytes) -> list[object]:
    """What the plain codec reads, and its messages packed by it again."""
    return [from_fields(frame) for frame in FrameDecoder(LIMITS).feed(frames) if isinstance(frame, list)]


@pytest.mark.parametrize("seq", NUMBERS)
@pytest.mark.parametrize("flag", [True, False])
def test_the_plain_codec_reads_what_is_packed_by_hand(seq: int, flag: bool) -> None:
    said = ready(seq, flag) + exited(seq, -11, 0.25, 2**40) + recycle(seq, flag) + exited(seq, 255, 0.0, 0)
    assert read(said) == [Ready(seq, flag), Exited(seq, -11, 0.25, 2**40), Recycle(seq, flag), Exited(seq, 255, 0.0, 0)]


@pytest.mark.parametrize("seq", [number for number in NUMBERS if number >= WIDE])
@pytest.mark.parametrize("flag", [True, False])
def test_what_is_packed_by_hand_is_byte_for_byte_the_plain_encoders_where_numbers_are_as_wide(
    seq: int, flag: bool
) -> None:
    assert ready(seq, flag) == plain(Ready(seq, flag))
    assert recycle(seq, flag) == plain(Recycle(seq, flag))
    assert exited(seq, -(2**31), 0.25, 2**40) == plain(Exited(seq, -(2**31), 0.25, 2**40))


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.booleans()), max_size=5))
def test_what_is_read_by_hand_is_what_either_encoder_has_packed(said: list[tuple[int, bool]]) -> None:
    assert recycled(b"".join(recycle(seq, account) for seq, account in said)) == said
    assert recycled(b"".join(plain(Recycle(seq, account)) for seq, account in said)) == said


def test_a_call_starts_as_the_plain_encoder_has_it_start() -> None:
    assert plain(Call(1, "call-1", "read", {}, {}))[HEADER.size :].startswith(CALL)


arguments = st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers(-9, 2**40) | st.text())


@given(arguments)
def test_arguments_that_are_packed_already_make_the_same_frame(arguments: dict[str, object]) -> None:
    *fields, last = to_fields(Call(1, "call-1", "read", {"remaining_s": 1.0}, arguments))  # type: ignore[arg-type]
    spliced = encode((*fields, None), LIMITS, last=packed(last) or b"")
    assert b"".join(spliced) == b"".join(encode((*fields, last), LIMITS))


flat = st.dictionaries(
    st.text(max_size=40),
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    max_size=15,
)
answers = flat.map(lambda payload: plain(Result(7, payload)))  # type: ignore[arg-type]


def read_plainly(frame: bytes) -> str:
    """What the plain codec reads, as text: 1, 1.0 and True are equal, and NaN is not equal to itself."""
    return repr(read(frame))


@given(st.sampled_from(NUMBERS), flat)
def test_an_answer_of_texts_and_numbers_is_read_in_one_step(seq: int, payload: dict[str, object]) -> None:
    assert repr(flat_answer(plain(Result(seq, payload)), seq)) == repr(payload)  # type: ignore[arg-type]


@given(answers, st.integers(0, 400), st.binary(max_size=3), st.integers(0, 3))
def test_a_frame_that_is_read_in_one_step_is_read_the_same_by_the_plain_decoder(
    frame: bytes, at: int, put_in: bytes, taken: int
) -> None:
    body = frame[HEADER.size :]
    at %= len(body)
    body = body[:at] + put_in + body[at + taken :]
    changed = HEADER.pack(len(body)) + body
    payload = flat_answer(changed, 7)
    assert payload is None or read_plainly(changed) == repr([Result(7, payload)])


@pytest.mark.parametrize(
    "body",
    [
        b"\x93\x10\x07\x82\xa1a\x01\xa1a\x02",  # a key twice
        # a key twice, and 94 different ones: 0x80 + 94 is the first byte of a map 16
        b"\x93\x10\x07\xde\x00\x5f" + b"".join(b"\xa2%02d\x01" % key for key in (*range(94), 0)),
        b"\x93\x10\x07\x81\xc4\x01a\x01",  # a key of bytes
        b"\x93\x10\x07\x81\xa1a\xc4\x01a",  # bytes
        b"\x93\x10\x07\x81\xa1a\xd4\x01a",  # an extension type
        b"\x93\x10\x07\x81\xa1a\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x93\x10\x07\x81\xa1a\xa1\xff",  # a text that is no UTF-8
        b"\x93\x10\x07\x81\xa1a\x90",  # a list
        b"\x93\x10\x07\x81\xa1a\x80",  # a map
        b"\x93\x10\x07\x81\xa1a\x01\x01",  # a byte too many
        b"\x93\x10\x07\x82\xa1a\x01",  # a pair too few
        b"\x93\x10\x07\xa1a",  # a text as payload
        b"\x93\x10\x08\x81\xa1a\x01",  # another call's
        b"\x93\x10\xcb\x40\x1c\x00\x00\x00\x00\x00\x00\x81\xa1a\x01",  # a float as number
        b"\x93\x11\x07\x81\xa1a\x01",  # another kind
        b"\x92\x10\x07",
        b"\x93\x10\x07",
        b"\x93\x10",
        b"\x93",
        b"",
    ],
)
def test_any_other_frame_is_left_to_the_plain_decoder(body: bytes) -> None:
    assert flat_answer(HEADER.pack(len(body)) + body, 7) is None


def test_a_true_in_place_of_number_one_and_a_cut_or_doubled_frame_are_left_to_the_plain_decoder() -> None:
    frame = plain(Result(1, {"output": "x"}))
    assert flat_answer(frame.replace(b"\x93\x10\x01", b"\x93\x10\xc3"), 1) is None
    assert all(flat_answer(frame[:end], 1) is None for end in range(len(frame)))
    assert flat_answer(frame + frame, 1) is None
