"""Every example of a framework runs, with a scripted model, and prints how it went."""

import asyncio
import runpy
from pathlib import Path

import pytest
from tests.docs.pages import FRAMEWORKS, MODELS, ROOT

EXAMPLES = sorted((ROOT / "examples/frameworks").glob("with_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_runs_and_asks(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = example.stem.removeprefix("with_")
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return "yes"

    model = runpy.run_path(str(MODELS / f"{name}.py"))["model"]
    running = runpy.run_path(str(example))["main"](model, ask)
    if running is not None:  # smolagents is synchronous
        asyncio.run(running)
    said = capsys.readouterr().out
    assert ("42" in said and "hello.py" in said) if name == "deepagents" else ("paid" in said and len(asked) == 1)


def test_every_framework_has_an_example() -> None:
    assert {example.stem.removeprefix("with_").replace("_", "-") for example in EXAMPLES} == set(FRAMEWORKS)
