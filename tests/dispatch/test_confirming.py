"""The outcome of a call that has asked for a confirmation."""

from typing import cast

from toolcell.dispatch.ask_confirmation import pending
from toolcell.dispatch.route import Route
from toolcell.dispatch.run_in_cell import Ran
from toolcell.pool.run import NOTHING_USED, Captured, Outcome


def test_a_call_that_waits_for_an_answer_shows_what_it_printed() -> None:
    printed = Captured("found 3 files", 13, 0)
    asked = Outcome("error", reason="confirm", message="Remove it?", stdout=printed)
    waits = pending(Ran(cast("Route", None), asked, NOTHING_USED), "c-1", "Remove it?")
    assert waits.outcome.stdout.text == "found 3 files"
    assert waits.confirmation == "c-1"
    assert waits.outcome.ending == "result"
