"""What the broker sets aside for an answer before there is one."""

import pytest

from toolcell.sessions.broker import MAX_HITS, answer_bytes
from toolcell.wire.frames import Field

KIB = 1024


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("memory.search", {"limit": 2}, 4 * KIB + 2 * 64 * KIB),
        ("memory.search", {"limit": 10**9}, 4 * KIB + MAX_HITS * 64 * KIB),
        ("memory.search", {"limit": -1}, 4 * KIB),
        ("memory.search", {"limit": "2"}, 4 * KIB),
        ("web.fetch", {"max_bytes": 1000}, 4 * KIB + 1000),
        ("web.search", {"query": "q"}, 2048 * KIB),
        ("memory.store", {"text": "t"}, 4 * KIB),
        ("channel.send", {"text": "t"}, 4 * KIB),
    ],
)
def test_an_answer_has_room_by_its_operation_and_what_was_asked_for(
    operation: str, arguments: dict[str, Field], expected: int
) -> None:
    assert answer_bytes(operation, arguments) == expected
