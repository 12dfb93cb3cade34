"""The text of an exception is taken out of an outcome; what the call printed stays."""

import pytest

from toolcell.dispatch.conclude import type_only
from toolcell.pool.run import Captured, Outcome


@pytest.mark.parametrize(
    ("message", "shown"),
    [("LookupError: row 17", "LookupError"), ("a text: with a colon", "An exception"), ("E" * 200, "An exception")],
)
def test_the_outcome_with_the_type_of_its_exception_alone(message: str, shown: str) -> None:
    outcome = type_only(Outcome("error", reason="exception", message=message))
    assert outcome.message == f"{shown} was raised. Its text is not shown."


def test_what_the_call_printed_is_still_shown_without_the_text_of_its_exception() -> None:
    begun, warned = Captured("begun", 5, 0), Captured("warned", 6, 0)
    outcome = type_only(Outcome("error", reason="exception", message="row 17", stdout=begun, stderr=warned))
    assert (outcome.stdout.text, outcome.stderr.text) == ("begun", "warned")
