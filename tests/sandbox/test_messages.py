"""What a maker and a cell tell each other arrives as it was sent."""

import pytest

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.messages import MAX_BYTES, Become, Confined, Forked, IsInit, NotEntered, pack, unpack
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bind, View

NO_TEXT = "/work/\udcff"  # the path b"/work/\xff"
VIEW = View((Bind(NO_TEXT, True, True, (1, 2), (3, 4), NO_TEXT),), (("/bin", "usr/bin"),), "")
BECOME = Become(
    CellProfile(env={"A": "b"}).changes_to_wire(CellProfile()),
    Identity("root", 1, 2, 3).to_wire(),
    VIEW.to_wire(),
    ["/sys/fs/cgroup/a"],
    ["pids"],
    9,
    [3, 4],
    7,
    6,
    b"\0filter",
    True,
    [(0, False), (1, True)],
    [(1000, 1000)],
)


@pytest.mark.parametrize(
    "message",
    [IsInit(), Forked(2**22), NotEntered("what", "step", "", 1, "cure"), Confined({"on": ["seccomp"]}), BECOME],
)
def test_a_message_arrives_as_it_was_sent(message: IsInit | Forked | NotEntered | Confined | Become) -> None:
    assert unpack(pack(message)) == message


def test_what_becomes_of_a_spare_is_what_was_ordered() -> None:
    become = unpack(pack(BECOME))
    assert CellProfile().changed_from_wire(become.profile) == CellProfile(env={"A": "b"})
    assert Identity.from_wire(become.identity) == Identity("root", 1, 2, 3)
    assert View.from_wire(become.view) == VIEW


def test_the_longest_error_fits_into_one_message() -> None:
    error = SandboxError("\U0001f600" * 100_000, step="enter", mechanism="landlock", cure="\U0001f600" * 100_000)
    told = pack(NotEntered.of(error))
    assert len(told) <= MAX_BYTES and unpack(told).error().step == "enter"


def test_an_end_without_a_word_is_none() -> None:
    assert unpack(b"") is None
