"""Cutting a byte stream into frames and decoding them: what passes, what is refused, and what refusing costs."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgpack
import pytest

from toolcell.wire.frames import (
    HEADER,
    REQUEST,
    Field,
    FrameDecoder,
    TooLarge,
    Unpackable,
    Violation,
    WireLimits,
    decode,
    encode,
    more_elements_than,
)
from toolcell.wire.messages import Call, Result, to_fields
from toolcell_tools.encode import MAX_CONTAINERS, MAX_DEPTH, MAX_ELEMENTS, encode_json
from toolcell_tools.returned import encode_return

pytestmark = pytest.mark.usefixtures("nothing_is_left_of_the_module")

LIMITS = WireLimits()
KIB = 1024
MILLION = (1_000_000).to_bytes(4, "big")
FIELDS: list[Field] = [REQUEST, 1, {"output": [None, True, -1, 2.5, "é", b"\x00\xff", {"deep": []}]}]


def joined(fields: object, limits: WireLimits = LIMITS) -> bytes:
    assert isinstance(fields, (list, tuple))
    return b"".join(encode(fields, limits))


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


def only(frames: list[list[Field] | Violation]) -> Violation:
    """The one violation that `frames` is."""
    (frame,) = frames
    assert isinstance(frame, Violation), frame
    return frame


def refused(body: bytes, limits: WireLimits = LIMITS) -> Violation:
    """The violation that a frame of this body is, by the whole-frame path and by the buffered one."""
    whole = only(FrameDecoder(limits).feed(framed(body)))
    buffered = FrameDecoder(limits)
    stream = framed(body)
    frames = [frame for piece in (stream[:-1], stream[-1:]) for frame in buffered.feed(piece)]
    assert only(frames) == whole
    assert buffered.broken == whole
    return whole


def decoded(body: bytes, limits: WireLimits = LIMITS) -> list[Field]:
    fields = decode(body, limits)
    assert isinstance(fields, list), fields
    return fields


def nested_lists(levels: int) -> bytes:
    """The body of `levels` arrays within each other, the frame's own included."""
    return b"\x91" * (levels - 1) + b"\x90"


def nested_maps(levels: int) -> bytes:
    return b"\x91" + b"\x81\xa1k" * (levels - 2) + b"\x80"


