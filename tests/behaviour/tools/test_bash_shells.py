"""Shells with state in a kept process. `tests/training/test_swe_rex.py` has the rest."""

from typing import Any

import pytest

from toolcell import Session
from toolcell_tools.for_programs.bash_shells import BashCell, ShellEvent

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
TOOLS = [BashCell()]


async def step(session: Session, action: str, command: str = "", **more: Any) -> ShellEvent:
    result = await session.call("bash_session", {"action": action, "command": command, **more})
    return ShellEvent.model_validate(result.unwrap())


async def test_a_shell_keeps_its_state_and_tells_exit_codes_and_wrong_syntax(main: Session) -> None:
    assert (await step(main, "open", "mkdir -p sub; cd sub; A=1")).event == "done"
    done = await step(main, "run", 'basename "$PWD"; echo $A; (exit 3)')
    assert (done.event, done.output, done.exit_code) == ("done", "sub\n1\n", 3)
    assert (await step(main, "run", "echo 'open")).event == "syntax_error"
    assert (await step(main, "run", "cat")).output == ""
    assert (await step(main, "run", "echo", shell="other")).event == "unknown_shell"
    assert (await step(main, "run", "exit 4")).exit_code == 4
    assert (await step(main, "close")).event == "done"


async def test_a_command_that_is_interrupted_ends_and_leaves_no_trace_in_the_next(main: Session) -> None:
    await step(main, "open")
    begun = await step(main, "run", "echo begun; sleep 3600", timeout_s=5)
    assert (begun.event, begun.output) == ("timeout", "begun\n")
    assert (await step(main, "interrupt", timeout_s=60)).exit_code == 130
    await step(main, "run", "sleep 1; echo late", timeout_s=0.1)
    assert (await step(main, "run", "echo on")).output == "late\non\n"


async def test_a_flood_is_cut_in_the_middle(main: Session) -> None:
    await step(main, "open")
    output = (await step(main, "run", "seq 100000")).output
    assert output.startswith("1\n2\n") and output.endswith("100000\n")
    assert len(output) < 250_000 and "bytes …]" in output
