"""The way back: payloads of every provider, hostile ones too, and results in every provider's shape."""

import json
from typing import Annotated, Any

import pytest
from pydantic import Field

from toolcell_tools import (
    AudioBlock,
    CapturedOutput,
    ExecutionError,
    ImageBlock,
    Notice,
    ResourceBlock,
    TextBlock,
    Timeout,
    ToolResult,
    ValidationError,
    base_tools,
    dynamic_tool,
    exports,
    tool,
)
from toolcell_tools.exports import DialectName, Grammar, InvalidCall, ModelCall

from .kit import MODES, declared

ARGUMENTS = {"path": "a.txt", "deep": [{"x": None}]}
TEXT = json.dumps(ARGUMENTS)
PAYLOADS: list[tuple[DialectName, dict[str, Any], str]] = [
    ("openai_chat", {"id": "c1", "type": "function", "function": {"name": "read", "arguments": TEXT}}, "c1"),
    (
        "openai_responses",
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "read", "arguments": TEXT},
        "c1",
    ),
    ("anthropic", {"type": "tool_use", "id": "c1", "name": "read", "input": ARGUMENTS}, "c1"),
    ("gemini", {"functionCall": {"id": "c1", "name": "read", "args": ARGUMENTS}}, "c1"),
    ("gemini", {"name": "read", "args": ARGUMENTS}, ""),
    ("mcp", {"name": "read", "arguments": ARGUMENTS}, ""),
]
DIALECTS: list[DialectName] = ["openai_chat", "openai_responses", "anthropic", "gemini", "mcp"]
PNG = ImageBlock.from_bytes(b"png", "image/png")
MIXED = ToolResult(
    output={"n": 1},
    content=[
        TextBlock(text="see"),
        PNG,
        AudioBlock.from_bytes(b"wave", "audio/wav"),
        ResourceBlock(uri="file:///a", text="inside", mime_type="text/plain"),
        ResourceBlock(uri="file:///b"),
    ],
)
FAILED = ToolResult(error=ExecutionError(message="no such user"), content=[TextBlock(text="unseen")])


def chat(text: str) -> ModelCall:
    """The call with these arguments, as text."""
    return exports.parse_call("openai_chat", {"id": "c1", "function": {"name": "read", "arguments": text}})


@pytest.mark.parametrize(("dialect", "payload", "call_id"), PAYLOADS)
def test_a_payload_is_a_call(dialect: DialectName, payload: dict[str, Any], call_id: str) -> None:
    assert exports.parse_call(dialect, payload) == ModelCall("read", ARGUMENTS, call_id, "read")


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_an_export_gives_the_tools_own_name_back(mode: Any) -> None:
    export = mode.export([declared({"type": "object"}, "x" * 200)])
    name = export.names.exported("x" * 200)
    shapes: dict[str, dict[str, Any]] = {
        "openai_chat": {"id": "c", "function": {"name": name, "arguments": "{}"}},
        "openai_responses": {"call_id": "c", "name": name, "arguments": "{}"},
        "anthropic": {"id": "c", "name": name, "input": {}},
        "gemini": {"functionCall": {"name": name, "args": {}}},
        "mcp": {"name": name, "arguments": {}},
    }
    call = export.parse_call(shapes[export.dialect])
    assert (call.name, call.exported_name) == ("x" * 200, name)


