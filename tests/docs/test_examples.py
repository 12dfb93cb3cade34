"""Every example runs, prints something, and leaves nothing behind."""

import os
import sys
from pathlib import Path

import pytest
from tests import programs as warmed

from .pages import ROOT, programs

pytestmark = pytest.mark.usefixtures("warm")

EXAMPLES = sorted((ROOT / "examples").glob("[!t]*.py"))  # test_*.py are run by tests/testing/test_plugin.py


SAYS = {
    "approvals_service": ["a stranger asks: 401", "paid 50", "again: 409", "The clerk said no."],
    "repair_a_project": [
        "a researcher was refused: The tool 'edit' needs write",
        'before the repair: File "README.rst", line 41',
        "after the first try: FAIL: test_continuation FAIL: test_semicolon",
        "Repaired: a comment is no part of a value.",
        "an inline comment after a value ends it",
        "memory_search ok",
        "It used memory.store(",
    ],
    "code_review": ["return eval(text)", "a worker session holds no write handle", "TODO: taxes"],
}
"""What the output of some of them must have."""


def run(program: Path, cwd: Path) -> str:
    done = warmed.run([sys.executable, "-I", str(program)], timeout=60, cwd=cwd, fork_zygotes=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_runs(example: Path, tmp_path: Path) -> None:
    said = run(example, tmp_path)
    assert said
    assert [text for text in SAYS.get(example.stem, []) if text not in said] == []
    assert not os.listdir(tmp_path)


def test_the_loop_without_a_framework_has_60_lines_at_most() -> None:
    assert len((ROOT / "examples/agent_loop.py").read_text().splitlines()) <= 60


@pytest.mark.parametrize("framework", ["asyncio", "trio"])
def test_the_first_program_of_the_embedding_page_runs_on_both_event_loops(framework: str, tmp_path: Path) -> None:
    program = programs("docs/embedding.md")[0].text
    start = "asyncio.run(main())" if framework == "asyncio" else "trio.run(main)"
    (tmp_path / "project").mkdir()
    script = tmp_path / "script.py"
    script.write_text(program.replace("import anyio", f"import {framework}").replace("anyio.run(main)", start))
    assert run(script, tmp_path)
