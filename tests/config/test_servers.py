"""MCP servers in the settings: the format of MCP clients, toolcell's own keys, and who may name one."""

import pytest

from toolcell import Capability, Limits, PermissionTier, ProxyNetwork
from toolcell.rules.toml.load import COMMAND_GRANTS, with_variables

from .conftest import Places

SECRET = "a-secret-of-somebody"


def test_a_table_of_mcp_clients_is_taken_as_it_is(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTH", "3")
    places.user(
        """
        [mcpServers.files]
        command = "node"
        args = ["server.js", "--depth=${DEPTH}", "${MISSING:-none}"]
        env = { MODE = "fast" }

        [mcpServers.tickets]
        type = "http"
        url = "https://mcp.example.com/v1"
        headers = { "X-Region" = "eu" }
        """
    )
    files, tickets = places.load().servers.values()
    assert (files.name, files.command) == ("files", ("node", "server.js", "--depth=3", "none"))
    assert files.env == {"MODE": "fast"} and files.tier is PermissionTier.SYSTEM
    assert files.profile is not None and files.profile.grants == COMMAND_GRANTS
    assert (tickets.url, tickets.headers) == ("https://mcp.example.com/v1", {"X-Region": "eu"})


def test_every_other_key_reaches_its_field(places: Places) -> None:
    places.user(
        """
        [mcpServers.fetch]
        command = "mcp-server-fetch"
        needs = ["net"]
        tier = "elevated"
        tiers = { fetch = "read_only" }
        prefix = "web_"
        requires_approval = true
        timeout = 7
        required = true
        [mcpServers.fetch.profile]
        grants = ["exec", "net"]
        network = { kind = "proxy", allow = ["example.org"] }
        limits = { cpu_s = 2 }
        """
    )
    (fetch,) = places.load().servers.values()
    assert fetch.needs == {Capability.NET} and fetch.tier is PermissionTier.ELEVATED
    assert fetch.tiers == {"fetch": PermissionTier.READ_ONLY} and fetch.prefix == "web_"
    assert (fetch.requires_approval, fetch.timeout, fetch.required) == (True, 7, True)
    assert fetch.profile is not None and fetch.profile.grants == {"exec", "net"}
    assert fetch.profile.network == ProxyNetwork(allow=["example.org"]) and fetch.profile.limits == Limits(cpu_s=2)


def test_a_layer_replaces_a_server_or_takes_it_away(places: Places) -> None:
    places.user('[mcpServers.a]\ncommand = "one"\n[mcpServers.b]\ncommand = "two"\n[mcpServers.c]\ncommand = "three"')
    places.explicit('[mcpServers.a]\ncommand = "four"\n[mcpServers.b]\ncommand = "two"\ndisabled = true')
    assert {name: server.command for name, server in places.load().servers.items()} == {"a": ("four",), "c": ("three",)}


def test_a_project_can_name_no_server(places: Places) -> None:
    places.project('[mcpServers.evil]\ncommand = "sh"')
    (complaint,) = places.complaints()
    assert complaint.startswith(
        "mcpServers: names MCP servers, which run programs, and a project's file can only narrow"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mcpServers = 1", "mcpServers: should be a table such as"),
        ("mcpServers.a = 1", "mcpServers.a: should be a table such as"),
        ("mcpServers.a = {}", "mcpServers.a: is a server with a command or with a url"),
        ("mcpServers.a = { command = 'x', url = 'y' }", "mcpServers.a: is a server with a command or with a url"),
        ("mcpServers.a = { url = 'https://example.org', args = ['x'] }", "mcpServers.a: has a url, and no process"),
        ("mcpServers.a = { command = 'x', headers = { a = 'b' } }", "mcpServers.a: has a command, which takes no"),
        ("mcpServers.a = { comand = 'x' }", "mcpServers.a.comand: unknown. Did you mean command?"),
        ("mcpServers.a = { command = 'x', type = 'sse' }", "mcpServers.a.type: there is no transport 'sse'."),
        ("mcpServers.a = { command = 'x', tier = 'low' }", "mcpServers.a.tier: there is no tier 'low'."),
        ("mcpServers.a = { command = 'x', args = 'y' }", "mcpServers.a.args: should be a list of text, is text."),
        (f"mcpServers.a = {{ command = 'x', env = {{ A = ['{SECRET}'] }} }}", "mcpServers.a.env.A: should be text"),
        ("mcpServers.a = { command = 'x', args = ['${NOT_SET}'] }", "mcpServers.a: refers to the environment variable"),
        ("mcpServers.a = { command = 'x', profile = { readable = ['gone'] } }", "mcpServers.a.profile.readable: names"),
    ],
)
def test_each_mistake_has_its_words_and_shows_no_value(places: Places, text: str, complaint: str) -> None:
    places.user(text)
    (said,) = places.complaints()
    assert said.startswith(complaint) and SECRET not in said


def test_nothing_that_may_be_a_secret_is_shown(places: Places) -> None:
    places.user(
        f"""
        [mcpServers.a]
        command = "server"
        args = ["--token={SECRET}"]
        env = {{ API_TOKEN = "{SECRET}" }}
        [mcpServers.b]
        url = "https://mcp.example.com/v1?key={SECRET}"
        headers = {{ Authorization = "Bearer {SECRET}" }}
        """
    )
    config = places.load()
    assert SECRET not in repr(config) and SECRET not in repr([each.shown for each in config.servers.values()])
    assert config.servers["a"].shown == {"command": "server", "env": ["API_TOKEN"], "tier": "system"}
    assert config.servers["b"].shown["url"] == "https://mcp.example.com"


def test_variables_are_replaced_in_texts_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "ann")
    assert with_variables({"a": ["${WHO}", 7, {"b": "x${WHO}y"}]}) == {"a": ["ann", 7, {"b": "xanny"}]}
    assert with_variables("$WHO {WHO} ${WHO") == "$WHO {WHO} ${WHO"
