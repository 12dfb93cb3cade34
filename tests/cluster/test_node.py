"""A node without Ray: its seats, tokens and leases."""

import re
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.helpers import PATIENCE_S, until

from toolcell.cluster.kill_timer import clock_s
from toolcell.cluster.link import pack, unpack
from toolcell.cluster.messages import PROTOCOL, CallEnded, DropCall, NodeTold, SendCall, fields_of, message_of
from toolcell.cluster.node import OK, REFUSED, UNFIT, UNKNOWN, Node
from toolcell.cluster.terms import NodeTerms

pytestmark = pytest.mark.anyio
LEASE_S = 0.6


@pytest.fixture(scope="module")
async def node(anyio_backend: str) -> AsyncIterator[Node]:
    made = Node()
    await made.start()
    yield made
    await made.aclose()


def request(
    driver: str,
    token: bytes,
    *,
    incarnation: bytes = b"",
    link: bytes = b"1",
    leaves: bool = False,
    terms: NodeTerms | None = None,
    heard: float | None = None,
) -> bytes:
    """A request of a driver that has received a reply right now, or at `heard`."""
    asked = None if incarnation else (terms or NodeTerms()).to_wire()
    heard = clock_s() if heard is None else heard
    return pack([PROTOCOL, driver, token, link, incarnation, LEASE_S, leaves, False, 0, [], asked, heard])


async def exchange(node: Node, data: bytes) -> list[Any]:
    reply: list[Any] = unpack(await node.exchange(data))
    return reply


async def test_the_first_reply_tells_what_the_node_can_do(node: Node) -> None:
    status, incarnation, _ack, (batch,), _sent_at = await exchange(node, request("ada", b"secret"))
    assert (status, incarnation) == (OK, node.incarnation)
    told = message_of(unpack(batch)[1][0])
    assert isinstance(told, NodeTold)
    assert told.most_cells > 0


async def test_another_token_gets_no_access_to_a_drivers_seat(node: Node) -> None:
    await exchange(node, request("bob", b"secret"))
    assert (await exchange(node, request("bob", b"guess")))[0] == REFUSED


async def test_a_waiting_exchange_is_answered_before_the_lease_ends(node: Node) -> None:
    await exchange(node, request("cleo", b"secret"))
    with anyio.fail_after(PATIENCE_S):
        status, *_rest = await exchange(node, request("cleo", b"secret", incarnation=node.incarnation))
    assert status == OK


async def test_a_driver_that_is_not_heard_loses_its_seat(node: Node) -> None:
    await exchange(node, request("dan", b"secret"))
    await until(lambda: "dan" not in node._seats)
    assert (await exchange(node, request("dan", b"secret", incarnation=node.incarnation)))[0] == UNKNOWN


async def test_a_driver_that_knows_an_earlier_incarnation_gets_unknown(node: Node) -> None:
    assert (await exchange(node, request("eve", b"secret", incarnation=b"earlier!")))[0] == UNKNOWN


async def test_a_driver_that_leaves_has_no_seat(node: Node) -> None:
    await exchange(node, request("fay", b"secret"))
    await exchange(node, request("fay", b"secret", incarnation=node.incarnation, leaves=True))
    assert "fay" not in node._seats


