"""What a maker and a cell tell each other arrives as it was sent."""

import pytest

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.network import NoNetwork, ProxyNetwork
from toolcell_sandbox.order import (
    MAX_BYTES,
    Become,
    Confined,
    Forked,
    IsInit,
    NotEntered,
    Particulars,
    Paths,
    pack,
    sealed,
    unpack,
    unsealed,
)
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bind, View

NO_TEXT = "/work/\udcff"  # the path b"/work/\xff"
VIEW = View((Bind(NO_TEXT, True, True, (1, 2), (3, 4), NO_TEXT),), (("/bin", "usr/bin"),), "")
BECOME = Become(
    Identity("root", 1, 2, 3).to_wire(),
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


def test_what_only_the_cell_may_know_arrives_in_a_file_of_any_length() -> None:
    profile = CellProfile.for_kind("worker").replace(env={"A": "b" * 1_000_000}, readable=("/srv/a",), hostname="h")
    told = unsealed(sealed(Particulars(profile.to_wire(), VIEW.to_wire())))
    assert profile.figures().changed_from_wire(told.profile) == profile
    assert View.from_wire(told.view) == VIEW
    assert unsealed(sealed(Paths([VIEW.binds[0].to_wire()]))) == Paths([VIEW.binds[0].to_wire()])


def test_the_figures_of_a_profile_are_the_same_for_sessions_that_differ_in_names_and_paths() -> None:
    profile = CellProfile.for_kind("worker").replace(proc=False)
    network = ProxyNetwork(allow=["example.org"])
    other = profile.replace(
        env={"A": "b"},
        pass_env=("C",),
        readable=("/srv/a",),
        writable=("/srv/b",),
        system=("/srv/c",),
        cwd="/srv/d",
        hostname="h",
        protected=("e",),
        network=network,
    )
    assert other.figures() == profile.replace(network=network).figures().replace(network=ProxyNetwork())
    assert other.figures().replace(network=NoNetwork()) == profile.figures()
    assert (other.figures().limits, other.figures().grants) == (profile.limits, profile.grants)


def test_the_longest_error_fits_into_one_message() -> None:
    error = SandboxError("\U0001f600" * 100_000, step="enter", mechanism="landlock", cure="\U0001f600" * 100_000)
    told = pack(NotEntered.of(error))
    assert len(told) <= MAX_BYTES and unpack(told).error().step == "enter"


def test_an_end_without_a_word_is_none() -> None:
    assert unpack(b"") is None
