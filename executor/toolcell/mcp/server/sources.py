"""The protocols that a program implements to offer prompts, resources and completions.

Their methods run in the program's own process, on the event loop, and must not block. `principal` is the name of the
authenticated client, or "" if there is no authentication. Arguments come from the client: treat them as hostile.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import mcp_types as types

from .asking import Answers

__all__ = ["Completions", "Prompts", "Resources"]


@runtime_checkable
class Prompts(Protocol):
    """Offers prompts."""

    async def list_prompts(self, principal: str) -> Sequence[types.Prompt]:
        """Return the prompts that the client may get."""
        ...

    async def get_prompt(
        self, principal: str, name: str, arguments: Mapping[str, str], answers: Answers
    ) -> types.GetPromptResult | None:
        """Return the messages of a prompt, or None if there is no such prompt. May raise `InputRequired`; then it is
        called again, with the answers."""
        ...


@runtime_checkable
class Resources(Protocol):
    """Offers resources. Artifacts of calls are offered besides, without it."""

    async def list_resources(self, principal: str) -> Sequence[types.Resource]:
        """Return the resources that are listed."""
        ...

    async def list_templates(self, principal: str) -> Sequence[types.ResourceTemplate]:
        """Return the templates of further resources."""
        ...

    async def read_resource(
        self, principal: str, uri: str
    ) -> Sequence[types.TextResourceContents | types.BlobResourceContents] | None:
        """Return the contents of a resource, or None if there is no such resource."""
        ...


@runtime_checkable
class Completions(Protocol):
    """Completes the arguments of prompts and resource templates."""

    async def complete(
        self,
        principal: str,
        ref: types.PromptReference | types.ResourceTemplateReference,
        name: str,
        value: str,
        context: Mapping[str, str],
    ) -> Sequence[str]:
        """Return the values of the argument `name` that begin with `value`, the best first; 100 of them are sent.
        `context` has the arguments that are known already."""
        ...
