"""The cost of telemetry that is off: a kept call as it is and without its checks, in pairs. At most 1 µs is allowed."""

import ast
import inspect
import random
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from toolcell import Session, Supervisor
from toolcell.dispatch import pipeline
from toolcell.dispatch.conclude import concluded
from toolcell.dispatch.serving import SessionRun

from .conftest import Publish
from .interleave import Block, Case, Measured, calls, interleave
from .replay import recorded_time
from .report import Figure, amount
from .workload import caller, check_whole, kept

pytestmark = pytest.mark.benchmark(timer=recorded_time)

SAMPLES = 30
ALLOWED_S = 1e-6
RESAMPLES = 400
CHECKS: Final = 3
"""Checks for telemetry that a call without a hook, an approval and progress makes."""


def test_a_kept_call_with_telemetry_off(publish: Publish) -> None:
    publish(with_and_without_checks, 1_000)


async def with_and_without_checks(rounds: int, workspace: Path) -> Figure:
    whole, bare = (Session.call, concluded, SessionRun.__init__), _bare()
    try:
        async with Supervisor(tools=[kept]) as supervisor:
            check_whole(supervisor)
            call = calls(caller(await supervisor.open_session("main", workspace=workspace), "kept"), SAMPLES)
            cases = [
                Case("as it is, telemetry off", "ours", _using(whole, call)),
                Case("without the checks", "ours", _using(bare, call)),
            ]
            measured = await interleave(cases, rounds)
    finally:
        _use(whole)
    return Figure("telemetry", "A kept call with telemetry off", measured, notes=[cost(*measured)])


def cost(whole: Measured, bare: Measured) -> str:
    """The cost of the checks: the median of the differences between the two blocks of each round, and the bootstrap
    95 % confidence interval of that median, whose upper end is what must be within the bound."""
    pairs = zip(whole.blocks, bare.blocks, strict=True)
    differences = [statistics.median(mine) - statistics.median(other) for mine, other in pairs]
    medians = sorted(statistics.median(random.choices(differences, k=len(differences))) for _ in range(RESAMPLES))
    found, low, high = statistics.median(differences), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]
    verdict = "met" if high <= ALLOWED_S else "not shown"
    return (
        f"cost of the checks, the median of pairs: {amount(found, 's')}, with 95 % certainty between "
        f"{amount(low, 's')} and {amount(high, 's')} (at most {amount(ALLOWED_S, 's')}: {verdict})"
    )


def _using(functions: tuple[Callable[..., Any], ...], call: Block) -> Block:
    async def block() -> list[float]:
        _use(functions)
        return await call()

    return block


def _use(functions: tuple[Callable[..., Any], ...]) -> None:
    places = ((Session, "call"), (pipeline, "concluded"), (SessionRun, "__init__"))
    for (place, name), function in zip(places, functions, strict=True):
        setattr(place, name, function)


def _bare() -> tuple[Callable[..., Any], ...]:
    """The three functions of every call that check for telemetry, compiled without the checks."""
    without = _Without()
    found = (
        without.compiled(Session.call),
        without.compiled(concluded),
        without.compiled(SessionRun.__init__, SessionRun),
    )
    assert without.found >= CHECKS, without.found
    return found


class _Without(ast.NodeTransformer):
    """Answers each check for telemetry in the source, so that the compiler leaves the check out."""

    def __init__(self) -> None:
        self.found = 0

    def compiled(self, function: Callable[..., Any], owner: type | None = None) -> Callable[..., Any]:
        """The function without the checks. `owner` is the class that its `super()` starts from."""
        tree = ast.parse("def _made_without(__class__): pass")
        outer = tree.body[0]
        assert isinstance(outer, ast.FunctionDef)
        inner = self.visit(ast.parse(textwrap.dedent(inspect.getsource(function)))).body
        outer.body = [*inner, ast.Return(ast.Name(function.__name__, ast.Load()))]
        scope: dict[str, Any] = dict(vars(sys.modules[function.__module__]))
        exec(compile(ast.fix_missing_locations(tree), inspect.getfile(function), "exec"), scope)
        made: Callable[..., Any] = scope["_made_without"](owner)
        return made

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return ast.Pass() if ast.unparse(node) == "telemetry = core.services.telemetry" else self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`telemetry is None` is true, and `context.trace is not None` is false."""
        match ast.unparse(node):
            case "telemetry is None":
                answer = True
            case "context.trace is not None":
                answer = False
            case _:
                return self.generic_visit(node)
        self.found += 1
        return ast.copy_location(ast.Constant(answer), node)
