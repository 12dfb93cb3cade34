"""The cost of a state directory: a kept call with it and without it, in pairs. At most 20 µs of a call are allowed."""

import statistics
from functools import partial
from pathlib import Path

import pytest

from toolcell import Supervisor

from .conftest import Publish
from .interleave import Case, Measured, calls, interleave
from .replay import recorded_time
from .report import Figure, amount
from .workload import caller, check_whole, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SAMPLES = 30
ALLOWED_S = 20e-6


def test_a_kept_call_with_a_journal_on_disk(publish: Publish, tmp_path_factory: pytest.TempPathFactory) -> None:
    publish(partial(with_and_without, tmp_path_factory.mktemp("state") / "state"), 100)


async def with_and_without(state: Path, rounds: int, workspace: Path) -> Figure:
    async with Supervisor(tools=[kept], state=state) as durable, Supervisor(tools=[kept]) as plain:
        check_whole(durable)
        cases: list[Case] = []
        for name, supervisor in (("with a state directory", durable), ("without", plain)):
            session = await supervisor.open_session("main", workspace=workspace)
            cases.append(Case(name, "ours", calls(caller(session, "kept"), SAMPLES)))
        measured = await interleave(cases, rounds)
    return Figure("journal", "A kept call with a journal on disk", measured, notes=[cost(*measured)])


def cost(durable: Measured, plain: Measured) -> str:
    """The cost of the journal: the median of the differences between the two blocks of each round."""
    pairs = zip(durable.blocks, plain.blocks, strict=True)
    found = statistics.median(statistics.median(mine) - statistics.median(other) for mine, other in pairs)
    verdict = "met" if found <= ALLOWED_S else "missed"
    return (
        f"cost of the journal, the median of pairs: {amount(found, 's')} (at most {amount(ALLOWED_S, 's')}: {verdict})"
    )
