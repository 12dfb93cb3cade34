"""Tools that run elsewhere than in a cell: in the supervisor's process, or at the model's provider."""

import math
from pathlib import Path
from typing import Any, cast

import pytest

from toolcell import Session
from toolcell_tools import (
    Capability,
    HostContext,
    HostTool,
    PermissionTier,
    ToolContext,
    ToolDefinitionError,
    as_tool,
    host_tool,
    provider_tool,
    tool,
)

from .conftest import Recorder


@host_tool(timeout=60)
async def ask_agent(ctx: HostContext, request: str) -> str:
    """Ask another agent."""
    ctx.values["asked"] = request
    ctx.progress("asking", 2.0)
    return f"{ctx.agent_id}: {request}"


def context() -> HostContext:
    return HostContext(
        call_id="c1",
        session_id="s1",
        agent_id="a1",
        session=cast("Session", None),
        reporter=Recorder(),
        deadline=math.inf,
    )


def test_a_host_tool_declares_where_it_runs_and_how_grave_that_is() -> None:
    declaration = ask_agent.declaration
    assert (declaration.kind, declaration.placement, declaration.timeout) == ("host", "host", 60)
    assert declaration.tier is PermissionTier.SYSTEM
    assert declaration.annotations.read_only is False
    assert declaration.parameters_schema["required"] == ["request"]
    quiet = host_tool(lambda: 1, name="quiet", harmless=True, tier=PermissionTier.READ_ONLY)
    assert quiet.tier is PermissionTier.READ_ONLY


def test_a_host_tool_needs_something_that_a_worker_lacks_unless_it_is_harmless() -> None:
    assert ask_agent.needs == {Capability.EXEC}
    assert host_tool(lambda: 1, name="quiet", harmless=True).needs == set()
    finds = host_tool(lambda: 1, name="finds", harmless=True, needs={Capability.WEB})
    assert finds.needs == finds.replace(name="searches").needs == {Capability.WEB}


def test_a_host_tool_gets_a_host_context() -> None:
    ctx = context()
    bound = ask_agent.bind({"request": "why"}, ctx)
    assert ask_agent.run(bound, ctx) == "a1: why"
    assert ctx.values == {"asked": "why"}
    assert (ctx.remaining(), ctx.cancelled) == (math.inf, False)


def test_a_host_tool_may_say_who_can_call_it_and_stays_one_as_a_variant() -> None:
    made = host_tool(lambda: 1, name="announce", needs={Capability.CHANNEL})
    assert made.declaration.needs == {Capability.CHANNEL}
    variant = made.replace(name="proclaim")
    assert isinstance(variant, HostTool)
    assert variant.declaration.placement == "host"
    assert as_tool(variant) is variant


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uses": {"web"}}, "host tool 'do' takes no uses: it has no handles"),
        ({"needs": {"read", "web"}}, "host tool 'do': its needs must name more than a Worker holds"),
        ({"needs": ()}, "Leave needs out, or pass harmless=True if any session may call it."),
        ({"harmless": 1}, "harmless=1. Pass True or False"),
        ({"harmless": True, "needs": {"exec"}}, "its needs name exec, which no Worker holds"),
        (
            {"tier": PermissionTier.WORKSPACE},
            "is too low for a tool with exec; the least is 'system'. Leave tier out, or",
        ),
        ({"limits": {"wall_s": 1}}, "takes no limits: only a process of its own can be limited"),
        ({"mutates": bool}, "takes no mutates: no sandbox holds a call to it"),
        ({"lifetime": "session"}, "takes no lifetime: it runs in the supervisor's process"),
        ({"name": "toolcell_x"}, "is reserved"),
    ],
)
def test_what_only_a_cell_can_promise_is_refused_with_the_reason(options: dict[str, Any], message: str) -> None:
    def do() -> None: ...

    with pytest.raises(ToolDefinitionError, match=message):
        host_tool(do, **options)


def test_each_kind_of_context_is_for_its_own_kind_of_tool() -> None:
    def in_a_cell(ctx: ToolContext) -> None: ...
    def in_the_host(ctx: HostContext) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"runs in the supervisor's process.*Write `ctx: HostContext`"):
        host_tool(in_a_cell)
    with pytest.raises(ToolDefinitionError, match=r"runs in a cell.*Write `ctx: ToolContext`"):
        tool(in_the_host)


def test_a_tool_is_not_made_a_host_tool_and_neither_is_what_cannot_be_called() -> None:
    with pytest.raises(ToolDefinitionError, match="is a tool already"):
        host_tool(ask_agent)
    with pytest.raises(ToolDefinitionError, match="is not a function"):
        host_tool(3)  # type: ignore[call-overload]


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5, "allowed_domains": ["a.example.org"]}


def test_a_provider_tool_is_passed_on_untouched() -> None:
    made = provider_tool("search_at_anthropic", provider="anthropic", definition=SEARCH)
    declaration = made.declaration
    assert (made.name, made.provider, made.definition) == ("search_at_anthropic", "anthropic", SEARCH)
    assert declaration.provider_definition == SEARCH
    assert (declaration.kind, declaration.placement, declaration.provider) == ("provider", "provider", "anthropic")
    assert declaration.annotations.open_world
    assert type(declaration).model_validate_json(declaration.model_dump_json()) == declaration


def test_a_provider_tool_is_no_tool_to_run() -> None:
    with pytest.raises(ToolDefinitionError, match="is run by its provider, openai, and cannot be run here"):
        as_tool(provider_tool("search", provider="openai", definition={"type": "web_search"}))


@pytest.mark.parametrize(
    ("name", "provider", "definition", "message"),
    [
        ("Web", "openai", {}, "pass name='web'"),
        ("web", "", {}, "provider is empty"),
        ("web", "openai", {"at": Path("/")}, None),
        ("web", "openai", {"at": object()}, r"definition is not JSON data: \$\.at"),
    ],
)
def test_a_wrong_provider_tool_is_refused(
    name: str, provider: str, definition: dict[str, Any], message: str | None
) -> None:
    if message is None:
        assert provider_tool(name, provider=provider, definition=definition).definition == {"at": "/"}
        return
    with pytest.raises(ToolDefinitionError, match=message):
        provider_tool(name, provider=provider, definition=definition)
