"""The chained log: what is changed, removed, swapped, cut off or added is found."""

import hashlib
import io
from pathlib import Path

import msgpack
import pytest

from toolcell.store.journal import entries as chain
from toolcell.store.journal.entries import MAX_BODY_BYTES, PREFIX, BrokenChain, Head, SharedFacts, entries, new_packer
from toolcell.store.journal.journal import Record


def entry_of(head: Head, record: Record, packer: msgpack.Packer) -> tuple[Head, bytes]:
    digest, entry = chain.entry_of(*head, record, packer)
    return Head(head.number + 1, digest), entry


def written(count: int) -> tuple[bytes, list[tuple[int, int]], Head]:
    """A log of so many entries, the place of each, and its head."""
    head, data, places = Head(), b"", []
    for number in range(count):
        head, entry = entry_of(
            head, Record("call", "main-1", f"main-1-{number}", {"tool": "echo", "error": None}), new_packer()
        )
        places.append((len(data), len(data) + len(entry)))
        data += entry
    return data, places, head


def numbers(data: bytes) -> list[int]:
    return [each.head.number for each in entries(io.BytesIO(data))]


def test_what_was_written_is_read_with_its_head() -> None:
    data, places, head = written(3)
    found = list(entries(io.BytesIO(data)))
    assert [each.record.call_id for each in found] == ["main-1-0", "main-1-1", "main-1-2"]
    assert [each.end for each in found] == [end for _start, end in places]
    assert found[-1].head == head == Head.parse(str(head))


def test_reading_may_begin_after_any_entry() -> None:
    data, _places, _head = written(3)
    first = next(entries(io.BytesIO(data)))
    assert [each.head.number for each in entries(io.BytesIO(data), first.head, first.end)] == [2, 3]


@pytest.mark.parametrize("offset", range(0, 340, 7))
def test_a_changed_byte_is_found_or_ends_the_log_early(offset: int) -> None:
    data, _places, head = written(4)
    changed = bytearray(data)
    changed[offset] ^= 1
    try:
        found = list(entries(io.BytesIO(bytes(changed))))
    except BrokenChain as error:
        assert error.offset <= offset
    else:  # the length of an entry is longer than the file: `JournalReader.verified_end` sees that there is a rest
        assert found[-1:] == [] or found[-1].head != head


def test_removed_swapped_and_added_entries_are_found() -> None:
    data, places, _head = written(4)
    parts = [data[start:end] for start, end in places]
    for order in ([0, 2, 3], [0, 2, 1, 3], [0, 0, 1], [1, 2, 3]):
        with pytest.raises(BrokenChain):
            numbers(b"".join(parts[index] for index in order))
    _, forged = entry_of(Head(4, bytes(32)), Record("call", "main-1", "main-1-9", {}), new_packer())
    with pytest.raises(BrokenChain):
        numbers(data + forged)


def test_an_entry_that_is_not_complete_ends_the_log() -> None:
    data, places, _head = written(3)
    for cut in (1, PREFIX.size, PREFIX.size + 1, places[2][1] - places[2][0] - 1):
        assert numbers(data[: places[2][0] + cut]) == [1, 2]


def test_a_valid_entry_with_another_number_is_found() -> None:
    _, entry = entry_of(Head(5, bytes(32)), Record("call", "main-1", "main-1-9", {}), new_packer())
    with pytest.raises(BrokenChain, match="has the number 6"):
        numbers(entry)


def test_a_head_that_is_none_is_refused() -> None:
    for text in ("", "1", "1:zz", "1:00", "-1:" + "00" * 32):
        with pytest.raises(ValueError):
            Head.parse(text)


@pytest.mark.parametrize("value", ["\udc80", "\ud800text", b"bytes", None, -(2**63), 2**64 - 1, 1.5, [{"a": [1]}]])
def test_what_is_written_is_read_as_it_was(value: object) -> None:
    _, entry = entry_of(Head(), Record("log", "main-1", "", {"value": value}), new_packer())
    assert next(entries(io.BytesIO(entry))).record.data == {"value": value}


