"""Running the call path once before there is a call, so that the pages a call writes to are the standby's own already.

A forked process shares its pages until it writes to them, and Python writes wherever it counts a reference: the first
call would pay for several hundred page faults. Here a made-up call goes the whole way (decode, context, bind, run,
encode) with nothing sent, while nobody waits. Where the call is there already, it is its own warm-up.
"""

from toolcell.wire.frames import Field, WireLimits, encode
from toolcell.wire.messages import Call, Error, Result, to_fields
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import Tool

from . import perform
from .context import Contexts
from .loading import Loaded, LoadError

_ROUNDS = 2


def _nothing(ctx: ToolContext, text: str = "", count: int = 0, flag: bool = False) -> dict[str, object]:
    return {"call_id": ctx.call_id, "text": text, "count": count, "flag": flag}


_TOOL: Tool[..., object] = Tool(_nothing, name="warm_up", derive=False)
_ARGUMENTS: dict[str, Field] = {"text": "x" * 64, "count": 1, "flag": True}
_CALL = b"".join(encode(to_fields(Call(1, "warm", "warm_up", _ARGUMENTS, {"remaining_s": 1.0})), WireLimits()))
_TOOL.prepare()


async def _nothing_async() -> None:
    """What asyncio.run is warmed up with."""


def warm_up(loaded: Loaded, contexts: Contexts) -> None:
    """Go through a call's motions, and leave the link as it was; stop when a real one has come."""
    link = contexts.link
    if link.is_called():
        return
    for tool in loaded.values():
        if not isinstance(tool, LoadError):
            _touch(tool)
    if any(tool.is_async for tool in loaded.values() if not isinstance(tool, LoadError)):
        import asyncio

        asyncio.run(_nothing_async())
    for _ in range(_ROUNDS):
        if link.is_called():
            return
        link.take(_CALL)
        answer: Result | Error = perform.run(_TOOL, link.wait_for_call(), contexts)
        perform.flush()
        link.protocol.send(answer)
        link.start_over()


def _touch(tool: Tool[..., object]) -> None:
    """Count references to what calling the tool counts references to."""
    function = tool.fn
    code = getattr(function, "__code__", None)
    for each in (
        tool.__dict__,
        function,
        code,
        getattr(code, "co_consts", None),
        getattr(function, "__globals__", None),
    ):
        held = [each]
        del held
