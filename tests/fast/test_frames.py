"""What is packed by hand is what the plain codec packs and reads, and the other way round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.fast.frames import CALL, LONG, exited, ready, recycle, recycled
from toolcell.wire.frames import HEADER, FrameDecoder, WireLimits, encode, packed
from toolcell.wire.messages import Call, Exited, Message, Ready, Recycle, Result, from_fields, to_fields

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


@pytest.mark.parametrize("beside", [{}, {"display": "short"}, {"artifacts": [], "values": {"n": 1}}])
def test_a_long_text_in_its_place_makes_the_same_frame(beside: dict[str, object]) -> None:
    payload = {"output": "x" * (LONG + 1), **beside}
    message = Result(1, payload)  # type: ignore[arg-type]
    around = encode(to_fields(message), LIMITS, payload.values())
    assert len(around) == 3 and b"".join(around) == plain(message)
