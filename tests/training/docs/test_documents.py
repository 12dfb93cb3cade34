"""The programs of the documents that need a framework for training run, and print what their page shows."""

import json
import sys
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, TRAINING, programs, shows
from tests.docs.test_blocks import RUN, run


@pytest.mark.parametrize("framework", TRAINING)
def test_the_programs_run_and_print_what_their_page_shows(framework: str, tmp_path: Path) -> None:
    shown = [program for page in PAGES for program in programs(page, framework)]
    assert shown
    jobs = [(str(tmp_path / program.name), program.name, program.text) for program in shown]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = run(tmp_path, sys.executable, "-I", str(RUN), str(tmp_path / "jobs.json"))
    assert done.returncode == 0, done.stderr
    for program, said in zip(shown, json.loads(done.stdout), strict=True):
        assert program.says is None or shows(program.says, said), f"{program.page}:{program.line} prints\n{said}"
