"""`grep` in a cell over 100,000 files, against ripgrep with the same rules."""

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from toolcell import Limits, Profile, Session, Supervisor, coding_tools

from .conftest import Publish
from .interleave import Block, Case, interleave
from .peers import NotHere
from .replay import recorded_time
from .report import Figure
from .workload import check_whole

pytestmark = pytest.mark.benchmark(timer=recorded_time)

DIRECTORIES, FILES, LINES = 500, 200, 40
WORDS = "the quick brown fox jumps over a dog import return class def self value result error handle call"
NEEDLE = "needle_in_a_haystack"
PATTERNS = {"a word": NEEDLE, "an expression": r"needle_\w+_haystack"}


def test_a_search_of_100_000_files(publish: Publish) -> None:
    publish(searching, 5)


async def searching(rounds: int, workspace: Path) -> Figure:
    found = grow(workspace)
    absent: dict[str, str] = {}
    profile = Profile.for_kind("main").replace(limits=Limits(wall_s=120, cpu_s=120))
    async with Supervisor(tools=coding_tools(), max_cells=2) as supervisor:
        check_whole(supervisor)
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        cases = [Case(f"grep, {name}", "ours", searches(session, text, found)) for name, text in PATTERNS.items()]
        try:
            for name, text in PATTERNS.items():
                cases.append(Case(f"ripgrep, {name}", "peer", by_ripgrep(text, workspace, found)))
        except NotHere as reason:
            absent["ripgrep"] = str(reason)
        return Figure("grep", "A search of 100,000 files", await interleave(cases, rounds), absent)


def grow(workspace: Path) -> int:
    """Make the files, and return how many contain the needle."""
    draw, words, found = random.Random(1), WORDS.split(), 0
    (workspace / ".gitignore").write_text("*.pyc\n/build/\nnode_modules/\n__pycache__/\n*.log\n")
    for directory in range(DIRECTORIES):
        place = workspace / f"package{directory % 20}/part{directory}"
        place.mkdir(parents=True)
        for file in range(FILES):
            lines = [" ".join(draw.choices(words, k=8)) for _ in range(LINES)]
            if draw.random() < 0.01:
                lines.append(f"{NEEDLE} here")
                found += 1
            (place / f"module{file}.py").write_text("\n".join(lines) + "\n")
    return found


def searches(session: Session, pattern: str, expected: int) -> Block:
    async def block() -> list[float]:
        start = time.perf_counter()
        result = await session.call("grep", {"pattern": pattern, "show": "files", "limit": 1000})
        taken = time.perf_counter() - start
        output = result.unwrap()
        assert isinstance(output, dict)
        assert output["searched"] == DIRECTORIES * FILES + 1
        assert len(output["files"]) == min(expected, 1000)
        return [taken]

    return block


def by_ripgrep(pattern: str, workspace: Path, expected: int) -> Block:
    program = shutil.which("rg")
    if program is None:
        raise NotHere("ripgrep is not installed; Debian's package ripgrep has it")
    command = [program, "--hidden", "--no-require-git", "--no-config", "--count", pattern, str(workspace)]

    async def block() -> list[float]:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        taken = time.perf_counter() - start
        assert len(done.stdout.splitlines()) == expected
        return [taken]

    return block
