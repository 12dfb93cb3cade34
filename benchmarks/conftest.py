"""Turns benchmarking on for this directory, and prints the figures and the verdict when the run is over."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio
import pytest

from .machine import Facts, Watch, load1, machine
from .replay import Benchmark, play
from .report import Figure
from .targets import verdicts

SMOKE_ROUNDS = 2  # with --benchmark-disable: does it still run?

Measure = Callable[[int, Path], Awaitable[Figure]]
Publish = Callable[[Measure, int], None]

_LOAD = pytest.StashKey[float]()
_TAKEN = pytest.StashKey[list[tuple[Figure, Facts]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("toolcell")
    group.addoption("--rollout-sessions", default=40, type=int, help="Agents of the simulated rollout.")
    group.addoption("--rollout-turns", default=12, type=int, help="Turns of each of them.")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The project's addopts run two tests at a time; here, one has the machine to itself."""
    config.option.numprocesses, config.option.dist = None, "no"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The project's addopts disable benchmarks, for the tests' sake; here, only the command line does."""
    config.stash[_LOAD] = load1()
    config.stash[_TAKEN] = []
    if "--benchmark-disable" not in config.invocation_params.args:
        config.option.benchmark_disable = False
    config.option.benchmark_quiet = True  # its table compares the figures with each other, which means nothing
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used")  # the failure before it says why


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine makes a figure slow, which is no reason to end it early."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def publish(benchmark: Benchmark, request: pytest.FixtureRequest, tmp_path: Path) -> Publish:
    """Measure a figure in so many rounds, and hand it to the summary and to pytest-benchmark."""

    def measure_and_publish(measure: Measure, rounds: int) -> None:
        rounds = SMOKE_ROUNDS if benchmark.disabled else rounds
        watch = None if benchmark.disabled else Watch(request.config.stash[_LOAD])
        start = time.perf_counter()
        figure = anyio.run(partial(measure, rounds, tmp_path))
        taken = time.perf_counter() - start
        if watch is None:
            assert str(Figure.from_json(json.loads(json.dumps(figure.to_json()))))
            return
        facts = watch.facts()
        request.config.stash[_TAKEN].append((figure, facts))
        benchmark.extra_info["figure"] = figure.to_json()
        benchmark.extra_info["machine"] = asdict(machine())
        benchmark.extra_info["beside"] = {**asdict(facts), "disturbed": facts.disturbed}
        in_seconds = figure.unit == "s" and figure.ours
        play(benchmark, figure.ours[0].samples if in_seconds else [taken])

    return measure_and_publish


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    taken = config.stash[_TAKEN]
    if not taken:
        return
    terminalreporter.section("toolcell benchmarks: what it takes, and how many times as much ours takes")
    for figure, facts in taken:
        terminalreporter.write_line(f"\n{figure}")
        if facts.disturbed:
            terminalreporter.write_line(f"disturbed: {facts.disturbed}. No verdict: do not quote this.", red=True)
    terminalreporter.section("targets")
    terminalreporter.write_line(verdicts([figure for figure, _facts in taken], _disturbances(taken)))
    terminalreporter.write_line(str(machine()))
    terminalreporter.write_line(f"load1 {config.stash[_LOAD]:.2f} before the run")
    disturbed = sum(bool(facts.disturbed) for _figure, facts in taken)
    if disturbed:
        terminalreporter.write_line(f"{disturbed} of {len(taken)} figures are disturbed.", red=True, bold=True)
    else:
        terminalreporter.write_line("undisturbed: the ratios stand, for this machine.")


def _disturbances(taken: list[tuple[Figure, Facts]]) -> dict[str, str]:
    return {figure.key: facts.disturbed for figure, facts in taken if facts.disturbed}
