"""Turns benchmarking on for this directory, and prints the figures when the run is over."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio
import pytest

from .machine import Watch
from .replay import Benchmark, play
from .report import Figure

SMOKE_ROUNDS = 2  # with --benchmark-disable: does it still run?

Measure = Callable[[int, Path], Awaitable[Figure]]
Publish = Callable[[Measure, int], None]

_WATCH = pytest.StashKey[Watch]()
_FIGURES = pytest.StashKey[list[Figure]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The project's addopts disable benchmarks, for the tests' sake; here, only the command line does."""
    config.stash[_WATCH] = Watch()
    config.stash[_FIGURES] = []
    if "--benchmark-disable" not in config.invocation_params.args:
        config.option.benchmark_disable = False
    config.option.benchmark_quiet = True  # its table compares the figures with each other, which means nothing
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used")  # the failure before it says why


@pytest.fixture
def publish(benchmark: Benchmark, request: pytest.FixtureRequest, tmp_path: Path) -> Publish:
    """Measure a figure in so many rounds, and hand it to the summary and to pytest-benchmark."""

    def measure_and_publish(measure: Measure, rounds: int) -> None:
        rounds = SMOKE_ROUNDS if benchmark.disabled else rounds
        figure = anyio.run(partial(measure, rounds, tmp_path))
        request.config.stash[_FIGURES].append(figure)
        benchmark.extra_info["figure"] = figure.to_json()
        benchmark.extra_info["machine"] = asdict(request.config.stash[_WATCH].facts())
        play(benchmark, figure.ours[0].samples)

    return measure_and_publish


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash[_FIGURES]
    if not figures:
        return
    facts = config.stash[_WATCH].facts()
    terminalreporter.section("toolcell benchmarks: times, and how many times as long ours takes")
    for figure in figures:
        terminalreporter.write_line(f"\n{figure}")
    terminalreporter.write_line(str(facts))
    if facts.disturbed:
        terminalreporter.write_line(
            f"disturbed: {facts.disturbed}. No verdict: do not quote these numbers.", red=True, bold=True
        )
    else:
        terminalreporter.write_line("undisturbed: the ratios stand, for this machine.")