async def test_files_of_a_driver_that_cannot_be_removed_do_not_end_the_node(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await exchange(node, request("ivo", b"secret"))

    async def fail() -> None:
        raise OSError("the disk has failed")

    monkeypatch.setattr(node._seats["ivo"].files, "end", fail)
    await exchange(node, request("ivo", b"secret", incarnation=node.incarnation, leaves=True))
    await anyio.sleep(0.05)
    assert not node.is_broken
    assert (await exchange(node, request("joy", b"secret")))[0] == OK


async def test_a_node_that_was_held_up_hears_its_drivers_before_it_ends_their_leases(node: Node) -> None:
    await exchange(node, request("kim", b"secret"))
    until_s = time.monotonic() + 1.0 + LEASE_S  # then the node looks for the end of this lease
    while time.monotonic() < until_s:
        await exchange(node, request("kim", b"secret", incarnation=node.incarnation))
    time.sleep(0.9 * LEASE_S)  # as by a flood of a hostile cell, or if the process was stopped
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    assert (await exchange(node, request("kim", b"secret", incarnation=node.incarnation)))[0] == OK
    time.sleep(2.0 * LEASE_S)  # by now, the driver has given the node up
    await until(lambda: "kim" not in node._seats)


async def test_a_request_that_waited_while_the_node_was_stopped_is_not_served(node: Node) -> None:
    await exchange(node, request("lea", b"secret"))
    stale = request("lea", b"secret", incarnation=node.incarnation)
    time.sleep(1.9 * LEASE_S)  # as if the process was stopped; the driver gives the node up after two leases
    assert (await exchange(node, stale))[0] == UNKNOWN
    assert "lea" not in node._seats


async def test_a_driver_that_sends_but_receives_nothing_loses_its_seat(node: Node) -> None:
    status, *_rest, sent_at = await exchange(node, request("mia", b"secret"))
    with anyio.fail_after(PATIENCE_S):
        while status == OK:  # the network carries only what the driver sends
            deaf = request("mia", b"secret", incarnation=node.incarnation, heard=sent_at)
            status, *_rest = await exchange(node, deaf)
    assert clock_s() - sent_at > LEASE_S


async def test_a_call_of_a_batch_that_cannot_be_started_does_not_take_the_others_with_it(node: Node) -> None:
    await exchange(node, request("gus", b"secret"))
    calls = [SendCall(number, 9, f"c{number}", "t", b"\x80", 1, 5.0, False, {}) for number in (1, 2)]
    frames = [fields_of(calls[0]), fields_of(DropCall(7)), fields_of(calls[1])]
    batch = pack([1, frames])
    data = pack(
        [PROTOCOL, "gus", b"secret", b"1", node.incarnation, LEASE_S, False, False, 1, [batch], None, clock_s()]
    )
    status, _incarnation, ack, batches, _sent_at = await exchange(node, data)
    ends = [message_of(fields) for batch in batches for fields in unpack(batch)[1]]
    assert (status, ack) == (OK, 1)
    assert [(end.number, end.ending, end.started) for end in ends if isinstance(end, CallEnded)] == [
        (1, "unavailable", False),
        (2, "unavailable", False),
    ]


@pytest.mark.parametrize("terms", [NodeTerms(max_cells=3), NodeTerms(quarantine="/var/quarantine")])
async def test_a_driver_that_asks_for_other_settings_gets_no_seat_and_is_told_why(node: Node, terms: NodeTerms) -> None:
    status, _incarnation, _ack, (why,), _sent_at = await exchange(node, request("gil", b"secret", terms=terms))
    assert status == UNFIT
    assert re.match(rb"The supervisor of the node was started by another driver with \w+=\w+, and this one asks", why)
    assert "gil" not in node._seats


async def test_a_driver_that_asks_for_the_present_settings_gets_a_seat(node: Node) -> None:
    terms = NodeTerms(max_cells=node.services.pool.most_cells)
    assert (await exchange(node, request("hal", b"secret", terms=terms)))[0] == OK


async def test_a_driver_of_another_version_gets_no_seat_and_is_told_why(node: Node) -> None:
    other = pack([PROTOCOL + 1, *unpack(request("nia", b"secret"))[1:], "a field of a later version"])
    status, _incarnation, _ack, (why,), _sent_at = await exchange(node, other)
    assert status == UNFIT
    assert re.match(rb"The node's toolcell uses version \d+ of the protocol .* the driver's uses \d+\.", why)


async def test_a_node_that_could_not_start_tries_the_terms_of_the_next_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Node()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nonexistent/python")
        status, _incarnation, _ack, (batch,), _sent_at = await exchange(late, request("ivy", b"secret"))
    told = message_of(unpack(batch)[1][0])
    assert isinstance(told, NodeTold)
    assert (status, "sys.executable" in told.problem) == (OK, True)
    asked = NodeTerms(allow_missing=("cgroup",), max_cells=3)
    reply = await exchange(late, request("ivy", b"secret", link=b"2", terms=asked))
    status, _incarnation, _ack, (batch,), _sent_at = reply
    told = message_of(unpack(batch)[1][0])
    assert isinstance(told, NodeTold)
    assert (told.problem, told.most_cells) == ("", 3)
    await late.aclose()


async def test_a_node_whose_supervisor_has_failed_is_broken() -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    broken = Node()
    await broken.start()
    assert not broken.is_broken
    broken.services.in_background(fail)
    await until(lambda: broken.is_broken)
    with pytest.raises(ExceptionGroup, match="the supervisor failed"):
        await broken.aclose()