@contextmanager
def allocating_at_most(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        before, _peak = tracemalloc.get_traced_memory()
        yield
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= limit, f"{peak - before:,} bytes were allocated"


# -- cutting ----------------------------------------------------------------------------------------------------------


def test_a_frame_is_a_big_endian_length_and_a_msgpack_array() -> None:
    assert joined([1, "a"]) == b"\x00\x00\x00\x04\x92\x01\xa1a"


def test_what_was_encoded_comes_back() -> None:
    decoder = FrameDecoder(LIMITS)
    assert decoder.feed(joined(FIELDS)) == [FIELDS]
    assert decoder.broken is None


def test_a_large_frame_is_two_buffers_so_that_its_body_is_not_copied() -> None:
    header, body = encode([1, "x" * 2_000_000], LIMITS)
    assert header == HEADER.pack(len(body))
    assert FrameDecoder(LIMITS).feed(bytes(header) + body) == [[1, "x" * 2_000_000]]


def test_a_frame_may_come_in_two_reads_cut_at_any_byte() -> None:
    stream = joined(FIELDS) + joined([2])
    for cut in range(len(stream) + 1):
        decoder = FrameDecoder(LIMITS)
        assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == [FIELDS, [2]], cut
        assert not decoder.partial


def test_a_frame_may_come_byte_by_byte() -> None:
    decoder = FrameDecoder(LIMITS)
    stream = joined(FIELDS) + joined([2])
    assert [frame for at in range(len(stream)) for frame in decoder.feed(stream[at : at + 1])] == [FIELDS, [2]]


def test_many_frames_of_one_read_come_in_order() -> None:
    stream = b"".join(joined([number]) for number in range(20_000))
    assert FrameDecoder(LIMITS).feed(stream) == [[number] for number in range(20_000)]


LARGE: list[Field] = [16, 1, {"output": "0123456789abcdef" * 20_000}]


@pytest.mark.parametrize("size", [30_000, 64 * KIB, 100_001, 319_000])
def test_a_large_frame_arrives_in_pieces(size: int) -> None:
    stream = joined(FIELDS) + joined(LARGE) + joined([2]) + joined(LARGE) + joined([3])
    decoder = FrameDecoder(LIMITS)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == [FIELDS, LARGE, [2], LARGE, [3]]
    assert not decoder.partial


def test_the_sizes_are_those_of_the_frames_also_behind_a_large_one() -> None:
    decoder = FrameDecoder(LIMITS)
    stream = joined(LARGE) + joined([2]) + joined([3, 4])
    assert decoder.feed(stream[:300_000]) == []
    assert decoder.feed(stream[300_000:]) == [LARGE, [2], [3, 4]]
    assert decoder.sizes == [len(joined(LARGE)), len(joined([2])), len(joined([3, 4]))]


def test_the_sizes_are_those_of_the_frames_that_came_and_not_of_those_before_a_large_one() -> None:
    decoder = FrameDecoder(LIMITS)
    stream = joined([2]) + joined(LARGE)
    sizes: list[list[int]] = []
    for piece in (stream[:100_000], stream[100_000:200_000], stream[200_000:]):
        decoder.feed(piece)
        sizes.append(decoder.sizes)
    assert sizes == [[len(joined([2]))], [], [len(joined(LARGE))]]


def test_two_streams_with_half_a_large_frame_each_do_not_mix() -> None:
    other: list[Field] = [16, 1, {"output": "fedcba9876543210" * 20_000}]
    for _ in range(2):  # the second time, in the memory of the first
        one, two = FrameDecoder(LIMITS), FrameDecoder(LIMITS)
        assert one.feed(joined(LARGE)[:200_000]) == two.feed(joined(other)[:200_000]) == []
        assert one.feed(joined(LARGE)[200_000:]) == [LARGE]
        assert two.feed(joined(other)[200_000:]) == [other]


def test_a_large_frame_that_is_forgotten_leaves_nothing_to_the_next_one() -> None:
    decoder = FrameDecoder(LIMITS)
    decoder.feed(joined(LARGE)[:300_000])
    decoder.clear()
    assert not decoder.partial
    assert decoder.feed(joined([2])) == [[2]]


def test_a_large_frame_that_is_undecodable_is_the_last() -> None:
    decoder = FrameDecoder(LIMITS)
    stream = framed(b"\x91\xdb" + (200_000).to_bytes(4, "big") + b"\xff" * 200_000) + joined([2])
    assert decoder.feed(stream[:100_000]) == []
    assert only(decoder.feed(stream[100_000:])).reason == "undecodable frame"
    assert decoder.feed(joined([3])) == []


def test_a_frame_that_waits_to_be_written_stays_what_it_is() -> None:
    texts = [letter * 2_000_000 for letter in "abc"]
    waiting = [encode([1, text], LIMITS) for text in texts]
    assert joined([2]) == HEADER.pack(2) + b"\x91\x02"
    assert [FrameDecoder(LIMITS).feed(b"".join(buffers)) for buffers in waiting] == [[[1, text]] for text in texts]


def test_an_empty_read_is_nothing() -> None:
    decoder = FrameDecoder(LIMITS)
    assert decoder.feed(b"") == []
    assert not decoder.partial


def test_partial_says_whether_a_frame_has_begun_and_not_ended() -> None:
    stream = joined(FIELDS)
    for cut in range(1, len(stream)):
        decoder = FrameDecoder(LIMITS)
        assert not decoder.partial
        decoder.feed(stream[:cut])
        assert decoder.partial, cut
        decoder.feed(stream[cut:])
        assert not decoder.partial
        decoder.feed(stream + stream[:cut])
        assert decoder.partial


def test_clear_forgets_half_a_frame() -> None:
    decoder = FrameDecoder(LIMITS)
    decoder.feed(joined(FIELDS)[:-1])
    decoder.clear()
    assert not decoder.partial
    assert decoder.feed(joined([2])) == [[2]]


def test_clear_does_not_mend_a_broken_stream() -> None:
    decoder = FrameDecoder(LIMITS)
    decoder.feed(framed(b"\x91\xc1"))
    decoder.clear()
    assert decoder.broken is not None
    assert decoder.feed(joined([2])) == []


def test_frames_before_a_violation_are_given_and_those_after_it_are_not() -> None:
    decoder = FrameDecoder(LIMITS)
    frames = decoder.feed(joined([1]) + joined([2]) + framed(b"\x91\xc1") + joined([3]))
    assert frames[:2] == [[1], [2]]
    only(frames[2:])
    assert decoder.feed(joined([4])) == []
    assert not decoder.partial


def test_the_repr_says_what_waits_and_what_broke() -> None:
    decoder = FrameDecoder(LIMITS)
    decoder.feed(b"\x00\x00")
    assert repr(decoder) == "<FrameDecoder 2 bytes waiting>"
    decoder.feed(b"\x00\x00")
    assert repr(decoder).startswith("<FrameDecoder 0 bytes waiting · frame length: 0;")


def test_a_violation_reads_as_reason_and_detail() -> None:
    assert str(Violation("duplicate key", "a map names one key twice")) == "duplicate key: a map names one key twice"
    assert str(Violation("duplicate key")) == "duplicate key"


# -- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, LIMITS.frame_bytes + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
@pytest.mark.parametrize("following", [b"", b"\x90", b"\x91" * 64 * KIB])
def test_a_hostile_length_is_a_violation_at_once_and_allocates_nothing(length: int, following: bytes) -> None:
    stream = HEADER.pack(length) + following
    decoder = FrameDecoder(LIMITS)
    with allocating_at_most(len(stream) + 16 * KIB):
        assert only(decoder.feed(stream)).reason == "frame length"
    assert not decoder.partial


def test_a_length_of_four_reads_is_judged_with_its_last_byte() -> None:
    decoder = FrameDecoder(LIMITS)
    for byte in (b"\xff", b"\xff", b"\xff"):
        assert decoder.feed(byte) == []
    assert only(decoder.feed(b"\xff")).reason == "frame length"


def test_the_longest_frame_allowed_passes_and_one_byte_more_does_not() -> None:
    limits = WireLimits(frame_bytes=64)
    assert FrameDecoder(limits).feed(framed(b"\x92\x01\xd9\x3c" + b"x" * 60)) == [[1, "x" * 60]]
    assert refused(b"\x92\x01\xd9\x3d" + b"x" * 61, limits).reason == "frame length"


def test_the_length_of_a_frame_that_never_comes_reserves_nothing() -> None:
    decoder = FrameDecoder(LIMITS)
    with allocating_at_most(16 * KIB):
        assert decoder.feed(HEADER.pack(LIMITS.frame_bytes) + b"\x91") == []
    assert decoder.partial


def test_a_string_within_a_frame_has_a_limit_of_its_own() -> None:
    limits = WireLimits(string_bytes=100)
    for letter in ("x", b"x"):
        assert len(decoded(msgpack.packb([REQUEST, letter * 100]), limits)) == 2
        assert refused(msgpack.packb([REQUEST, letter * 101]), limits).reason == "undecodable frame"


# -- what a body may hold ---------------------------------------------------------------------------------------------


def test_a_body_that_is_not_an_array_is_refused_by_its_first_byte() -> None:
    for first in (tag for tag in range(256) if tag & 0xF0 != 0x90):
        violation = only(FrameDecoder(LIMITS).feed(HEADER.pack(1_000_000) + bytes([first])))
        assert violation == Violation("undecodable frame", f"the body starts with 0x{first:02x}, not with an array")
        assert refused(bytes([first])) == violation


@pytest.mark.parametrize("value", [None, 1, "text", {}, {"a": 1}])
def test_decode_alone_refuses_a_value_that_is_not_an_array(value: object) -> None:
    assert decode(msgpack.packb(value), LIMITS) == Violation("undecodable frame", "the body is not an array")


@pytest.mark.parametrize(
    "body",
    [
        b"\x92\x01",  # one field of two
        b"\x91\xa5abc",  # three bytes of a string of five
        b"\x91\xcd\x01",
        b"\x91\xdd\xff\xff\xff\xff",
        b"\x91\xdf\xff\xff\xff\xff",
        b"\x91\xdb\xff\xff\xff\xff",
        b"\x91\xc6\xff\xff\xff\xff",
        b"\x91\xc9\xff\xff\xff\xff\x01",
        b"\x91\x01\x01",  # one byte too many
        b"\x90\x90",
        b"\x91\xc1",  # the byte msgpack never uses
        b"\x91\xa1\xff",  # not UTF-8
        b"\x91\xa3\xed\xa0\x80",  # a lone surrogate
        b"\x91\xa2\xc0\x80",  # an overlong NUL
    ],
    ids=bytes.hex,
)
def test_a_body_that_is_not_exactly_one_msgpack_value_is_a_violation(body: bytes) -> None:
    with allocating_at_most(256 * KIB):
        assert refused(body).reason == "undecodable frame"


EXTENSIONS = {
    "timestamp 32": b"\xd6\xff" + bytes(4),
    "timestamp 64": b"\xd7\xff" + bytes(8),
    "timestamp 96": b"\xc7\x0c\xff" + bytes(12),
    "timestamp of no bytes": b"\xc7\x00\xff",
    "ext8 of no bytes": b"\xc7\x00\x05",
    "ext16 of no bytes": b"\xc8\x00\x00\x05",
    "ext32 of no bytes": b"\xc9\x00\x00\x00\x00\x05",
    "ext8": b"\xc7\x03\x05abc",
    "ext16": b"\xc8\x00\x03\x05abc",
    "ext32": b"\xc9\x00\x00\x00\x03\x05abc",
    "fixext1": b"\xd4\x05a",
    "fixext2": b"\xd5\x05ab",
    "fixext4": b"\xd6\x05" + bytes(4),
    "fixext8": b"\xd7\x05" + bytes(8),
    "fixext16": b"\xd8\x05" + bytes(16),
    "reserved code": b"\xd4\x80a",
}


@pytest.mark.parametrize("extension", EXTENSIONS.values(), ids=EXTENSIONS)
def test_an_extension_type_is_a_violation_wherever_it_stands(extension: bytes) -> None:
    for body in (
        b"\x91" + extension,
        b"\x93\x10\x01\x81\xa6output" + extension,
        b"\x91\x81" + extension + b"\x01",
        b"\x91\x91" + extension,
    ):
        assert refused(body).reason in {"extension type", "undecodable frame"}


def test_a_duplicate_key_is_a_violation() -> None:
    assert refused(b"\x91\x82\xa1a\x01\xa1a\x02").reason == "duplicate key"


def test_a_duplicate_key_far_inside_is_a_violation() -> None:
    inner = b"\x83\xa1a\x01\xa1b\x02\xd9\x01a\x03"  # the same key once as fixstr, once as str8
    assert refused(b"\x93\x10\x01\x81\xa6output\x92\xc0" + inner).reason == "duplicate key"


@pytest.mark.parametrize(
    "key",
    [
        b"\x01",
        b"\xff",
        b"\xcf" + b"\xff" * 8,
        b"\xc0",
        b"\xc2",
        b"\xc3",
        b"\xcb" + bytes(8),
        b"\x90",
        b"\x80",
        b"\xc4\x01a",
    ],
    ids=["int", "negative", "uint64", "nil", "false", "true", "float", "array", "map", "bytes"],
)
def test_a_key_that_is_not_a_string_is_a_violation(key: bytes) -> None:
    for kind in (b"\x10", bytes([REQUEST])):
        reasons = {"undecodable frame", "map key" if kind == bytes([REQUEST]) else "bytes"}
        assert refused(b"\x92" + kind + b"\x81" + key + b"\x01").reason in reasons
        assert refused(b"\x92" + kind + b"\x82\xa1b\x01" + key + b"\x01").reason in reasons


def test_a_key_as_bytes_does_not_hide_a_second_key_of_the_same_letters() -> None:
    assert refused(b"\x92\x14\x82\xc4\x01a\x01\xa1a\x02").reason == "map key"


@pytest.mark.parametrize("raw", [b"", b"text", b"\xff", bytes(70_000)], ids=len)
def test_bytes_come_in_a_request_only(raw: bytes) -> None:
    assert decoded(msgpack.packb([REQUEST, 1, {"body": raw}])) == [REQUEST, 1, {"body": raw}]
    for kind in (16, 17, 18, 19):
        refusal = Violation("bytes", "only a request may hold them; JSON has none")
        assert refused(msgpack.packb([kind, 1, {"output": [raw]}])) == refusal
    for frame in ([raw], [[REQUEST], raw], [300, raw]):
        assert refused(msgpack.packb(frame)).reason == "bytes"
    assert refused(b"\x92\xcc\x14" + msgpack.packb(raw)).reason == "bytes"  # a number that is written the long way


# -- depth ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [nested_lists, nested_maps])
@pytest.mark.parametrize("depth", [3, 10, 72])
def test_a_frame_as_deep_as_the_limit_passes_and_one_level_more_does_not(
    nested: Callable[[int], bytes], depth: int
) -> None:
    limits = WireLimits(depth=depth)
    decoded(nested(depth), limits)
    assert refused(nested(depth + 1), limits).reason == "nested too deep"


@pytest.mark.parametrize("levels", [500, 1_020, 1_030, 10_000, 500_000])
@pytest.mark.parametrize("nested", [nested_lists, nested_maps])
def test_endless_nesting_is_a_violation_and_not_a_recursion(nested: Callable[[int], bytes], levels: int) -> None:
    assert refused(nested(levels)).reason in {"nested too deep", "undecodable frame"}


def test_many_containers_beside_each_other_are_not_deep() -> None:
    limits = WireLimits(depth=3)
    assert decoded(b"\x91\xdc\x01\x00" + b"\x90" * 256, limits) == [[[]] * 256]


def test_one_deep_place_among_many_shallow_ones_is_found() -> None:
    limits = WireLimits(depth=3)
    assert refused(b"\x91\xdc\x01\x00" + b"\x90" * 255 + b"\x91\x80", limits).reason == "nested too deep"


def test_the_deepest_value_that_a_tool_may_return_or_be_given_crosses() -> None:
    value: object = None
    for level in range(MAX_DEPTH):
        value = [value] if level % 2 else {"k": value}
    call: dict[str, Field] = encode_json(value)
    for message in (
        Result(1, encode_return(value)),
        Result(1, {"values": encode_json(value)}),
        Call(1, "", "", {}, call),
    ):
        assert len(FrameDecoder(LIMITS).feed(joined(to_fields(message)))) == 1
        assert not isinstance(decode(joined(to_fields(message))[4:], LIMITS), Violation)


# -- elements ---------------------------------------------------------------------------------------------------------

FIVE = {
    "array": (b"\x94\x01\x01\x01\x01", 4),
    "nested array": (b"\x91\x93\x01\x01\x01", 4),
    "array16": (b"\x91\xdc\x00\x03\x01\x01\x01", 4),
    "array32": (b"\x91\xdd\x00\x00\x00\x03\x01\x01\x01", 4),
    "map": (b"\x91\x83\xa1a\x01\xa1b\x01\xa1c\x01", 4),
    "map16": (b"\x91\xde\x00\x03\xa1a\x01\xa1b\x01\xa1c\x01", 4),
    "map32": (b"\x91\xdf\x00\x00\x00\x03\xa1a\x01\xa1b\x01\xa1c\x01", 4),
    "siblings": (b"\x92\x91\x01\x91\x01", 4),
    "map of arrays": (b"\x91\x81\xa1a\x92\x01\x01", 4),
    "after strings": (b"\x94\xa3\x9f\x9f\x9f\xd9\x02\xdd\xdd\xc4\x02\xdf\xdf\xcd\xdd\xdd", 4),
    "after floats": (b"\x94\xca\xdd\xdd\xdd\xdd\xcb" + b"\xdd" * 8 + b"\xcf" + b"\xdf" * 8 + b"\xd0\x9f", 4),
}


@pytest.mark.parametrize(("body", "elements"), FIVE.values(), ids=FIVE)
def test_elements_are_counted_over_all_containers(body: bytes, elements: int) -> None:
    assert not more_elements_than(elements, body)
    assert more_elements_than(elements - 1, body)
    assert refused(body, WireLimits(elements=elements - 1)).reason == "too many elements"


def test_a_value_with_as_many_elements_as_a_tool_may_return_crosses() -> None:
    payload = encode_json([None] * MAX_ELEMENTS)
    assert decoded(joined([16, 1, {"output": payload}])[4:]) == [16, 1, {"output": payload}]


@pytest.mark.parametrize("empty", [b"\x80", b"\x90"], ids=["maps", "arrays"])
def test_a_megabyte_of_empty_containers_is_refused_before_one_of_them_is_built(empty: bytes) -> None:
    count = LIMITS.elements + 1
    body = b"\x91\xdd" + count.to_bytes(4, "big") + empty * count
    with allocating_at_most(64 * KIB):
        assert only([decode(body, LIMITS)]).reason == "too many elements"


def test_as_many_empty_containers_as_are_allowed_cost_no_more_than_their_own_memory() -> None:
    limits = WireLimits(elements=20_000)
    body = b"\x91\xdc\x4e\x1f" + b"\x80" * 19_999
    with allocating_at_most(20_000 * 128):  # an empty dict has 64 bytes, and two lists point at each
        assert decoded(body, limits) == [[{}] * 19_999]


@pytest.mark.parametrize("empty", [b"\x80", b"\x90"], ids=["maps", "arrays"])
def test_containers_are_counted_while_they_are_built(empty: bytes) -> None:
    limits = WireLimits(containers=1_001)
    body = b"\x91\xdc\x03\xe7" + empty * 999
    assert decoded(body, limits) == [[{} if empty == b"\x80" else []] * 999]
    body = b"\x91\xdc\x03\xe9" + empty * 1_001
    assert refused(body, limits).reason == "too many containers"


def test_a_value_with_as_many_containers_as_a_tool_may_return_crosses() -> None:
    payload = encode_json([[]] * (MAX_CONTAINERS - 1))
    assert decoded(joined([16, 1, {"output": payload, "content": payload}])[4:])[1] == 1


@pytest.mark.parametrize(
    "level",
    [
        b"\xdd\x00\x01\x00\x00" + b"\x01" * 0xFFFF,  # each waits for its last item, the next level
        b"\xdd\x00\x01\x00\x00" + b"\xa2\xc4\x80" * 0xFFFF,
        b"\xdf\x00\x01\x00\x00" + b"\xa0\x01" * 0xFFFF + b"\xa0",
        b"\xdc\xff\xff" + b"\x01" * 0xFFFE,
    ],
    ids=["array32", "strings", "map32", "array16"],
)
def test_nested_containers_cannot_hold_the_limit_each(level: bytes) -> None:
    body = b"\x91" + level * 64
    limits = WireLimits(elements=0x10000 + 100)
    with allocating_at_most(64 * KIB):  # msgpack would build all of them before it called a hook
        assert only([decode(body, limits)]).reason == "too many elements"


def test_headers_alone_that_declare_a_thousand_millions_reserve_little() -> None:
    body = b"\x91" + (b"\xdd" + MILLION) * 1_000  # msgpack reserves room for 10,000 items at the most for each
    with allocating_at_most(100 * KIB * KIB):
        assert refused(body).reason == "undecodable frame"


def test_counting_stops_at_what_msgpack_will_not_read() -> None:
    for wall in (b"\xc1", *EXTENSIONS.values()):
        body = b"\x92" + wall + b"\xdd\xff\xff\xff\xff"
        assert not more_elements_than(2, body)
        assert isinstance(decode(body, WireLimits(elements=2)), Violation)


# -- encoding ---------------------------------------------------------------------------------------------------------


def test_a_message_larger_than_a_frame_is_too_large() -> None:
    limits = WireLimits(frame_bytes=64)
    assert len(joined([1, "x" * 60], limits)) == 4 + 64
    with pytest.raises(TooLarge, match="65 bytes; a frame holds at most 64"):
        encode([1, "x" * 61], limits)


def test_a_message_of_more_elements_than_the_other_side_takes_is_too_large() -> None:
    limits = WireLimits(elements=10)
    assert decoded(joined([1, list(range(8))], limits)[4:], limits) == [1, list(range(8))]
    with pytest.raises(TooLarge, match="too many elements"):
        encode([1, list(range(9))], limits)


@pytest.mark.parametrize(
    "value",
    [{1, 2}, object(), 2**64, -(2**63) - 1, "\ud800", {"k": ["\udfff"]}, 1j],
    ids=lambda value: ascii(value)[:12],
)
def test_a_value_that_msgpack_cannot_carry_is_unpackable_and_the_next_message_is_clean(value: object) -> None:
    with pytest.raises(Unpackable, match="the message cannot be encoded") as caught:
        encode([1, "before", value], LIMITS)
    assert not isinstance(caught.value, TooLarge)
    assert joined([1, "a"]) == b"\x00\x00\x00\x04\x92\x01\xa1a"


def test_a_value_that_holds_itself_is_unpackable() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(Unpackable):
        encode([1, value], LIMITS)


def test_the_largest_integers_cross() -> None:
    fields: list[Field] = [2**64 - 1, -(2**63)]
    assert decoded(joined(fields)[4:]) == fields


def test_the_rest_of_a_frame_that_is_itself_a_whole_frame_is_no_frame() -> None:
    inner = joined([REQUEST, 2, {"forged": True}])
    outer: list[Field] = [REQUEST, 1, inner]
    stream = joined(outer)
    assert stream.endswith(inner), "so that it can be cut where a frame seems to begin"
    for cut in (len(stream) - len(inner), 1, 4, len(stream) - 1):
        decoder = FrameDecoder(LIMITS)
        assert decoder.feed(stream[:cut]) == []
        assert decoder.feed(stream[cut:]) == [outer]


@pytest.mark.parametrize("body", [b"\xc1", b"\x91\xc1", b"\x93\xc8\x00\x01\x00x", b"\x92\xa5ab", b"\x91\x81\x90\x90"])
def test_what_cannot_be_decoded_says_what_is_wrong_with_it(body: bytes) -> None:
    violation = refused(body)
    assert violation.reason and violation.detail
