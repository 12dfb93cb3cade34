"""Batches without any call: what a call may be, and the results in the format of each provider."""

from typing import Any

import pytest

from toolcell import UsageError, tool
from toolcell.runtime.batch import BatchResult, parsed, placeholder, refused
from toolcell_tools import ToolResult, exports
from toolcell_tools.exports import Export, InvalidCall, ModelCall


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


CHAT: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
BROKEN: dict[str, Any] = {"id": "2", "type": "function", "function": {"name": "add", "arguments": '{"a":1'}}
FORMATS: list[tuple[Export, list[dict[str, Any]]]] = [
    (exports.openai_chat([add]), [CHAT, BROKEN]),
    (
        exports.openai_responses([add]),
        [
            {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a":1,"b":2}'},
            {"type": "function_call", "call_id": "2", "name": "add", "arguments": "{"},
        ],
    ),
    (
        exports.anthropic([add]),
        [
            {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1, "b": 2}},
            {"type": "tool_use", "id": "2", "name": "add", "input": 3},
        ],
    ),
]


def results(calls: list[ModelCall | InvalidCall]) -> tuple[ToolResult, ...]:
    return tuple(ToolResult(output=3) if isinstance(call, ModelCall) else refused(call, "s") for call in calls)


@pytest.mark.parametrize(("export", "payloads"), FORMATS, ids=lambda each: getattr(each, "dialect", ""))
def test_payloads_are_parsed_and_their_results_go_back_in_order(export: Export, payloads: list[dict[str, Any]]) -> None:
    calls = parsed(payloads, export)
    assert isinstance(calls[0], ModelCall) and calls[0].arguments == {"a": 1, "b": 2}
    assert isinstance(calls[1], InvalidCall) and (calls[1].name, calls[1].call_id) == ("add", "2")
    batch = BatchResult(results(calls), tuple(map(placeholder, calls)), export)
    messages = batch.messages()
    if export.dialect == "anthropic":
        (message,) = messages
        assert message["role"] == "user"
        blocks = message["content"]
        assert [block["tool_use_id"] for block in blocks] == ["1", "2"]
        assert [bool(block.get("is_error")) for block in blocks] == [False, True]
    else:
        key = "tool_call_id" if export.dialect == "openai_chat" else "call_id"
        assert [message[key] for message in messages] == ["1", "2"]


def test_gemini_gets_one_message_with_a_part_for_each_call() -> None:
    export = exports.gemini([add])
    calls = parsed([{"functionCall": {"name": "add", "args": {"a": 1, "b": 2}}}] * 2, export)
    (message,) = BatchResult(results(calls), tuple(map(placeholder, calls)), export).messages()
    assert message["role"] == "user" and len(message["parts"]) == 2


def test_an_id_that_stands_twice_is_refused_the_second_time() -> None:
    first, second, third = parsed([CHAT, CHAT, ("add", {"a": 1})], exports.openai_chat([add]))
    assert isinstance(first, ModelCall) and isinstance(third, ModelCall)
    assert isinstance(second, InvalidCall) and "twice" in str(second)


@pytest.mark.parametrize("call", [CHAT, "add", ("add", 3), (3, {}), ("add", {}, 1), None])
def test_an_object_that_is_no_call_is_refused(call: Any) -> None:
    with pytest.raises(UsageError, match="no call"):
        parsed([call], None)


def test_a_batch_is_a_sequence_and_needs_an_export_for_messages() -> None:
    one, two = ToolResult(output=1), ToolResult(output=2)
    batch = BatchResult((one, two), (ModelCall("add", {}), ModelCall("add", {})))
    assert list(batch) == [one, two] and batch[1] is two and batch[:1] == (one,) and len(batch) == 2
    with pytest.raises(UsageError, match="export="):
        batch.messages()
