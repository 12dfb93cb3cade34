"""The server that the conformance suites test: `python -m tests.mcp.conformance.server`."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial

import anyio
import mcp_types as types

from toolcell import SessionInfo, Supervisor, ToolCall, ToolResult, Toolset
from toolcell.mcp import Answers, InputRequired, ToolServer, accepted, elicitation
from toolcell.mcp.server.http import HttpOptions
from toolcell_tools.toolsets import AnyTool

from . import tools

CONTEXT = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}


class Extra(Toolset):
    """Offers a tool as long as the session's values say so."""

    name = "extra"

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        return [tools.test_extra] if session.values.get("has_extra") else []


def _user(content: types.ContentBlock) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=content)


def _text(text: str) -> types.PromptMessage:
    return _user(types.TextContent(text=text))


class Prompts:
    """The prompts of the suites. Each change adds one."""

    def __init__(self) -> None:
        self.changes = 0

    async def list_prompts(self, principal: str) -> Sequence[types.Prompt]:
        two = [types.PromptArgument(name=f"arg{number}", description="A text", required=True) for number in (1, 2)]
        uri = types.PromptArgument(name="resourceUri", description="The resource to embed", required=True)
        found = {
            "test_simple_prompt": [],
            "test_prompt_with_arguments": two,
            "test_prompt_with_embedded_resource": [uri],
            "test_prompt_with_image": [],
            "test_input_required_result_prompt": [],
            **{f"test_prompt_{number}": [] for number in range(self.changes)},
        }
        return [types.Prompt(name=name, description="A prompt", arguments=each) for name, each in found.items()]

    async def get_prompt(
        self, principal: str, name: str, arguments: Mapping[str, str], answers: Answers
    ) -> types.GetPromptResult | None:
        match name:
            case "test_simple_prompt":
                messages = [_text("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                said = ", ".join(f"{key}='{arguments.get(key, '')}'" for key in ("arg1", "arg2"))
                messages = [_text(f"Prompt with arguments: {said}")]
            case "test_prompt_with_embedded_resource":
                resource = types.TextResourceContents(
                    uri=arguments.get("resourceUri", ""),
                    mime_type="text/plain",
                    text="Embedded resource content for testing.",
                )
                messages = [
                    _user(types.EmbeddedResource(resource=resource)),
                    _text("Please process the embedded resource above."),
                ]
            case "test_prompt_with_image":
                picture = types.ImageContent(data=tools.PNG, mime_type="image/png")
                messages = [_user(picture), _text("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                content = accepted(answers, "user_context")
                if content is None:
                    raise InputRequired({"user_context": elicitation("What context should the prompt use?", CONTEXT)})
                messages = [_text(f"Context: {content['context']}")]
            case _:
                return None
        return types.GetPromptResult(messages=messages)


class Resources:
    """The resources of the suites."""

    async def list_resources(self, principal: str) -> Sequence[types.Resource]:
        return [
            types.Resource(uri="test://static-text", name="text", description="A text", mime_type="text/plain"),
            types.Resource(uri="test://static-binary", name="picture", description="A picture", mime_type="image/png"),
            types.Resource(uri="test://watched-resource", name="watched", description="A text", mime_type="text/plain"),
        ]

    async def list_templates(self, principal: str) -> Sequence[types.ResourceTemplate]:
        kind = "application/json"
        return [
            types.ResourceTemplate(
                uri_template="test://template/{id}/data", name="data", description="Data", mime_type=kind
            )
        ]

    async def read_resource(
        self, principal: str, uri: str
    ) -> Sequence[types.TextResourceContents | types.BlobResourceContents] | None:
        match uri.split("/"):
            case ["test:", "", "static-text" | "watched-resource"]:
                text = "This is the content of the static text resource."
                return [types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)]
            case ["test:", "", "static-binary"]:
                return [types.BlobResourceContents(uri=uri, mime_type="image/png", blob=tools.PNG)]
            case ["test:", "", "template", id, "data"]:
                data = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
                return [types.TextResourceContents(uri=uri, mime_type="application/json", text=data)]
            case _:
                return None


class Completions:
    """Completes every argument with names of towns."""

    async def complete(
        self,
        principal: str,
        ref: types.PromptReference | types.ResourceTemplateReference,
        name: str,
        value: str,
        context: Mapping[str, str],
    ) -> Sequence[str]:
        return [each for each in ("paris", "park", "party", "berlin") if each.startswith(value)]


class Changes:
    """A hook that changes the prompts after a call of the tool that is named so."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self.server: ToolServer | None = None

    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        if call.tool == "test_trigger_prompt_change" and self.server is not None:
            self._prompts.changes += 1
            await self.server.prompts_changed()


async def main() -> None:
    prompts = Prompts()
    changes = Changes(prompts)
    with tempfile.TemporaryDirectory() as workspace:
        async with (
            Supervisor(tools.TOOLS, toolsets=[Extra()], hooks=[changes]) as supervisor,
            ToolServer(
                supervisor,
                workspace=workspace,
                prompts=prompts,
                resources=Resources(),
                completions=Completions(),
                name="toolcell-conformance",
                version="1.0.0",
            ) as server,
        ):
            changes.server = server
            async with anyio.create_task_group() as tasks:
                url = await tasks.start(partial(server.serve_http, options=HttpOptions(port=0)))
                print(f"Listening on {url}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    anyio.run(main)