@pytest.mark.parametrize("text", ["", "  ", "{}", "null"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert chat(text).arguments == {}


def test_names_that_other_languages_stumble_over_are_names() -> None:
    assert chat('{"__proto__": {"a": 1}, "constructor": 2, "__class__": 3}').arguments == {
        "__proto__": {"a": 1},
        "constructor": 2,
        "__class__": 3,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "the key 'b' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "not finite"),
        ('{"a": ' + "9" * 5_000 + "}", "digits"),
        (f'{{"a": {2**1023}}}', "1,023 bits"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": ' + "[" * 100_000, "nested more than 64"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64"),
        ('{"a": "' + "x" * 4_000_000 + '"}', "more than 4,000,000 bytes"),
        ("[1]", "not an object"),
        ('"text"', "not an object"),
        ("{'a': 1}", "not valid JSON"),
        ('{"a": 1} trailing', "not valid JSON"),
        ('{"a": "\\"', "not valid JSON"),
    ],
    ids=lambda value: value[:20],
)
def test_hostile_arguments_are_a_validation_error_that_goes_back_to_the_model(text: str, says: str) -> None:
    with pytest.raises(InvalidCall, match=says) as caught:
        chat(text)
    result = caught.value.result
    assert isinstance(result.error, ValidationError) and result.error.retryable
    assert (result.tool, result.call_id) == ("read", "c1")


def test_brackets_in_text_are_no_depth() -> None:
    assert chat(json.dumps({"a": "[{" * 500, "b": '\\"[' * 500})).arguments["a"] == "[{" * 500


def test_many_keys_are_read_in_one_go() -> None:
    assert len(chat(json.dumps({str(n): 1 for n in range(200_000)})).arguments) == 200_000


@pytest.mark.parametrize("payload", [{}, {"id": 3}, {"name": 3, "function": "x"}, {"function": {"name": None}}])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_payload_that_is_no_call_is_refused(dialect: DialectName, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        exports.parse_call(dialect, payload)


# -- free text ---------------------------------------------------------------------------------------------------------

GRAMMAR = Grammar("lark", 'start: "*** Begin Patch" /.+/ "*** End Patch"')
PATCH = dynamic_tool("apply_patch", parameters=str, description="Apply a patch.", handler=lambda text: text)


def say(text: Annotated[str, Field(max_length=5)]) -> str:
    """Say it."""
    return text


def test_a_tool_of_one_text_goes_out_as_free_text_with_a_grammar_and_the_text_comes_back_as_its_argument() -> None:
    export = exports.openai_responses([PATCH, tool(say)], strict=True, freeform={"apply_patch": GRAMMAR, "say": None})
    assert export.tools == [
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Apply a patch.",
            "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR.definition},
        },
        {"type": "custom", "name": "say", "description": "Say it."},
    ]
    item = {"type": "custom_tool_call", "id": "ctc", "call_id": "c1", "name": "say", "input": '{"not": json'}
    call = export.parse_call(item)
    assert call == ModelCall("say", {"text": '{"not": json'}, "c1", "say", is_text=True)
    assert export.encode("say", {"text": "x"}) == {"input": "x"}
    sent = {"type": "custom_tool_call_output", "call_id": "c1", "output": "7"}
    assert export.result_for(call, ToolResult(output=7)) == sent
    assert (
        exports.result_for("openai_responses", exports.parse_call("openai_responses", item), MIXED)["type"]
        == sent["type"]
    )


def test_the_report_says_what_free_text_loses() -> None:
    export = exports.openai_responses([PATCH, tool(say)], freeform={"apply_patch": GRAMMAR, "say": None})
    assert export.report.tightens("apply_patch") and not export.report.loosens("apply_patch")
    (lost,) = [one for one in export.report.of("say") if one.loosens]
    assert (lost.pointer, lost.keyword, lost.action) == ("/properties/text", "maxLength", "dropped")


@pytest.mark.parametrize("payload", [{}, {"input": 3}, {"input": "\ud800"}])
def test_free_text_that_is_none_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        exports.parse_call("openai_responses", {"type": "custom_tool_call", "name": "say", "call_id": "c", **payload})


@pytest.mark.parametrize("name", ["read", "memory_store", "sey"])
def test_what_is_no_tool_of_one_text_cannot_be_free_text(name: str) -> None:
    with pytest.raises(ValueError, match="cannot go out as free text" if name != "sey" else "no tool here is called"):
        exports.openai_responses([tool(say), *base_tools()], freeform={name: None})


# -- results -----------------------------------------------------------------------------------------------------------

CALL = ModelCall("read", {}, "c1", "read")


def test_chat_takes_text_only_and_media_are_named() -> None:
    sent = exports.result_for("openai_chat", CALL, MIXED)
    assert sent == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": '{"n":1}\n\nsee\n\n[image: image/png, 3 bytes, which cannot be shown here]\n\n'
        "[audio: audio/wav, 4 bytes, which cannot be shown here]\n\n[resource file:///a]\ninside\n\n[resource file:///b]",
    }


def test_responses_take_text_or_parts() -> None:
    assert exports.result_for("openai_responses", CALL, ToolResult(output=3)) == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "3",
    }
    parts = exports.result_for("openai_responses", CALL, MIXED)["output"]
    assert [one["type"] for one in parts] == ["input_text", "input_text", "input_image", *["input_text"] * 3]
    assert parts[2]["image_url"] == "data:image/png;base64,cG5n"


