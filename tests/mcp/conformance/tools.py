"""The tools that the conformance suites call. Each call runs in a cell, as any tool's."""

import os
import time
from base64 import b64decode
from typing import Any

from toolcell import (
    AudioBlock,
    ImageBlock,
    ResourceBlock,
    TextBlock,
    ToolContext,
    ToolFailure,
    ToolResult,
    dynamic_tool,
    tool,
)
from toolcell.mcp import Answers, InputRequired, accepted, elicitation, mcp_metadata, roots, sampling

ANSWERS = mcp_metadata(answers="answers")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


# -- results -----------------------------------------------------------------------------------------------------------


@tool
def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> ToolResult:
    """Return a picture."""
    return ToolResult(content=[ImageBlock(data=PNG, mime_type="image/png")])


@tool
def test_audio_content() -> ToolResult:
    """Return a sound."""
    return ToolResult(content=[AudioBlock(data=WAV, mime_type="audio/wav")])


@tool
def test_embedded_resource() -> ToolResult:
    """Return a resource."""
    text = "This is an embedded resource content."
    return ToolResult(content=[ResourceBlock(uri="test://embedded-resource", mime_type="text/plain", text=text)])


@tool
def test_multiple_content_types() -> ToolResult:
    """Return text, a picture and a resource."""
    uri, text = "test://mixed-content-resource", '{"test":"data","value":123}'
    return ToolResult(
        content=[
            TextBlock(text="Multiple content types test:"),
            ImageBlock(data=PNG, mime_type="image/png"),
            ResourceBlock(uri=uri, mime_type="application/json", text=text),
        ]
    )


@tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolFailure("This tool intentionally returns an error for testing")


@tool
def test_tool_with_logging(ctx: ToolContext) -> str:
    """Log three messages."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log(message)
        time.sleep(0.05)
    return "The tool has logged three messages."


@tool
def test_logging_tool(ctx: ToolContext) -> str:
    """Log a message."""
    ctx.log("a message")
    return "The tool has logged a message."


@tool
def test_tool_with_progress(ctx: ToolContext) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(f"{done} of 100", done / 100)
        time.sleep(0.05)
    return "The tool has reported its progress."


def _echoed(arguments: dict[str, Any]) -> str:
    return f"The arguments are {sorted(arguments)}."


json_schema_2020_12_tool = dynamic_tool(
    "json_schema_2020_12_tool",
    handler=_echoed,
    description="Tool with JSON Schema 2020-12 features",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
test_custom_header = dynamic_tool(
    "test_custom_header",
    handler=_echoed,
    description="Tool with a parameter that a client also sends as a header",
    parameters={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    },
)


# -- questions ---------------------------------------------------------------------------------------------------------


def _asked(answers: Answers | None, **questions: dict[str, Any]) -> Answers:
    """The answers. Asks for those that are missing."""
    missing = {name: each for name, each in questions.items() if name not in (answers or {})}
    if missing:
        raise InputRequired(missing)
    return answers or {}


def _said(answer: dict[str, Any]) -> str:
    return f"action={answer.get('action')}, content={answer.get('content')}"


@tool(metadata=ANSWERS)
def test_elicitation(message: str, answers: Answers | None = None) -> str:
    """Ask the person at the client."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    schema = {"type": "object", "properties": fields, "required": ["username", "email"]}
    return f"User response: {_said(_asked(answers, user=elicitation(message, schema))['user'])}"


@tool(metadata=ANSWERS)
def test_sampling(prompt: str, answers: Answers | None = None) -> str:
    """Ask the client's model."""
    said = _asked(answers, model=sampling(prompt, max_tokens=100))["model"]
    return f"LLM response: {said['content'].get('text')}"


@tool(metadata=ANSWERS)
def test_elicitation_sep1034_defaults(answers: Answers | None = None) -> str:
    """Ask with defaults."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    said = _asked(answers, form=elicitation("Please fill in.", {"type": "object", "properties": fields}))
    return f"Elicitation completed: {_said(said['form'])}"


@tool(metadata=ANSWERS)
def test_elicitation_sep1330_enums(answers: Answers | None = None) -> str:
    """Ask with choices."""
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(_WORDS, 1)]
    chosen = [{"const": f"value{number}", "title": f"{word} Choice"} for number, word in enumerate(_WORDS, 1)]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", **legacy},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": chosen}},
    }
    said = _asked(answers, form=elicitation("Please choose.", {"type": "object", "properties": fields}))
    return f"Elicitation completed: {_said(said['form'])}"


_WORDS = ("First", "Second", "Third")


@tool(metadata=ANSWERS)
def test_input_required_result_elicitation(answers: Answers | None = None) -> str:
    """Ask for a name."""
    said = _asked(answers, user_name=elicitation("What is your name?", NAME))
    return f"Hello, {(accepted(said, 'user_name') or {}).get('name', 'stranger')}!"


@tool(metadata=ANSWERS)
def test_streaming_elicitation(ctx: ToolContext, answers: Answers | None = None) -> str:
    """Report progress, and ask for a name."""
    ctx.progress("before the question", 0.5)
    said = _asked(answers, user_name=elicitation("What is your name?", NAME))
    return f"Hello, {(accepted(said, 'user_name') or {}).get('name', 'stranger')}!"


@tool(metadata=ANSWERS)
def test_input_required_result_sampling(answers: Answers | None = None) -> str:
    """Ask the client's model for a capital."""
    said = _asked(answers, capital_question=sampling("What is the capital of France?", max_tokens=100))
    return str(said["capital_question"]["content"].get("text"))


