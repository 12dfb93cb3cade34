"""The toolset of an MCP server that the settings name."""

from toolcell.backends.errors import Refused
from toolcell.backends.http.checks import checked_headers
from toolcell.rules.credentials import Credential
from toolcell.rules.redaction import SHORTEST
from toolcell.rules.toml.config import McpServer

from .toolset import McpToolset, mcp_toolset


def toolset_of(server: McpServer) -> McpToolset:
    """The toolset. Raises UsageError for settings that no server can have."""
    secret = {name: value for name, value in server.headers.items() if _is_secret(name, value)}
    return mcp_toolset(
        name=server.name,
        command=server.command or None,
        url=server.url or None,
        profile=server.profile,
        needs=server.needs,
        env=server.env,
        headers={name: value for name, value in server.headers.items() if name not in secret},
        credentials=[Credential(header=name, value=value) for name, value in secret.items()],
        tier=server.tier,
        tiers=server.tiers,
        prefix=server.prefix,
        requires_approval=server.requires_approval,
        timeout=server.timeout,
        required=server.required,
    )


def _is_secret(name: str, value: str) -> bool:
    """Whether a header is kept from cells. Settings do not tell secrets apart, so all but the shortest are."""
    try:
        checked_headers({name: value})
    except Refused:
        return True
    return len(value) >= SHORTEST
