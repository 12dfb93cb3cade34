"""The switches of the tricks for speed: TOOLCELL_PLAIN names them, and a supervisor without them does the same."""

import os
import re
import subprocess
import sys
from itertools import combinations

import pytest
from tests.docs.pages import ROOT

from toolcell.wire.switches import TRICKS, VARIABLE, off_by


def test_one_turns_all_off_and_nothing_turns_none_off() -> None:
    assert off_by("1") == frozenset(TRICKS)
    assert off_by("") == off_by("0") == frozenset()


def test_some_are_turned_off_by_name() -> None:
    assert off_by("warm_up, prewarm") == {"warm_up", "prewarm"}


def test_a_name_that_is_none_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"TOOLCELL_PLAIN names no trick: 'warmup'. Pass 1, or some of prewarm,"):
        off_by("warmup")


def halves() -> list[str]:
    """Sets of tricks, separated by commas: each trick is in one, and of each two tricks one is in a set without the
    other. A set holds the tricks whose number, from 1, has a certain bit."""
    numbered = list(enumerate(TRICKS, 1))
    return [
        ",".join(trick for number, trick in numbered if number >> bit & 1) for bit in range(len(TRICKS).bit_length())
    ]


def test_each_trick_is_turned_off_and_each_two_apart() -> None:
    sets = [frozenset(half.split(",")) for half in halves()]
    for one, other in combinations(TRICKS, 2):
        assert any((one in tricks) != (other in tricks) for tricks in sets)
    assert frozenset().union(*sets) == frozenset(TRICKS)


@pytest.mark.parametrize("off", ["1", *halves()])
def test_without_tricks_every_outcome_of_the_demo_is_the_same(off: str) -> None:
    """Crashes, floods, hangs, handles, kept processes: the demo checks each outcome."""
    environment = os.environ | {VARIABLE: off}
    command = [sys.executable, "-I", "-m", "toolcell.cli", "demo"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each with the right outcome" in done.stdout


def test_every_switch_is_asked_somewhere_and_has_a_row_in_the_table() -> None:
    asked: set[str] = set()
    for path in (ROOT / "executor/toolcell").rglob("*.py"):
        asked.update(re.findall(r'is_on\("(\w+)"\)', path.read_text()))
    assert asked == set(TRICKS)
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/performance.md").read_text(), re.MULTILINE)
    assert rows == list(TRICKS)
