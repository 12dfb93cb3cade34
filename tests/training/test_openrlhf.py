"""OpenRLHF's own AgentInstanceBase and multi-turn executor, with a scripted model, over cells."""

import asyncio
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.helpers import until
from tests.training.kit import TOOLS, prepare, supervisor_of

from toolcell import Session
from toolcell.adapters.session_source import SessionSource
from toolcell.rollouts import InfrastructureFailure

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what OpenRLHF imports
    from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

    from toolcell.adapters.openrlhf import CellAgentInstance

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def agent_class(tmp_path: Path) -> Iterator[type[CellAgentInstance]]:
    class CountingAgent(CellAgentInstance):
        sessions = SessionSource(TOOLS, workspace=tmp_path / "runs", prepare=prepare)
        max_steps = 3

        def calls_of(self, text: str) -> list[tuple[str, Mapping[str, Any]]]:
            found = re.findall(r"(\w+)\((?:(\w+)=(\w+))?\)", text)
            return [
                (name, {key: int(value) if value.isdigit() else value} if key else {}) for name, key, value in found
            ]

        async def reward_of(self, session: Session, states: Mapping[str, Any]) -> float:
            return float((session.workspace / "number").read_text()) / float(states["label"]["goal"])

    yield CountingAgent


class Scripted:
    """An engine that says these texts, and a tokenizer of characters."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    async def generate(self, tokens: list[int], *_: Any, **__: Any) -> Any:
        text = self.texts.pop(0)
        output = SimpleNamespace(token_ids=[ord(one) for one in text], text=text, finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])

    def __call__(self, text: str, **_: Any) -> Any:
        return {"input_ids": torch.tensor([[ord(one) for one in text]], dtype=torch.long)}


async def run(agent_class: type[CellAgentInstance], *texts: str) -> dict[str, Any]:
    scripted = Scripted(*texts)
    params = SimpleNamespace(max_tokens=None, logprobs=None)
    label = {"start": 1, "goal": 10}
    try:
        found: dict[str, Any] = await MultiTurnAgentExecutor(agent_class).execute(
            "count: ", label, params, 4000, scripted, scripted
        )
        assert "0 sessions" in repr(supervisor_of(agent_class.sessions))  # type: ignore[arg-type]
    finally:
        await agent_class.sessions.aclose()  # type: ignore[union-attr]
    return found


async def test_the_executor_s_steps_are_calls_and_the_last_one_has_the_reward(
    agent_class: type[CellAgentInstance],
) -> None:
    assert issubclass(agent_class, AgentInstanceBase)
    found = await run(agent_class, "count(by=2) count(by=3)", "count(by=4)", "I am done.")
    said = "".join(map(chr, found["observation_tokens"]))
    assert said == "count: count(by=2) count(by=3)\n3\n6\ncount(by=4)\n10\nI am done."
    assert (found["reward"], float(found["scores"])) == (1.0, 1.0)
    assert len(found["action_ranges"]) == 3


async def test_an_error_is_feedback_and_the_steps_are_bounded(agent_class: type[CellAgentInstance]) -> None:
    found = await run(agent_class, "fail(why=rain)", "count(much=1)", "count(by=1)", "never asked")
    said = "".join(map(chr, found["observation_tokens"]))
    assert "it failed: rain" in said and "much" in said and "never asked" not in said
    assert found["reward"] == pytest.approx(0.2)
    assert float(found["extra_logs"]["toolcell_calls"]) == 1.0


async def test_the_infrastructure_s_errors_are_raised(agent_class: type[CellAgentInstance]) -> None:
    agent = agent_class()
    await agent.reset({"observation": "", "label": {}})
    session = agent._session
    assert session is not None
    try:
        step = asyncio.ensure_future(agent.step({"action_text": "hang()"}))
        await until((session.workspace / "running").exists)
        await session.close(grace_s=0)
        with pytest.raises(InfrastructureFailure, match="hang"):
            await step
    finally:
        await agent_class.sessions.aclose()  # type: ignore[union-attr]
