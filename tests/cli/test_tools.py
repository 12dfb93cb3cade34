"""`toolcell tools`, with the MCP servers of the settings."""

import json
import sys
from pathlib import Path

from tests.behaviour.mcp import server

from .conftest import Run

SECRET = "a-secret-of-the-settings"


def settings(folder: Path) -> Path:
    file = folder / "servers.toml"
    file.write_text(
        f"""
        [mcpServers.honest]
        command = "{sys.executable}"
        args = ["{server.__file__}", "honest"]
        env = {{ API_TOKEN = "{SECRET}" }}
        [mcpServers.gone]
        command = "/nowhere/server"
        """
    )
    return file


def test_it_lists_the_tools_of_each_server_and_says_which_failed(cli: Run, tmp_path: Path) -> None:
    done = cli("tools", "--config", str(settings(tmp_path)))
    said = done.stdout.splitlines()
    assert done.returncode == 1 and done.stderr == ""
    assert "MCP server 'honest'" in said and "  echo  system  Give the text back." in said
    assert any(line.startswith("MCP server 'gone': it failed") for line in said)
    assert SECRET not in done.stdout


def test_a_worker_has_no_tool_of_a_server(cli: Run, tmp_path: Path) -> None:
    done = cli("tools", "--kind", "worker", "--json", "--config", str(settings(tmp_path)))
    found = json.loads(done.stdout)
    assert (done.returncode, found["incidents"]) == (0, [])
    assert {each["source"] for each in found["tools"]} == {""}


def test_doctor_names_servers_and_no_values(cli: Run, tmp_path: Path) -> None:
    file = str(settings(tmp_path))
    said = [cli("doctor", "--config", file, *more).stdout for more in ((), ("--verbose",), ("--json",))]
    assert all("honest" in each and "API_TOKEN" in each and SECRET not in each for each in said)


def test_wrong_settings_are_an_exit_status(cli: Run, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("mcpServers.a = {}")
    done = cli("tools", "--config", str(file))
    assert done.returncode == 2 and "mcpServers.a" in done.stderr
