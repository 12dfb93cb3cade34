"""The channel, the memory and the web client that settings make, and what a wrong table gets."""

from pathlib import Path
from typing import Any

import pytest

from toolcell import ConfigError, ConsoleChannel, Supervisor, UsageError, WebhookChannel, base_tools, load_config
from toolcell.runtime.settings import Settings
from toolcell.supervisor import runtime_of


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings of a supervisor with this toolcell.toml."""
    monkeypatch.setenv("SOME_KEY", "a-secret-of-the-test")

    def make(text: str) -> Settings:
        file = tmp_path / "toolcell.toml"
        file.write_text(text)
        return runtime_of(Supervisor(base_tools(), config=load_config(file=file))).settings

    return make


def test_tables_make_a_channel_and_a_web_client(made: Any) -> None:
    search = (
        '[supervisor.web.search]\nkind = "brave"\nurl = "https://search.example.org/web/search"\nvalue_env = "SOME_KEY"'
    )
    settings = made(f'[supervisor.web]\ntimeout_s = 3\nallow_private = ["127.0.0.1:1"]\n{search}')
    assert settings.new_web is not None and settings.new_web() is settings.new_web() and settings.new_web().can_search
    assert settings.channel is None
    assert isinstance(made('[supervisor.channel]\nkind = "console"').channel, ConsoleChannel)
    hook = 'kind = "webhook"\nurl = "https://hook.example.org/x"\nvalue_env = "SOME_KEY"\nprefix = "Bearer "'
    channel = made(f"[supervisor.channel]\n{hook}\napproves = true").channel
    assert isinstance(channel, WebhookChannel) and hasattr(channel, "approve") and "secret" not in repr(channel)
    assert made('[supervisor.channel]\nkind = "log"').channel is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[supervisor.web.search]\nkind = "tavily"\nurl = "https://s.example.org/"', "has no key. Set value_env"),
        ('[supervisor.web.search]\nkind = "tavily"', "supervisor.web.search: has no url"),
        ('[supervisor.web.search]\nkind = "gogle"\nurl = "x"', "there is no search engine 'gogle'"),
        ('[supervisor.web.search]\nkind = "brave"\nvalue = "s"', "is a secret in a file of settings"),
        ("[supervisor.web]\ntimeout = 1", "supervisor.web.timeout: unknown. Did you mean timeout_s?"),
        ('[supervisor.channel]\nkind = "webhook"', "of the kind 'webhook' has no url"),
        ('[supervisor.channel]\nkind = "pigeon"', "there is no channel 'pigeon'"),
        ("[supervisor.memory]\nembed = 1", "supervisor.memory.embed: should be true or false, is a whole number"),
        ('[supervisor.memory]\nkind = "lancedb"', "of the kind 'lancedb' has no path"),
    ],
)
def test_a_wrong_table_is_refused_when_the_supervisor_is_made(made: Any, text: str, why: str) -> None:
    with pytest.raises((ConfigError, UsageError)) as caught:
        made(text)
    assert why in str(caught.value)


@pytest.mark.parametrize("table", ["[supervisor.web]\n", '[supervisor.channel]\nkind = "log"', "[supervisor.memory]\n"])
def test_a_project_has_no_say_in_them(tmp_path: Path, table: str) -> None:
    (tmp_path / "toolcell.toml").write_text(table)
    with pytest.raises(ConfigError, match="is for every project"):
        load_config(tmp_path)
