"""`PythonCell`: Python with state in a kept process, whose code calls tools outside of it. No framework takes part."""

from typing import Any

import pytest

from toolcell import Session
from toolcell_tools.for_programs.python_code import MAX_LOGS, PythonCell

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
TOOLS = [PythonCell()]


async def step(session: Session, action: str, **more: Any) -> dict[str, Any]:
    event: dict[str, Any] = (await session.call("run_python", {"action": action, **more})).unwrap()
    return event


async def test_variables_last_from_call_to_call(main: Session) -> None:
    assert (await step(main, "set", value={"a": 2}))["event"] == "done"
    assert (await step(main, "run", code="b = a + 1"))["output"] == 3
    assert (await step(main, "run", code="b * 2"))["output"] == 6


async def test_the_value_of_the_last_line_is_json_or_text(main: Session) -> None:
    assert (await step(main, "run", code="x = 1\n[x, {'y': None}]"))["output"] == [1, {"y": None}]
    assert (await step(main, "run", code="object"))["output"] == "<class 'object'>"
    assert (await step(main, "run", code="if True:\n    1"))["output"] is None
    assert (await step(main, "run", code=""))["output"] is None


async def test_the_code_waits_for_the_answer_of_a_tool(main: Session) -> None:
    event = await step(main, "run", code="print('asks')\nlook('a', deep=True) + 1", tools=["look"])
    assert (event["event"], event["tool"], event["args"], event["kwargs"]) == ("tool", "look", ["a"], {"deep": True})
    event = await step(main, "answer", value=41)
    assert (event["event"], event["output"], event["logs"]) == ("done", 42, "asks\n")


async def test_a_failure_of_a_tool_is_an_exception_in_the_code(main: Session) -> None:
    code = "try:\n    look()\nexcept RuntimeError as error:\n    final_answer(str(error))"
    assert (await step(main, "run", code=code, tools=["look"]))["event"] == "tool"
    event = await step(main, "fail", value="it is dark")
    assert (event["event"], event["output"]) == ("final", "it is dark")


async def test_other_code_ends_the_code_that_waits(main: Session) -> None:
    await step(main, "run", code="left = 1\ntry:\n    look()\nfinally:\n    left = 2", tools=["look"])
    assert (await step(main, "run", code="left"))["output"] == 2


async def test_an_answer_that_no_code_waits_for_is_a_failure(main: Session) -> None:
    result = await main.call("run_python", {"action": "answer", "value": 1})
    assert result.error is not None and "Run the code again" in result.error.message


async def test_arguments_of_a_tool_that_are_no_json_are_an_error_of_the_code(main: Session) -> None:
    event = await step(main, "run", code="look(object())", tools=["look"])
    assert event["event"] == "error" and "object cannot be sent" in event["error"]


async def test_an_error_names_its_line_and_what_was_printed(main: Session) -> None:
    event = await step(main, "run", code="print('before')\n1 / 0")
    assert event["error"] == "Code execution failed at line 2, '1 / 0': ZeroDivisionError: division by zero"
    assert event["logs"] == "before\n"


async def test_long_output_is_cut_in_the_middle(main: Session) -> None:
    event = await step(main, "run", code=f"print('a' * {MAX_LOGS} + 'b' * 10)")
    assert len(event["logs"]) < MAX_LOGS + 100 and event["logs"].endswith("b\n") and "characters" in event["logs"]


async def test_the_code_has_the_workspace_and_nothing_else(main: Session) -> None:
    await step(main, "run", code="open('a.txt', 'w').write('hello')")
    assert (main.workspace / "a.txt").read_text() == "hello"
    event = await step(main, "run", code="import socket\nsocket.create_connection(('127.0.0.1', 9))")
    assert event["event"] == "error"


async def test_a_crash_loses_the_variables_and_the_next_code_runs(main: Session) -> None:
    await step(main, "run", code="a = 1")
    error = (await main.call("run_python", {"action": "run", "code": "import ctypes\nctypes.string_at(0)"})).error
    assert error is not None and error.kind == "crashed"
    assert "NameError" in (await step(main, "run", code="a"))["error"]
