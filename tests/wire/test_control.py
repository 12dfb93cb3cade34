"""The messages on the control socket, in the encoding of this process. `test_by_hand.py` compares encodings."""

import pytest

from toolcell.wire.frames import WireLimits, encode
from toolcell.wire.messages import VERSION, Exited, Hello, Ready, to_fields
from toolcell.wire.protocol import ControlLink, exited, ready, recycle, recycled


@pytest.mark.parametrize("process", [1, 127, 128, 65_536, 2**32 - 1])
@pytest.mark.parametrize("account", [True, False])
def test_what_the_init_is_told_is_what_it_reads(process: int, account: bool) -> None:
    assert recycled(recycle(process, account)) == [(process, account)]
    assert recycled(recycle(process, account) + recycle(1, not account)) == [(process, account), (1, not account)]


def test_nothing_is_read_of_nothing() -> None:
    assert recycled(b"") == []


def test_what_the_init_says_is_what_the_supervisor_reads() -> None:
    link = ControlLink(WireLimits())
    hello = b"".join(encode(to_fields(Hello(VERSION)), WireLimits()))
    said = ready(1, True) + exited(1, -9, 0.25, 1 << 40) + ready(2, False)
    assert link.receive(hello + said) == [
        Hello(VERSION),
        Ready(1, True),
        Exited(1, -9, 0.25, 1 << 40),
        Ready(2, False),
    ]
