"""The ordered stream between a driver and a node: batches that are lost, repeated or late."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcell.cluster.link import BatchLink


def test_frames_arrive_once_and_in_order() -> None:
    here, there = BatchLink(), BatchLink()
    batches = [here.send([number]) for number in range(4)]
    arrived: list[Any] = [
        frames for batch in (batches[2], batches[0], batches[0], batches[1]) for frames in there.receive([batch])
    ]
    assert arrived == [[0], [1], [2]]
    here.acknowledged(there.received)
    assert here.again() == [batches[3]]


@given(st.lists(st.integers(0, 9), max_size=40))
def test_whatever_is_lost_or_repeated_all_frames_arrive_in_order(fate: list[int]) -> None:
    here, there = BatchLink(), BatchLink()
    batches = [here.send([number]) for number in range(10)]
    arrived: list[Any] = [frames[0] for each in fate for frames in there.receive([batches[each]])]
    here.acknowledged(there.received)
    arrived += [frames[0] for frames in there.receive(here.again())]
    assert arrived == list(range(10))


def test_the_callback_of_a_batch_is_called_once_at_its_acknowledgement() -> None:
    told: list[int] = []
    link = BatchLink()
    link.send([1], lambda: told.append(1))
    link.send([2], lambda: told.append(2))
    link.acknowledged(1)
    link.acknowledged(1)
    assert told == [1]
    assert link.under_way == 1
