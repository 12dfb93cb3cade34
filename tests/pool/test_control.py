"""What the init packs by hand is what the protocol reads, and the other way round."""

import pytest

from toolcell.runner.control import Control, exited, ready, recycled
from toolcell.wire.messages import VERSION, Exited, Hello, Ready
from toolcell.wire.protocol import CONTROL_LIMITS, ControlLink, recycle

NUMBERS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1]


@pytest.mark.parametrize("seq", NUMBERS)
def test_the_supervisor_reads_what_the_init_packs_by_hand(seq: int) -> None:
    link = ControlLink(CONTROL_LIMITS)
    link.receive(Control.packed(Hello(VERSION, {})))
    said = (
        ready(seq, waiting=True) + exited(seq, -11, 0.25, 2**40) + ready(seq, waiting=False) + exited(seq, 255, 0.0, 0)
    )
    expected = [Ready(seq, True), Exited(seq, -11, 0.25, 2**40), Ready(seq, False), Exited(seq, 255, 0.0, 0)]
    assert link.receive(said) == expected


@pytest.mark.parametrize("seq", NUMBERS)
def test_the_init_reads_the_numbers_that_the_supervisor_sends(seq: int) -> None:
    said = [(seq, False), (7, True), (seq, True), (7, False)]
    assert recycled(b"".join(recycle(number, account) for number, account in said)) == said
