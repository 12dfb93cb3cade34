"""Every program of the documents that needs a framework runs, and prints what its page shows. `tests/docs` has the
others."""

import json
import sys
from pathlib import Path

import pytest
from tests.docs.pages import FRAMEWORKS, PAGES, programs, shows
from tests.docs.test_blocks import RUN, run

SHOWN = [(page, extra) for page in PAGES for extra in FRAMEWORKS if programs(page, extra)]


@pytest.mark.parametrize(("page", "extra"), SHOWN, ids=[f"{page}-{extra.replace('-', '_')}" for page, extra in SHOWN])
def test_the_programs_of_a_page_run_and_print_what_it_shows(page: str, extra: str, tmp_path: Path) -> None:
    shown = programs(page, extra)
    jobs = [(str(tmp_path / program.name), program.name, program.text) for program in shown]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = run(tmp_path, sys.executable, "-I", str(RUN), str(tmp_path / "jobs.json"))
    assert done.returncode == 0, done.stderr
    for program, said in zip(shown, json.loads(done.stdout), strict=True):
        assert program.says is None or shows(program.says, said), f"{page}:{program.line} prints\n{said}"


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_every_framework_is_shown(extra: str) -> None:
    assert extra in {shown for _page, shown in SHOWN}