def test_anthropic_takes_blocks_and_an_error_flag() -> None:
    sent = exports.result_for("anthropic", CALL, MIXED)
    assert sent["tool_use_id"] == "c1" and "is_error" not in sent
    assert [one["type"] for one in sent["content"]] == ["text", "text", "image", "text", "text", "text"]
    assert sent["content"][2]["source"] == {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    failed = exports.result_for("anthropic", CALL, FAILED)
    assert failed["is_error"] is True and len(failed["content"]) == 1 and "no such user" in failed["content"][0]["text"]
    empty = exports.result_for("anthropic", CALL, ToolResult(content=[TextBlock(text="")]))
    assert empty["content"] == []


def test_gemini_takes_an_object_and_inline_pictures() -> None:
    sent = exports.result_for("gemini", CALL, MIXED)["functionResponse"]
    assert (sent["name"], sent["id"]) == ("read", "c1")
    assert sent["response"]["output"] == {"n": 1} and len(sent["response"]["content"]) == 4
    assert sent["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "cG5n"}}]
    failed = exports.result_for("gemini", CALL, FAILED)["functionResponse"]
    assert failed["response"]["error"]["message"] == "no such user" and "parts" not in failed


def test_gemini_takes_maps_and_lists_as_data_and_notices_beside_them() -> None:
    def response(output: object, **more: Any) -> Any:
        result = ToolResult(output=output, **more)
        return exports.result_for("gemini", CALL, result)["functionResponse"]["response"]

    rows = {"rows": [{"id": 1, "share": 0.5, "name": None}], "error": "a column"}
    notice = Notice(kind="unchecked", message="not all was looked at")
    assert response(rows) == {"output": rows}
    assert response([1, "a"], notices=(notice,)) == {
        "output": [1, "a"],
        "notices": ["[notice: not all was looked at]"],
    }
    assert response({"share": float("nan")}) == {"output": {"share": "NaN"}}
    assert response("text") == {"output": "text"}
    assert response({"id": 2**53 + 1}) == {"output": '{"id":9007199254740993}'}, "a double would round it"
    assert "kept" in response({"text": "x" * 200_000})["output"]


def test_mcp_takes_everything() -> None:
    sent = exports.result_for("mcp", CALL, MIXED)
    assert sent["isError"] is False and sent["structuredContent"] == {"n": 1}
    assert [one["type"] for one in sent["content"]] == ["text", "text", "image", "audio", "resource", "resource_link"]
    assert sent["content"][4]["resource"] == {"uri": "file:///a", "mimeType": "text/plain", "text": "inside"}
    assert exports.result_for("mcp", CALL, ToolResult(output=3))["structuredContent"] == {"result": 3}
    failed = exports.result_for("mcp", CALL, FAILED)
    assert failed["isError"] is True and "structuredContent" not in failed


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_result_is_json_and_an_error_says_why(dialect: DialectName) -> None:
    for result in (MIXED, FAILED, ToolResult(), ToolResult(output=[1, "a"])):
        assert json.loads(json.dumps(exports.result_for(dialect, CALL, result), allow_nan=False))
    assert "no such user" in json.dumps(exports.result_for(dialect, CALL, FAILED))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_tells_the_notices_with_an_output_an_error_and_content_alone(dialect: DialectName) -> None:
    notices = (Notice(kind="state_lost", message="All variables are gone."),)
    for result in (MIXED, FAILED, ToolResult(output=3), ToolResult(content=[TextBlock(text="see")])):
        told = exports.result_for(dialect, CALL, result.model_copy(update={"notices": notices}))
        assert json.dumps(told).count("[notice: All variables are gone.]") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_tells_what_a_call_printed_that_was_cut_short(dialect: DialectName) -> None:
    printed = CapturedOutput(text="first\u202e and last", total_bytes=40_000, omitted_bytes=10_000)
    result = ToolResult(error=Timeout(message="too late", elapsed=1.0), stdout=printed)
    told = json.dumps(exports.result_for(dialect, CALL, result))
    assert "first" in told and "u202e and last" in told and "stdout_omitted_bytes" in told and "10000" in told
    failed = FAILED.model_copy(update={"stdout": printed})
    assert "and last" not in json.dumps(exports.result_for(dialect, CALL, failed)), "what it says is its message"
