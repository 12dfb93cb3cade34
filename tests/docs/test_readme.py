"""The documents cannot rot: README code and examples run, and what there is to know by name is named."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from toolcell import Limits, ToolError, load_config
from toolcell.cli.app import toolcell
from toolcell.config.schema import PROFILE, SUPERVISOR

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("[!t]*.py"))  # test_*.py are run by tests/testing/test_plugin.py
ERRORS: tuple[type[BaseModel], ...] = get_args(get_args(ToolError)[0])


def _run(program: Path, cwd: Path) -> str:
    done = subprocess.run([sys.executable, program], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def _run_block(block: str, folder: Path) -> str:
    """Run a block of the README as a script, where it says it is run: beside the directories that it names."""
    for name in ("project", "data"):
        (folder / name).mkdir()
    script = folder / "script.py"
    script.write_text(block)
    return _run(script, folder)


def test_the_first_example_does_what_its_comments_say(tmp_path: Path) -> None:
    said = _run_block(BLOCKS[0], tmp_path).splitlines()
    assert said[0] == "saved 5 characters"
    assert "kind='permission_denied'" in said[1]
    assert "no write handle" in said[1]
    assert (tmp_path / "project" / "a.txt").read_text() == "hello"


@pytest.mark.parametrize("block", BLOCKS[1:], ids=lambda block: next(line for line in block.splitlines() if line))
def test_every_other_block_runs(block: str, tmp_path: Path) -> None:
    assert _run_block(block, tmp_path)


@pytest.mark.parametrize("framework", ["asyncio", "trio"])
def test_the_first_example_runs_on_both_event_loops_as_the_readme_says(framework: str, tmp_path: Path) -> None:
    block = (
        BLOCKS[0]
        .replace("import anyio", f"import {framework}")
        .replace("anyio.run(main)", "asyncio.run(main())" if framework == "asyncio" else "trio.run(main)")
    )
    assert _run_block(block, tmp_path).startswith("saved 5 characters")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    assert _run(example, tmp_path)
    assert not os.listdir(tmp_path)


def test_every_command_is_named() -> None:
    for name in toolcell.commands:
        assert f"toolcell {name}" in README


def test_no_command_is_named_that_does_not_exist() -> None:
    assert set(re.findall(r"`toolcell ([a-z]+)", README)) <= toolcell.commands.keys()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_in_the_table_with_its_kind_and_facts(error: type[BaseModel]) -> None:
    kind = error.model_fields["kind"].default
    row = re.search(rf"^\| `{error.__name__}` \| `{kind}` \| (.*)\|$", README, re.MULTILINE)
    assert row is not None
    for fact in error.model_fields.keys() - {"kind", "message", "retryable"}:
        assert f"`{fact}`" in row[1]
    assert ("retryable" in row[1]) == error.model_fields["retryable"].default


def test_every_limit_is_named() -> None:
    for field in dataclasses.fields(Limits):
        assert f"`{field.name}`" in README


def test_every_setting_is_named_and_those_of_the_example_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*PROFILE, *SUPERVISOR):
        assert f"`{name}`" in README
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert settings
    (tmp_path / "data").mkdir()
    for text in settings:
        (tmp_path / "toolcell.toml").write_text(text)
        assert load_config(file=tmp_path / "toolcell.toml").files


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_place_that_is_named_is_there(document: str) -> None:
    text = (ROOT / document).read_text()
    named = re.findall(r"`((?:executor|sandbox|tools|tests|examples|benchmarks|\.ci)/[^`\s]*)`", text)
    named += re.findall(r"\]\(([A-Z]+(?:\.md)?)\)", text)
    assert named
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_the_two_commands_stand_where_a_stranger_looks_first() -> None:
    start = README[:1200]
    assert "pip install . && toolcell demo" in start
    assert "pip install '.[test]' && pytest" in start
