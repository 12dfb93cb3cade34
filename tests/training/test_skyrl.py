"""SkyRL Gym's own ToolGroup and text environment, over cells."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.tools.core import ToolGroup
from tests.training.kit import TOOLS

from toolcell import UsageError
from toolcell.adapters.skyrl import CellToolGroup
from toolcell.blocking import Session, Supervisor
from toolcell.rollouts import InfrastructureFailure
from toolcell_tools.for_programs.workspace_tools import workspace_tools


@pytest.fixture(scope="module")
def supervisor(nothing_is_left_of_the_module: None) -> Iterator[Supervisor]:
    with Supervisor([*TOOLS, *workspace_tools()]) as supervisor:
        yield supervisor


@pytest.fixture
def session(supervisor: Supervisor, workspace: Path) -> Iterator[Session]:
    session = supervisor.open_session("main", workspace=workspace)
    yield session
    session.close()


class CountingEnv(BaseTextEnv):
    """The model says numbers, and is done at ten."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.max_turns = 10
        self.session = session
        self.init_tool_groups([CellToolGroup(session)])

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        said = self._execute_tool(self.tool_to_toolgroup["count"], "count", [int(action)])
        done = said == "10" or self.turns >= self.max_turns
        observations = [] if done else [{"role": "user", "content": said}]
        return BaseTextEnvStepOutput(observations=observations, reward=float(said == "10"), done=done, metadata={})

    def close(self) -> None:
        self.session.close()


def test_an_environment_s_tools_run_in_cells_and_its_close_ends_the_session(session: Session) -> None:
    env = CountingEnv(session)
    first = env.step("4")
    assert (first["observations"], first["done"]) == ([{"role": "user", "content": "4"}], False)
    last = env.step("6")
    assert (last["reward"], last["done"]) == (1.0, True)
    env.close()
    assert session.closed


def test_the_infrastructure_s_errors_are_raised(session: Session) -> None:
    def close() -> None:
        while not (session.workspace / "running").exists():
            time.sleep(0.01)
        session.close(grace_s=0)

    closing = Thread(target=close)
    closing.start()
    with pytest.raises(InfrastructureFailure, match="hang"):
        CellToolGroup(session).execute_tool("hang")
    closing.join()


def test_a_group_has_the_session_s_tools_for_models(session: Session) -> None:
    group = CellToolGroup(session, "mine")
    assert isinstance(group, ToolGroup) and group.get_name() == "mine"
    assert {"count", "shell", "read"} <= set(group.get_tool_names())
    assert "workspace_run" not in group.get_tool_names()
    assert group.get_tool_to_group_mapping()["count"] == "mine"
    with pytest.raises(ValueError, match="not found"):
        group.execute_tool("none")


def test_arguments_come_in_order_or_by_name(session: Session) -> None:
    group = CellToolGroup(session)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((2,), {}), ((2, "why"), {}), (({"by": 3, "note": "so"},), {}), ((), {"by": 1}), ((), {}),
    ]  # fmt: skip
    assert [group.execute_tool("count", *args, **named) for args, named in calls] == ["2", "4", "7", "8", "9"]
    with pytest.raises(UsageError, match="2 parameters"):
        group.execute_tool("count", 1, "a", "b")


def test_an_error_is_a_text_for_the_model(session: Session) -> None:
    group = CellToolGroup(session)
    assert "it failed: rain" in group.execute_tool("fail", "rain")
    assert "crashed" in group.execute_tool("crash")
    assert group.execute_tool("count", 1) == "1"
