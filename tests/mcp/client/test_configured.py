"""From a server in the settings to its toolset."""

from pathlib import Path

import pytest

from toolcell import Capability, Supervisor, UsageError, load_config
from toolcell.mcp import McpToolset
from toolcell.mcp.client.toolset import toolset_of
from toolcell.rules.toml.config import McpServer
from toolcell.supervisor import runtime_of

SECRET = "Bearer of-the-settings"


def test_headers_that_may_be_secrets_are_credentials_that_no_cell_gets() -> None:
    headers = {"Authorization": SECRET, "X-Api-Key": "12345678", "X-Region": "eu"}
    source = toolset_of(McpServer(name="a", url="https://mcp.example.com/v1", headers=headers)).source
    assert source.headers == {"X-Region": "eu"} and SECRET not in repr(source.told)
    assert source.client is not None and "https://mcp.example.com:443" in repr(source.client)
    assert source.profile.http == (
        "POST https://mcp.example.com/v1 private",
        "DELETE https://mcp.example.com/v1 private",
    )


def test_a_url_that_cannot_be_asked_is_a_mistake_that_names_the_server() -> None:
    with pytest.raises(UsageError, match="'a' cannot be asked"):
        toolset_of(McpServer(name="a", url="ftp://mcp.example.com"))


def test_a_supervisor_has_a_toolset_for_each_server_of_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "toolcell.toml"
    file.write_text('[mcpServers.git]\ncommand = "git-server"\nenv = { A = "1" }\nprofile = { grants = ["exec"] }')
    assert runtime_of(Supervisor(config=load_config())).settings.toolsets == ()
    (toolset,) = runtime_of(Supervisor(config=load_config(file=file))).settings.toolsets
    assert isinstance(toolset, McpToolset) and toolset.name == "git"
    assert toolset.source.profile.env == {"A": "1"} and toolset.source.needs == {Capability.EXEC}
