"""The command line itself: help, version, what an unknown word gets, and how little of it is imported."""

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest
from tests import programs

from toolcell.cli.app import toolcell

from .conftest import Run


def test_the_console_script_is_installed_and_shows_its_commands() -> None:
    script = Path(sysconfig.get_path("scripts"), "toolcell")
    done = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: toolcell [OPTIONS] COMMAND")
    assert all(f"\n  {name} " in done.stdout for name in toolcell.commands)


def test_the_help_of_the_group_cuts_no_summary(cli: Run) -> None:
    said = cli("--help").stdout
    assert "..." not in said.partition("Commands:")[2]
    for name, command in toolcell.commands.items():
        assert command.short_help and len(command.short_help) <= 60
        assert re.search(rf"^  {name} +{re.escape(command.short_help)}$", said, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(toolcell.commands))
def test_every_command_says_what_it_does_and_what_its_exit_status_means(cli: Run, name: str) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0
    assert "Exit status" in done.stdout
    options = [parameter for parameter in toolcell.commands[name].params if parameter.param_type_name == "option"]
    assert all(getattr(option, "help", None) for option in options)


def test_the_version_is_the_distribution_s(cli: Run) -> None:
    assert cli("--version").stdout.strip() == f"toolcell {version('toolcell')}"


def test_an_unknown_command_is_refused_with_status_2(cli: Run) -> None:
    done = cli("frobnicate")
    assert done.returncode == 2
    assert "No such command 'frobnicate'" in done.stderr


@pytest.mark.parametrize(
    "command", ["doctor", "doctor --json", "tools", "audit list", "approvals list", "status", "serve"]
)
def test_a_command_in_a_directory_that_was_deleted_says_so(tmp_path: Path, warm: None, command: str) -> None:
    inside = tmp_path / "deleted"
    inside.mkdir()
    code = f"import os, runpy, sys; os.chdir({str(inside)!r}); os.rmdir({str(inside)!r}); "
    code += f"sys.argv = {['toolcell', *command.split()]!r}; runpy.run_module('toolcell.cli', run_name='__main__')"
    done = programs.run([sys.executable, "-I", "-c", code], timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "The current directory does not exist any more. Change to another one first." in done.stderr


@pytest.mark.parametrize("group", ["audit", "approvals"])
def test_the_state_directory_may_be_given_before_or_after_the_word_of_the_command(
    cli: Run, tmp_path: Path, group: str
) -> None:
    nowhere, other = str(tmp_path / "nowhere"), str(tmp_path / "other")
    after = cli(group, "list", "--state", nowhere)
    assert after.returncode == 2 and nowhere in after.stderr
    assert cli(group, "--state", nowhere, "list").stderr == after.stderr
    assert cli(group, "--state", other, "list", "--state", nowhere).stderr == after.stderr


def test_an_unknown_mechanism_is_refused_and_the_known_ones_are_named(cli: Run) -> None:
    done = cli("demo", "--allow-missing", "luck")
    assert done.returncode == 2
    assert "landlock_scope" in done.stderr


def test_help_imports_neither_rich_nor_the_runtime() -> None:
    code = (
        "import sys; sys.argv = ['toolcell', '--help']\n"
        "from toolcell.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'pydantic', 'anyio', 'toolcell.supervisor', 'toolcell_tools'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_cell_imports_the_demo_s_tools_without_click_and_rich() -> None:
    code = (
        "import sys, toolcell.cli.demo_tools\n"
        "heavy = {'rich', 'click'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
