"""verl: the tools of a session as tools of verl's agent loop, with one session for each trajectory.

    tools:                                                         # the file of `multi_turn.tool_config_path`
      - class_name: toolcell.adapters.verl.VerlTool
        config: {type: native, sessions: "my_sessions:SESSIONS", tool: shell}

Needs the extra `[verl]`.
"""

import asyncio
import weakref
from collections.abc import Mapping
from typing import Any, cast
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from toolcell.adapters.result_forms import blocks_of, in_text, text_of
from toolcell.errors import UsageError
from toolcell.rollouts.infrastructure import steady_call
from toolcell.session import Session
from toolcell_tools.content import ImageBlock
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult

from .session_source import SessionSource, answered, source_of

__all__ = ["VerlTool", "schema_of"]

_TRAJECTORIES: "weakref.WeakKeyDictionary[object, dict[object, asyncio.Task[Session]]]" = weakref.WeakKeyDictionary()
"""The sessions of the running trajectories, by verl's `agent_data` and the source. The tools of a trajectory share
them."""


class VerlTool(BaseTool):
    """One tool of a session. `config` has `sessions`, a SessionSource or its import path, and `tool`, the tool's name.

    In verl's agent loop, the session belongs to the trajectory, and is closed when the trajectory's `agent_data` is
    garbage-collected. Without an `agent_data`, the session belongs to the instance, and `release` closes it. `create`
    gets `create_kwargs`, the task for `SessionSource(prepare=…)`.
    The model reads an error of the tool as text. An infrastructure error raises InfrastructureFailure. The reward of a
    step is 0. Override `reward_of` for another one.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        self._source: SessionSource = source_of(config.get("sessions"))
        declaration = self._source.declarations.get(config.get("tool", ""))
        if declaration is None:
            names = ", ".join(self._source.declarations)
            raise UsageError(f"The sessions have no tool {config.get('tool')!r}. Set 'tool' to one of: {names}.")
        self._tool = declaration.name
        self._tasks: dict[str, Any] = {}
        self._own: dict[str, asyncio.Task[Session]] = {}
        super().__init__(config, tool_schema or schema_of(declaration))  # pyright: ignore[reportUnknownMemberType]

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Begin an instance. Its session is opened at the first call."""
        id = instance_id or uuid4().hex
        self._tasks[id] = kwargs.get("create_kwargs", kwargs)
        return id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Make the call. The metrics are its run time and its waiting time in seconds, and whether it was an error."""
        session = await self._session(instance_id, kwargs.get("agent_data"))
        result = answered(await steady_call(session, self._tool, parameters))
        metrics = {"wall_s": result.usage.wall_s, "queue_s": result.usage.queue_s, "error": float(result.is_error)}
        return _response(result), self.reward_of(result), metrics

    def reward_of(self, result: ToolResult) -> float:
        """The reward of one step."""
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End an instance, and its session if it belongs to no trajectory."""
        self._tasks.pop(instance_id, None)
        opening = self._own.pop(instance_id, None)
        if opening is not None:
            await (await opening).close(grace_s=0)

    async def _session(self, instance_id: str, agent_data: object) -> Session:
        """The session of the trajectory, or of the instance. Concurrent calls of one turn open only one session."""
        homes: dict[Any, asyncio.Task[Session]] = self._own
        home: object = instance_id
        if agent_data is not None:
            homes, home = _TRAJECTORIES.setdefault(agent_data, {}), self._source
        if home not in homes:
            name = instance_id if agent_data is None else str(getattr(agent_data, "request_id", instance_id))
            homes[home] = asyncio.ensure_future(self._source.open(f"verl-{name}", self._tasks.get(instance_id)))
            if agent_data is not None:
                weakref.finalize(agent_data, _end, asyncio.get_running_loop(), homes[home]).atexit = False
        try:
            return await asyncio.shield(homes[home])
        except Exception:
            homes.pop(home, None)
            raise


def _end(loop: asyncio.AbstractEventLoop, opening: "asyncio.Task[Session]") -> None:
    """Close the session of an ended trajectory. The garbage collector may call this in any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: _closing.add(asyncio.ensure_future(_close(opening))))


_closing: "set[asyncio.Task[None]]" = set()


async def _close(opening: "asyncio.Task[Session]") -> None:
    try:
        await (await opening).close(grace_s=0)
    finally:
        _closing.discard(cast("asyncio.Task[None]", asyncio.current_task()))


def _response(result: ToolResult) -> ToolResponse:
    images: list[Any] = []
    texts = [text_of(result)]
    for block in blocks_of(result):
        if isinstance(block, ImageBlock):
            images.append(_picture(block.to_bytes()))
        else:
            texts.append(in_text(block))
    text = "\n".join(filter(None, texts))
    return ToolResponse(text=text, image=images) if images else ToolResponse(text=text)


def _picture(data: bytes) -> Any:
    """A PIL image, which verl's processors take."""
    from io import BytesIO

    from PIL import Image

    return Image.open(BytesIO(data)).convert("RGB")


def schema_of(declaration: ToolDeclaration) -> OpenAIFunctionToolSchema:
    """The declaration as verl's schema, which has a type, a description and an enum for each parameter, and no nested
    schema. The supervisor validates arguments against the whole schema."""
    schema = declaration.parameters_schema
    parameters = {
        "type": "object",
        "properties": {name: _property(one) for name, one in schema.get("properties", {}).items()},
        "required": schema.get("required", []),
    }
    function = {"name": declaration.name, "description": declaration.description, "parameters": parameters}
    return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})


def _property(schema: Mapping[str, Any]) -> dict[str, Any]:
    forms: list[Mapping[str, Any]] = schema.get("anyOf", schema.get("oneOf", [schema]))
    kinds = list(dict.fromkeys(kind for form in forms for kind in _kinds(form) if kind != "null")) or ["null"]
    made: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    return made | {key: schema[key] for key in ("description", "enum") if key in schema}


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind: str | list[str] = schema.get("type", "string" if "enum" in schema else "object")
    return [kind] if isinstance(kind, str) else kind
