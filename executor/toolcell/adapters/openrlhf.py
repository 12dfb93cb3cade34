"""OpenRLHF: an environment for multi-turn agents. Its steps run the model's calls in a session.

    class AgentInstance(CellAgentInstance):                         # the file of `--train.agent_func_path`
        sessions = SessionSource(base_tools(), workspace="runs")
        def calls_of(self, text): …
        async def reward_of(self, session, states): …

    class AgentExecutor(MultiTurnAgentExecutor):
        def __init__(self): super().__init__(AgentInstance)

There is no extra: install OpenRLHF by its own documentation.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from uuid import uuid4

import torch
from openrlhf.utils.agent import AgentInstanceBase

from toolcell.rollouts.infrastructure import steady_call
from toolcell.session import Session
from toolcell_tools.result import ToolResult

from .session_source import SessionSource, answered, source_of

__all__ = ["CellAgentInstance"]


class CellAgentInstance(AgentInstanceBase):
    """One trajectory: a session that `reset` opens, and the last step closes.

    `sessions` is a SessionSource or its import path. `prepare` of the source gets the label. The trajectory ends with a
    text of the model without a call, or with step number `max_steps`. Then `reward_of` is called, and after it the
    session is closed. If OpenRLHF itself ends a trajectory, the session stays open until it expires.
    The model reads an error of a tool as text. An infrastructure error raises InfrastructureFailure.
    """

    sessions: ClassVar[SessionSource | str]
    max_steps: ClassVar[int] = 50

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._session: Session | None = None
        self._steps = 0

    @abstractmethod
    def calls_of(self, text: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The calls in this text of the model, each a tool's name with arguments."""

    @abstractmethod
    async def reward_of(self, session: Session, states: Mapping[str, Any]) -> float:
        """The reward of the trajectory. `states` has "observation_text", "action_text" and "label"."""

    def feedback(self, results: Sequence[ToolResult]) -> str:
        """The next text of the conversation. Override this for the chat template of the model."""
        return "\n" + "\n".join(result.for_model() for result in results) + "\n"

    async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Open the session. The first observation is the prompt."""
        source = source_of(self.sessions)
        self._session = await source.open(f"openrlhf-{uuid4().hex}", states.get("label"))
        return {"observation": states["observation"]}

    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Make the calls, one after the other."""
        session = self._session
        assert session is not None, "reset comes before step"
        calls = self.calls_of(state_dict["action_text"])
        results = [answered(await steady_call(session, name, arguments)) for name, arguments in calls]
        self._steps += 1
        done = not results or self._steps >= self.max_steps
        reward = await self.reward_of(session, state_dict) if done else 0.0
        if done:
            await session.close(grace_s=0)
        return {
            "rewards": torch.tensor(reward),
            "scores": torch.tensor(reward),
            "environment_feedback": "" if done and not results else self.feedback(results),
            "done": done,
            "sampling_params": state_dict.get("sampling_params"),
            "extra_logs": {
                "toolcell_calls": torch.tensor(float(len(results))),
                "toolcell_errors": torch.tensor(float(sum(one.is_error for one in results))),
            },
        }
