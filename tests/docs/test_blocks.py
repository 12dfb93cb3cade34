"""Every fenced block of the documentation is run, loaded or parsed, by its language; `pages.py` says how it is read."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import PATIENCE_S
from tests.programs import run as run_program

from toolcell import load_config

from .pages import EXTRAS, PAGES, SETUPS, TRAINING, Block, blocks, commands, programs, shown_tests, shows

RUN = Path(__file__).parent / "run_blocks.py"
LANGUAGES = {"python", "output", "toml", "console", "sh", "yaml", "dockerfile", "text"}
INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "USER", "ENV", "ENTRYPOINT", "CMD"}
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "XDG_CONFIG_HOME": "/nonexistent", "COLUMNS": "120"}


def environment() -> dict[str, str]:
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    return {**os.environ, **ENVIRONMENT, "PATH": path}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        input="",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def of(language: str) -> list[Any]:
    found = [block for page in PAGES for block in blocks(page) if block.language == language]
    return [pytest.param(block, id=f"{block.page}:{block.line}") for block in found]


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page)])
def test_the_programs_of_a_page_run_and_print_what_it_shows(page: str, tmp_path: Path, warm: None) -> None:
    shown = programs(page)
    jobs = [(str(tmp_path / program.name), program.name, program.text) for program in shown]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-I", str(RUN), str(tmp_path / "jobs.json")]
    done = run_program(command, env=environment(), cwd=tmp_path, fork_zygotes=True)
    assert (done.returncode, done.stderr) == (0, "")
    for program, said in zip(shown, json.loads(done.stdout), strict=True):
        assert program.says is None or shows(program.says, said), f"{page}:{program.line} prints\n{said}"


@pytest.mark.parametrize("page", [page for page in PAGES if shown_tests(page)])
def test_the_tests_of_a_page_pass(page: str, tmp_path: Path) -> None:
    (tmp_path / "test_shown.py").write_text(shown_tests(page))
    plugins = ("-p", "anyio.pytest_plugin", "-p", "toolcell.testing.plugin", "-p", "no:cacheprovider")
    done = run(tmp_path, sys.executable, "-m", "pytest", "-q", *plugins, "test_shown.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{shown_tests(page).count('def test_')} passed" in done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))])
def test_the_commands_of_a_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    for name in ("project", "data"):
        (tmp_path / name).mkdir()
    for block, command, shown in commands(page):
        done = run(tmp_path, "bash", "-c", command)
        assert done.returncode == int(block.value if block.mark == "exit" else 0), done.stdout + done.stderr
        assert shows(shown, done.stdout + done.stderr), f"{page}:{block.line} prints\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("block", of("toml"))
def test_settings_are_taken_by_the_loader(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "toolcell.toml").write_text(block.text)
    assert load_config(file=tmp_path / "toolcell.toml").files


@pytest.mark.parametrize("block", of("sh"))
def test_shell_commands_have_no_mistake_of_syntax(block: Block, tmp_path: Path) -> None:
    assert run(tmp_path, "bash", "-n", "-c", block.text).stderr == ""


@pytest.mark.parametrize("block", of("yaml"))
def test_manifests_are_yaml(block: Block) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", of("dockerfile"))
def test_docker_files_have_known_instructions(block: Block) -> None:
    lines = re.sub(r"\\\n", "", block.text).splitlines()
    assert {line.split()[0] for line in lines if line.strip() and not line.startswith("#")} <= INSTRUCTIONS


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page}:{block.line}"
        assert block.mark in {"", "setup", "continues", "pytest", "exit", "extra"}, f"{page}:{block.line}"
        assert block.mark != "setup" or (SETUPS / f"{block.value}.py").is_file()
        assert block.mark != "extra" or block.value in (*EXTRAS, *TRAINING), f"{page}:{block.line}: nothing runs it"


def test_every_setup_is_used() -> None:
    used = {block.value for page in PAGES for block in blocks(page) if block.mark == "setup"}
    assert used == {setup.stem for setup in SETUPS.glob("*.py")}
