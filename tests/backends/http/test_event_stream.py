"""The events of answers that are read while they arrive: whole lines, bounds, ends."""

import anyio
import pytest
from tests.helpers import PATIENCE_S

from toolcell.backends.http.event_stream import FEED_BYTES, FEEDS, FETCHES, Feed, Feeds, WholeLines
from toolcell.backends.protocols import Refused

pytestmark = pytest.mark.anyio


def test_parts_of_a_body_become_whole_lines() -> None:
    lines: list[bytes] = []
    whole = WholeLines(lines.append)
    for part in (b"a", b"b\nc\nd", b"", b"e", b"\n", b"f"):
        whole.take(part)
    assert lines == [b"ab\nc\n", b"de\n"]


def test_a_line_over_the_bound_ends_the_lines_for_good() -> None:
    lines: list[bytes] = []
    whole = WholeLines(lines.append)
    for part in (b"a\n", b"x" * (FEED_BYTES + 1), b"\nb\n"):
        whole.take(part)
    assert lines == [b"a\n"]


async def test_lines_are_fetched_in_order_and_nothing_is_left_after_the_end() -> None:
    feed = Feed()
    feed.take(b"a\n")
    feed.take(b"b\n")
    assert await feed.fetch() == b"a\nb\n"
    feed.take(b"late\n")
    feed.end()
    assert await feed.fetch() is None


async def test_two_fetches_that_wait_both_end_with_the_request() -> None:
    feed = Feed()
    found: list[bytes | None] = []

    async def fetch() -> None:
        found.append(await feed.fetch())

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(fetch)
            group.start_soon(fetch)
            await anyio.wait_all_tasks_blocked()
            feed.end()
    assert found == [None, None]


async def test_lines_without_room_and_all_after_them_are_left_to_the_answer() -> None:
    feed = Feed()
    feed.take(b"a" * FEED_BYTES)
    feed.take(b"b\n")
    assert await feed.fetch() == b"a" * FEED_BYTES
    feed.take(b"c\n")
    with anyio.move_on_after(0.05) as scope:
        await feed.fetch()
    assert scope.cancelled_caught


async def test_fetches_of_one_answer_have_a_bound() -> None:
    feed = Feed()
    for _ in range(FETCHES):
        feed.take(b"a\n")
        assert await feed.fetch() == b"a\n"
    feed.take(b"a\n")
    feed.end()
    assert await feed.fetch() is None


async def test_a_request_is_left_while_it_is_under_way_and_its_number_is_not_taken_again() -> None:
    feeds = Feeds()
    feeds[1].leave()
    with anyio.CancelScope() as scope:
        feed = feeds.begin(1, scope)
        with pytest.raises(Refused, match="another request's"):
            feeds.begin(1, scope)
        feed.leave()
        await anyio.sleep_forever()
    assert scope.cancelled_caught and feed.is_left
    feed.end()
    with pytest.raises(Refused, match="another request's"):
        feeds.begin(1, anyio.CancelScope())


async def test_a_request_that_was_left_before_it_began_is_cancelled_when_it_begins() -> None:
    feeds = Feeds()
    feeds[1].leave()
    with anyio.CancelScope() as scope:
        feeds.begin(1, scope)
        await anyio.sleep_forever()
    assert scope.cancelled_caught


def test_requests_that_are_watched_in_one_call_have_a_bound() -> None:
    feeds = Feeds()
    for number in range(1, FEEDS + 1):
        assert feeds[number] is feeds[number]
    with pytest.raises(Refused, match="at most 1,000"):
        feeds[FEEDS + 1]
