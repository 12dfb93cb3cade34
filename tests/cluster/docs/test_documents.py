"""The programs of the pages about clusters run, and print what they show."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import programs, shows
from tests.docs.test_blocks import RUN, environment


@pytest.mark.parametrize("page", ["docs/cluster.md", "docs/sent-workspaces.md"])
def test_the_programs_of_the_page_run_and_print_what_it_shows(tmp_path: Path, page: str) -> None:
    shown = programs(page, "ray")
    assert shown
    jobs = [(str(tmp_path / program.name), program.name, program.text) for program in shown]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-I", str(RUN), str(tmp_path / "jobs.json")],
        cwd=tmp_path,
        env={**own, **environment(), "RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "local"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for program, said in zip(shown, json.loads(done.stdout), strict=True):
        assert program.says is None or shows(program.says, said), said
