"""Prompts, resources and completions of a program, and the notifications of changes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.helpers import PATIENCE_S

from toolcell import SessionInfo, Supervisor, ToolContext, Toolset, tool
from toolcell.mcp import Answers, InputRequired, ToolServer, accepted, elicitation
from toolcell_tools.toolsets import AnyTool

from .examples import NAME
from .test_calls import MODES, says_ann


@tool
def login(ctx: ToolContext) -> str:
    """Log in."""
    ctx.values["is_in"] = True
    return "welcome"


@tool
def upload() -> str:
    """Upload."""
    return "done"


class AfterLogin(Toolset):
    """Offers `upload` to a session that has logged in."""

    name = "after_login"

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [upload] if session.values.get("is_in") else []


class Program:
    """All three protocols."""

    async def list_prompts(self, principal: str) -> Sequence[types.Prompt]:
        return [types.Prompt(name="greet", description=f"Greet {principal or 'anybody'}")]

    async def get_prompt(
        self, principal: str, name: str, arguments: Mapping[str, str], answers: Answers
    ) -> types.GetPromptResult | None:
        if name != "greet":
            return None
        said = accepted(answers, "who")
        if said is None:
            raise InputRequired({"who": elicitation("Who?", NAME)})
        content = types.TextContent(text=f"Greet {said['name']}.")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    async def list_resources(self, principal: str) -> Sequence[types.Resource]:
        return [types.Resource(uri="note:1", name="one")]

    async def list_templates(self, principal: str) -> Sequence[types.ResourceTemplate]:
        return [types.ResourceTemplate(uri_template="note:{id}", name="note")]

    async def read_resource(self, principal: str, uri: str) -> Sequence[types.TextResourceContents] | None:
        return [types.TextResourceContents(uri=uri, text=f"of {principal}")] if uri.startswith("note:") else None

    async def complete(
        self, principal: str, ref: object, name: str, value: str, context: Mapping[str, str]
    ) -> Sequence[str]:
        return [f"{value}{number}" for number in range(150)]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: Any, nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    async with Supervisor([login], toolsets=[AfterLogin()]) as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
async def test_prompts_resources_and_completions_are_the_programs(
    supervisor: Supervisor, tmp_path: Path, mode: str
) -> None:
    program: Any = Program()
    options = {"prompts": program, "resources": program, "completions": program}
    async with ToolServer(supervisor, workspace=tmp_path, **options) as server:
        serving = (await server.principal("bob")).server
        async with Client(serving, mode=mode, elicitation_callback=says_ann) as client:
            assert (await client.list_prompts()).prompts[0].description == "Greet bob"
            content = (await client.get_prompt("greet")).messages[0].content
            assert isinstance(content, types.TextContent) and content.text == "Greet Ann."
            with pytest.raises(MCPError, match="Unknown prompt"):
                await client.get_prompt("nothing")
            assert [each.uri for each in (await client.list_resources()).resources] == ["note:1"]
            assert (await client.list_resource_templates()).resource_templates[0].uri_template == "note:{id}"
            (text,) = (await client.read_resource("note:1")).contents
            assert isinstance(text, types.TextResourceContents) and text.text == "of bob"
            with pytest.raises(MCPError, match="Unknown resource"):
                await client.read_resource("file:///etc/passwd")
            ref = types.PromptReference(name="greet")
            completion = (await client.complete(ref, {"name": "x", "value": "a"})).completion
            assert len(completion.values) == 100 and completion.total == 150 and completion.has_more


async def test_what_a_program_does_not_offer_is_not_declared(supervisor: Supervisor, tmp_path: Path) -> None:
    async with (
        ToolServer(supervisor, workspace=tmp_path) as server,
        Client((await server.principal()).server, mode="legacy") as client,
    ):
        assert client.server_capabilities.prompts is None and client.server_capabilities.completions is None
        assert client.server_capabilities.tools is not None and client.server_capabilities.tools.list_changed
        with pytest.raises(MCPError, match="Method not found"):
            await client.list_prompts()


async def test_a_client_hears_that_a_call_has_changed_the_tools(supervisor: Supervisor, tmp_path: Path) -> None:
    heard: list[str] = []

    async def on_message(message: object) -> None:
        heard.append(type(message).__name__)

    async with (
        ToolServer(supervisor, workspace=tmp_path) as server,
        Client((await server.principal()).server, mode="legacy", message_handler=on_message) as client,
    ):
        assert [each.name for each in (await client.list_tools()).tools] == ["login"]
        await client.call_tool("login", {})
        with anyio.fail_after(PATIENCE_S):
            while "ToolListChangedNotification" not in heard:
                await anyio.sleep(0.01)
        assert [each.name for each in (await client.list_tools()).tools] == ["login", "upload"]
        await server.prompts_changed()
        await server.resources_changed()
        with anyio.fail_after(PATIENCE_S):
            while not {"PromptListChangedNotification", "ResourceListChangedNotification"} <= set(heard):
                await anyio.sleep(0.01)


@pytest.mark.filterwarnings("ignore:resources/")  # the SDK's client warns of requests of the older protocol
async def test_a_client_hears_of_resources_that_it_subscribes_to(supervisor: Supervisor, tmp_path: Path) -> None:
    heard: list[str] = []

    async def on_message(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(message.params.uri)

    async with (
        ToolServer(supervisor, workspace=tmp_path) as server,
        Client((await server.principal()).server, mode="legacy", message_handler=on_message) as client,
    ):
        await client.subscribe_resource("note:1")
        for uri in ("note:2", "note:1"):
            await server.resource_updated(uri)
        await client.unsubscribe_resource("note:1")
        await server.resource_updated("note:1")
        await client.subscribe_resource("note:3")
        await server.resource_updated("note:3")
        with anyio.fail_after(PATIENCE_S):
            while "note:3" not in heard:
                await anyio.sleep(0.01)
        assert heard == ["note:1", "note:3"]
