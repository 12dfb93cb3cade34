"""Which tools make their previews themselves. `tests/behaviour/calls/test_approval.py` has previews from cells."""

from typing import Any, cast

import pytest

from toolcell import ToolCall, host_tool, tool
from toolcell.dispatch.ask_approval import is_previewed, preview_of
from toolcell_tools.definition import Tool
from toolcell_tools.preview import DETAILS_CHARS, Preview


def pay(amount: int, note: str = "") -> str:
    """Pay."""
    return f"paid {amount}"


def planned(amount: int, note: str = "") -> Preview:
    return Preview(f"pay {amount}")


@pytest.mark.parametrize(
    ("made", "wanted"),
    [(tool(pay), False), (tool(pay, preview=planned), True), (host_tool(pay, preview=planned), False)],
    ids=["without a preview", "with a preview", "outside of a cell"],
)
def test_a_preview_is_made_in_a_cell_or_not_at_all(made: Tool[..., Any], wanted: bool) -> None:
    assert is_previewed(made) is wanted


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_without_a_preview_is_shown_by_its_arguments_bounded_and_printable(anyio_backend: str) -> None:
    call = ToolCall("c", "pay", {"amount": 5, "note": "\x1b[2J" + "x" * 2 * DETAILS_CHARS})
    shown = await preview_of(cast("Any", None), tool(pay), call)  # no cell, so no context
    assert shown.summary.startswith("pay") and shown.details.startswith("amount: 5\n")
    assert "\x1b" not in shown.summary + shown.details and len(shown.details) < DETAILS_CHARS + 200
