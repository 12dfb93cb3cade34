"""verl's own BaseTool, tool registry and agent loop's way to call a tool, over cells."""

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import until
from tests.training.kit import SOURCE, TOOLS, prepare, supervisor_of

from toolcell import UsageError
from toolcell.adapters.session_source import SessionSource
from toolcell.rollouts import InfrastructureFailure

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what verl imports
    from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
    from verl.experimental.agent_loop.tool_parser import FunctionCall
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema
    from verl.tools.tool_registry import initialize_tools_from_config

    from toolcell.adapters.verl import VerlTool

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[SessionSource]:
    made = SessionSource(TOOLS, workspace=tmp_path / "runs", prepare=prepare)
    yield made
    await made.aclose()


def tool_of(source: SessionSource, name: str) -> VerlTool:
    return VerlTool({"type": "native", "sessions": source, "tool": name})


def trajectory(id: str) -> AgentData:
    return AgentData([], [], [], None, None, {}, id, {})


def loop_with(*tools: BaseTool) -> Any:
    """verl's loop with these tools, as far as calling them goes: a whole one needs a model server."""
    loop: Any = object.__new__(ToolAgentLoop)
    loop.tools = {one.name: one for one in tools}
    loop.max_tool_response_length, loop.tool_response_truncate_side = 1000, "left"
    return loop


async def test_the_tools_of_a_config_file_are_made_by_verl_s_registry(tmp_path: Path) -> None:
    entry = {
        "class_name": "toolcell.adapters.verl.VerlTool",
        "config": {"type": "native", "sessions": "tests.training.kit:SOURCE", "tool": "count"},
    }
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": [entry]}))
    (made,) = initialize_tools_from_config(str(tmp_path / "tools.yaml"))
    assert isinstance(made, BaseTool) and made.name == "count"
    schema = made.get_openai_tool_schema()
    assert isinstance(schema, OpenAIFunctionToolSchema)
    assert schema.function.parameters.model_dump(exclude_none=True) == {
        "type": "object",
        "properties": {
            "by": {"type": "integer", "description": "How much."},
            "note": {"type": "string", "description": "Why."},
        },
        "required": [],
    }
    assert supervisor_of(SOURCE) is None  # nothing runs before the first call


async def test_an_instance_has_a_session_from_create_to_release(source: SessionSource) -> None:
    tool = tool_of(source, "count")
    first, _ = await tool.create(create_kwargs={"start": 10})
    other, _ = await tool.create("mine")
    assert other == "mine"
    for expected in ("11", "13"):
        response, reward, metrics = await tool.execute(first, {"by": 2 if expected == "13" else 1})
        assert (response.text, reward, metrics["error"]) == (expected, 0.0, 0.0) and metrics["wall_s"] > 0
    assert (await tool.execute(other, {}))[0].text == "1"
    await tool.release(first)
    await tool.release(other)
    assert "0 sessions" in repr(supervisor_of(source))


async def test_the_calls_of_a_trajectory_share_a_session_that_ends_with_it(source: SessionSource) -> None:
    loop = loop_with(tool_of(source, "count"), tool_of(source, "read"))
    mine, other = trajectory("t1"), trajectory("t2")
    kwargs = {"count": {"create_kwargs": {"start": 5}}}

    async def call(of: AgentData, name: str, arguments: dict[str, Any]) -> str:
        response, _, _ = await loop._call_tool(FunctionCall(name=name, arguments=json.dumps(arguments)), kwargs, of)
        return str(response.text)

    answers = await asyncio.gather(*(call(mine, "count", {}) for _ in range(3)), call(other, "count", {"by": 2}))
    assert sorted(answers[:3]) == ["6", "7", "8"] and answers[3] == "7"
    assert "8" in await call(mine, "read", {"path": "number"})
    assert "2 sessions" in repr(supervisor_of(source))
    del mine
    gc.collect()
    await until(lambda: "1 session" in repr(supervisor_of(source)))
    assert await call(other, "count", {}) == "8"


async def test_errors_of_tools_are_for_the_model_and_those_of_the_infrastructure_are_raised(
    source: SessionSource, tmp_path: Path
) -> None:
    tool = tool_of(source, "fail")
    id, _ = await tool.create()
    response, _, metrics = await tool.execute(id, {"why": "rain"})
    assert "it failed: rain" in str(response.text) and metrics["error"] == 1.0
    response, _, _ = await tool.execute(id, {"wy": "rain"})
    assert "why" in str(response.text)
    await tool.release(id)
    hanging = tool_of(source, "hang")
    await hanging.create("taken")
    running = asyncio.ensure_future(hanging.execute("taken", {}))
    await until((tmp_path / "runs/verl-taken/running").exists)
    await hanging.release("taken")
    with pytest.raises(InfrastructureFailure, match="hang"):
        await running


async def test_pictures_are_pil_images(source: SessionSource) -> None:
    tool = tool_of(source, "picture")
    id, _ = await tool.create()
    response, _, _ = await tool.execute(id, {})
    assert response.image is not None and response.image[0].size == (1, 1)
    await tool.release(id)


async def test_a_reward_may_be_given_for_a_step(source: SessionSource) -> None:
    class Rewarded(VerlTool):
        def reward_of(self, result: Any) -> float:
            return -1.0 if result.is_error else 1.0

    tool = Rewarded({"sessions": source, "tool": "count"})
    id, _ = await tool.create()
    assert [(await tool.execute(id, each))[1] for each in ({}, {"by": "much"})] == [1.0, -1.0]
    assert await tool.calc_reward(id) == 0.0
    await tool.release(id)


async def test_wrong_names_are_told(source: SessionSource) -> None:
    with pytest.raises(UsageError, match="cuont"):
        tool_of(source, "cuont")
    with pytest.raises(UsageError, match="not a SessionSource"):
        VerlTool({"sessions": "tests.training.kit:TOOLS", "tool": "count"})
