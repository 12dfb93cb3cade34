"""The channel of functions: it can do what it has functions for."""

from typing import Any

import pytest
from tests.backends.channels.conversation import request

from toolcell import Approved, Approver, CallbackChannel, UsageError

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


async def test_a_callback_channel_can_do_what_it_has_functions_for() -> None:
    sent: list[tuple[str, str]] = []

    async def ask(question: str, *, options: tuple[str, ...], sender: str) -> str:
        return options[0]

    channel = CallbackChannel(lambda text, sender: sent.append((text, sender)), name="desk", ask=ask)
    assert await channel.send("hi", sender="a") is None and sent == [("hi", "a")]
    assert await channel.ask("?", options=("x",), sender="a") == "x"  # type: ignore[attr-defined]
    assert not hasattr(channel, "pin") and not isinstance(channel, Approver)
    approving = CallbackChannel(print, approve=lambda request: Approved())
    assert isinstance(approving, Approver) and await approving.approve(request()) == Approved()


@pytest.mark.parametrize(
    ("functions", "why"), [({"pinn": print}, "has no 'pinn'"), ({"pin": 3}, "pin is not a function")]
)
def test_a_callback_channel_refuses_what_is_no_operation(functions: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        CallbackChannel(print, **functions)
