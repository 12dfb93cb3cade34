"""What the caller of a call is told whose session ended before the call ran."""

import pytest

from toolcell import Cancelled, SessionState
from toolcell.dispatch.call_errors import closed
from toolcell.sessions.tree import SessionLife


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (SessionState.SUSPENDED, "its session was suspended. Call again after session.resume()."),
        (SessionState.EXPIRED, "its session has expired."),
        (SessionState.COMPLETED, "its session was closed."),
        (SessionState.FAILED, "its session was closed."),
    ],
)
def test_a_call_of_a_session_that_ended_says_how_it_ended(state: SessionState, why: str) -> None:
    life = SessionLife(grace_s=1.0)
    life.state = state
    assert closed("pay", life) == Cancelled(message=f"The call of 'pay' was cancelled: {why}")