def test_an_object_whose_repr_fails_does_not_lose_the_record() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise KeyError("repr")

    for _again in range(2):
        _, entry = entry_of(Head(), Record("log", "main-1", "c", {"value": Bad()}), new_packer())
        record = next(entries(io.BytesIO(entry))).record
        assert (record.call_id, record.data) == ("c", {"unreadable": "KeyError"})


def test_data_beyond_the_bound_is_left_out_so_that_the_record_stands_in_no_ones_way() -> None:
    head, large = entry_of(Head(), Record("call", "main-1", "c", {"value": "x" * MAX_BODY_BYTES}), new_packer())
    _, after = entry_of(head, Record("call", "main-1", "d", {"value": 1}), new_packer())
    first, second = [each.record for each in entries(io.BytesIO(large + after))]
    assert (first.call_id, list(first.data)) == ("c", ["unreadable"]) and "16,777," in first.data["unreadable"]
    assert (second.call_id, second.data) == ("d", {"value": 1})


@pytest.mark.parametrize("value", [Path("a"), 2**64, -(2**70)])
def test_a_value_that_msgpack_cannot_take_is_written_as_its_repr(value: object) -> None:
    _, entry = entry_of(Head(), Record("log", "main-1", "", {"value": value}), new_packer())
    assert next(entries(io.BytesIO(entry))).record.data == {"value": repr(value)}


@pytest.mark.parametrize(
    "body",
    [b"\xc1", msgpack.packb(5), msgpack.packb([1]), msgpack.packb([1, 2, "s", "c", {}, 0.0]), msgpack.packb("abcdef")],
)
def test_an_entry_that_fits_its_digest_and_is_no_record_is_damage(body: bytes) -> None:
    """Whoever can write the file can compute a digest."""
    entry = PREFIX.pack(len(body), hashlib.sha256(bytes(32) + body).digest()) + body
    with pytest.raises(BrokenChain) as found:
        numbers(entry)
    assert "Restore a copy" in found.value.cure and (found.value.number, found.value.offset) == (1, 0)


OWN: list[dict[str, object]] = [
    {},
    {"arguments": {"text": "x"}, "attempt": 1},
    {f"own {number}": number for number in range(16)},  # its own map has a longer header
    {f"own {number}": number for number in range(300)},
    {"value": "\udc80"},
    {"value": 2**70},
]


@pytest.mark.parametrize("own", OWN, ids=["none", "few", "16", "300", "surrogate", "large"])
@pytest.mark.parametrize("shares", [0, 1, 13, 15, 16, 40])
def test_an_entry_after_shared_facts_is_byte_for_byte_that_of_all_facts(own: dict[str, object], shares: int) -> None:
    facts = {f"fact {number}": [number, "ä"] for number in range(shares)}
    record = Record("intent", "main-1", "c", own, 1.5)
    whole = record._replace(data={**facts, **own})
    for last in (0, 127, 70_000):
        after = chain.entry_of(last, bytes(32), record, new_packer(), SharedFacts.of(facts))
        assert after == chain.entry_of(last, bytes(32), whole, new_packer())


@pytest.mark.parametrize("value", ["\udc80", object()])
def test_shared_facts_that_cannot_be_packed_ahead_are_in_each_entry(value: object) -> None:
    facts = SharedFacts.of({"fact": value})
    _, entry = chain.entry_of(0, Head().digest, Record("intent", "main-1", "c", {"own": 1}), new_packer(), facts)
    data = next(entries(io.BytesIO(entry))).record.data
    assert data == {"fact": value if isinstance(value, str) else repr(value), "own": 1}


def test_data_beyond_the_bound_is_left_out_with_the_shared_facts() -> None:
    large = Record("intent", "main-1", "c", {"value": "x" * MAX_BODY_BYTES})
    _, entry = chain.entry_of(0, Head().digest, large, new_packer(), SharedFacts.of({"fact": 1}))
    record = next(entries(io.BytesIO(entry))).record
    assert (record.call_id, list(record.data)) == ("c", ["unreadable"])
