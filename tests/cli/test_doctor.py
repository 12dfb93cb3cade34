"""`toolcell doctor`, on this machine and in a place where nearly everything is refused: one of our own cells."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio

from toolcell import SessionKind, Supervisor, ToolResult, base_tools
from toolcell.cli.mechanisms import IDENTITY, PURPOSE
from toolcell_sandbox.report import NAMES

from .conftest import ALLOWED, Run


def test_every_mechanism_and_identity_is_explained() -> None:
    assert PURPOSE.keys() == set(NAMES)
    assert IDENTITY.keys() == {"root", "rootless", "userns-root"}


def test_it_names_every_mechanism_and_says_that_all_is_well(cli: Run, anyone: list[str]) -> None:
    done = cli("doctor", before=anyone)
    found = json.loads(cli("doctor", "--json", before=anyone).stdout)
    for mechanism in found["mechanisms"]:
        assert f"{mechanism['state']:<11}  {mechanism['name']} " in done.stdout
    assert ("Everything that toolcell requires is here." in done.stdout) == found["ok"]
    assert done.returncode == (0 if found["ok"] else 1)
    assert done.stderr == ""


def test_as_json_it_is_the_report_and_the_machine(cli: Run, anyone: list[str]) -> None:
    done = cli("doctor", "--json", before=anyone)
    found: dict[str, Any] = json.loads(done.stdout)
    missing = {mechanism["name"] for mechanism in found["mechanisms"] if mechanism["state"] == "missing"}
    assert missing <= set(ALLOWED)
    assert found["ok"] == (not missing)
    assert found["identity"] in IDENTITY
    assert {"kernel", "machine", "python"} <= found.keys()
    assert {mechanism["name"] for mechanism in found["mechanisms"]} <= set(NAMES)


def test_what_is_missing_comes_with_its_reason_its_cure_and_status_1(tmp_path: Path) -> None:
    result = _in_a_cell(tmp_path, "doctor")
    assert result.output["exit_code"] == 1, result
    said = result.output["stdout"]
    assert "missing      mount_namespace" in said
    assert "cure: " in said
    assert "A supervisor refuses to start here." in said
    assert "allow_missing=" in said


def test_a_demo_that_cannot_run_says_why_and_where_to_look(tmp_path: Path) -> None:
    result = _in_a_cell(tmp_path, "demo")
    assert result.output["exit_code"] == 1, result
    assert "The demo cannot run here: The sandbox mechanism" in result.output["stdout"]
    assert "`toolcell doctor`" in result.output["stdout"]
    assert "Traceback" not in result.output["stderr"]


def _in_a_cell(workspace: Path, command: str) -> ToolResult:
    async def run() -> ToolResult:
        async with Supervisor(base_tools(), allow_missing=ALLOWED) as supervisor:
            session = await supervisor.open_session(SessionKind.MAIN, workspace=workspace)
            return await session.call("shell", {"command": f"{sys.executable} -I -m toolcell.cli {command}"})

    return anyio.run(run)