@tool(metadata=ANSWERS)
def test_missing_capability(answers: Answers | None = None) -> str:
    """Need the client's model."""
    said = _asked(answers, model=sampling("Say something.", max_tokens=10))
    return str(said["model"]["content"].get("text"))


@tool(metadata=ANSWERS)
def test_input_required_result_list_roots(answers: Answers | None = None) -> str:
    """Ask for the client's directories."""
    said = _asked(answers, client_roots=roots())
    return f"The roots are {[each['uri'] for each in said['client_roots']['roots']]}."


@tool(metadata=ANSWERS)
def test_input_required_result_request_state(answers: Answers | None = None) -> str:
    """Ask for a confirmation. The server keeps the state."""
    _asked(answers, confirm=elicitation("Please confirm", OK))
    return "state-ok"


@tool(metadata=ANSWERS)
def test_input_required_result_tampered_state(answers: Answers | None = None) -> str:
    """Ask for a confirmation. The server refuses another state."""
    _asked(answers, confirm=elicitation("Please confirm", OK))
    return "state-ok"


@tool(metadata=ANSWERS)
def test_input_required_result_multiple_inputs(answers: Answers | None = None) -> str:
    """Ask three questions at once."""
    said = _asked(
        answers,
        user_name=elicitation("What is your name?", NAME),
        greeting=sampling("Generate a greeting", max_tokens=50),
        client_roots=roots(),
    )
    return f"{len(said)} answers"


@tool(metadata=ANSWERS)
def test_input_required_result_multi_round(answers: Answers | None = None) -> str:
    """Ask two questions, one after the other."""
    color = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    _asked(answers, step1=elicitation("Step 1: What is your name?", NAME))
    said = _asked(answers, step2=elicitation("Step 2: What is your favorite color?", color))
    return f"{accepted(said, 'step1')} likes {accepted(said, 'step2')}"


@tool(metadata=ANSWERS)
def test_input_required_result_capabilities(answers: Answers | None = None) -> str:
    """Ask the person or the model, as the client can."""
    if not answers:
        questions = {
            "person": elicitation("What is your name?", NAME),
            "model": sampling("Make up a name.", max_tokens=9),
        }
        raise InputRequired(questions, any_of=True)
    return f"answered by {', '.join(answers)}"


# -- tasks -------------------------------------------------------------------------------------------------------------


@tool
def greet(name: str) -> str:
    """Greet."""
    return f"Hello, {name}!"


@tool(metadata=mcp_metadata(task="optional"), timeout=90.0)
def slow_compute(ctx: ToolContext, seconds: float, label: str = "") -> str:
    """Compute for some seconds."""
    ctx.progress(f"computing {label}")
    time.sleep(seconds)
    return f"computed {label} in {seconds} s"


@tool(metadata=mcp_metadata(task="required"))
def failing_job() -> str:
    """Fail after a second."""
    time.sleep(1)
    raise ToolFailure("The job has failed.")


@tool(metadata=mcp_metadata(task="optional"))
def protocol_error_job() -> str:
    """End the process without an answer."""
    os.abort()


@tool(metadata=mcp_metadata(answers="answers", task="optional"))
def confirm_delete(filename: str, answers: Answers | None = None) -> str:
    """Ask before a file would be deleted."""
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}
    said = _asked(answers, confirm=elicitation(f"Delete {filename}?", schema))
    return f"{filename}: {accepted(said, 'confirm')}"


@tool(metadata=mcp_metadata(answers="answers", task="optional"))
def multi_input(answers: Answers | None = None) -> str:
    """Ask two questions at once."""
    said = _asked(answers, first=elicitation("First?", NAME), second=elicitation("Second?", NAME))
    return f"{accepted(said, 'first')} {accepted(said, 'second')}"


@tool(metadata=mcp_metadata(answers="answers", task="required", ask_first=True))
def test_tool_with_task(answers: Answers | None = None) -> str:
    """Ask for a name, and then run as a task."""
    said = _asked(answers, user_name=elicitation("What is your name?", NAME))
    return f"The task was for {(accepted(said, 'user_name') or {}).get('name')}."


@tool(metadata=mcp_metadata(poll_after_s=0.2))
def test_reconnection() -> str:
    """Take longer than the client's stream is kept open."""
    time.sleep(1)
    return "The client has come back for the result."


# -- changes -----------------------------------------------------------------------------------------------------------


@tool
def test_trigger_tool_change(ctx: ToolContext) -> str:
    """Change the list of tools."""
    ctx.values["has_extra"] = not ctx.values.get("has_extra", False)
    return f"the extra tool is {'there' if ctx.values['has_extra'] else 'gone'}"


@tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    return "changed"


@tool
def test_extra() -> str:
    """Be there now and then."""
    return "here"


TOOLS = [each for name, each in list(globals().items()) if hasattr(each, "declaration") and name != "test_extra"]
PICTURE = b64decode(PNG)
