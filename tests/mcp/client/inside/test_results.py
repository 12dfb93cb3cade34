"""The result of `tools/call` as that of a tool."""

from typing import Any

import pytest

from toolcell.mcp.client.inside.call_result import answer_of
from toolcell_tools.failures import ToolFailure


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_the_words_of_a_failed_call_are_kept_up_to_4000_characters() -> None:
    for length in (3_999, 4_000, 4_001, 10_000):
        with pytest.raises(ToolFailure) as failed:
            answer_of({"isError": True, "content": [text("x" * length)]})
        assert str(failed.value) == "x" * min(length, 4_000)


def test_the_display_of_a_long_answer_has_2000_characters_and_its_content_all() -> None:
    answer = answer_of({"content": [text("x" * 3_000)]})
    assert answer.display == "x" * 2_000 and answer.content == [text("x" * 3_000)]
