"""Make a supervisor's channel, memory and web client from its settings. Each is loaded when it is first needed."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcell.backends.errors import NotConfigured
from toolcell.errors import UsageError
from toolcell.rules.credentials import Credential
from toolcell.rules.toml import Config

if TYPE_CHECKING:
    from toolcell.backends.lancedb_memory import LanceDBMemory
    from toolcell.backends.memory import SQLiteMemory
    from toolcell.backends.protocols import Channel, SearchProvider, WebClient
    from toolcell.store.directory import StateDirectory

    OwnMemory = SQLiteMemory | LanceDBMemory

__all__ = ["channel_of", "memory_of", "web_of"]


def channel_of(config: Config | None) -> "Channel | None":
    """The channel of `[supervisor.channel]`, or None. Raises UsageError for a table from which none can be made."""
    table = None if config is None else config.channel
    match None if table is None else table["kind"]:
        case "console":
            from toolcell.backends.channels.console import ConsoleChannel

            return ConsoleChannel()
        case "webhook":
            assert table is not None
            from toolcell.backends.channels.webhook import WebhookChannel

            if not table.get("url"):
                raise UsageError(
                    "[supervisor.channel] of the kind 'webhook' has no url. Name where messages are posted."
                )
            options = {name: table[name] for name in ("private", "approves", "timeout_s") if name in table}
            return WebhookChannel(table["url"], credential=_key(table), **options)
        case _:
            return None


def memory_of(config: Config | None, state: "StateDirectory | None") -> "Callable[[], OwnMemory]":
    """Returns a new memory by `[supervisor.memory]`: in its path, else in the state directory, else in this process.
    Raises UsageError for a table from which none can be made."""
    table = (None if config is None else config.memory) or {}
    options = {name: table[name] for name in ("max_text_bytes", "max_records") if name in table}
    if table.get("embed"):
        from toolcell.backends.embedding import LocalEmbedder

        options["embedder"] = LocalEmbedder()
    is_lance = table.get("kind") == "lancedb"
    if is_lance and "path" not in table:
        raise UsageError("[supervisor.memory] of the kind 'lancedb' has no path. Name a directory.")

    def new() -> "OwnMemory":
        if is_lance:
            from toolcell.backends.lancedb_memory import LanceDBMemory

            return LanceDBMemory(table["path"], **options)
        from toolcell.backends.memory import SQLiteMemory

        path = table.get("path") or (":memory:" if state is None else state.memory)
        try:
            return SQLiteMemory(path, **options)
        except NotConfigured as error:
            raise UsageError(str(error)) from error

    return new


def web_of(config: Config | None) -> "Callable[[], WebClient] | None":
    """Returns the web client of `[supervisor.web]`, made at its first use; None without such a table. Raises
    UsageError for a table from which none can be made."""
    table = None if config is None else config.web
    if table is None:
        return None
    options = {name: value for name, value in table.items() if name != "search"}
    search = _search_of(table["search"]) if "search" in table else None

    @cache
    def web() -> "WebClient":
        from toolcell.backends.web import PublicWeb

        return PublicWeb(search=search, **options)

    web()  # errors are raised here rather than at the first call
    return web


def _search_of(table: Mapping[str, Any]) -> "SearchProvider":
    from toolcell.backends.search import BraveSearch, SearXNG, TavilySearch

    private = table.get("private", False)
    if table["kind"] == "searxng":
        return SearXNG(table["url"], credential=_key(table), private=private)
    is_brave = table["kind"] == "brave"
    key = _key(table, header="X-Subscription-Token") if is_brave else _key(table, prefix="Bearer ")
    if key is None:
        raise UsageError(
            f"[supervisor.web.search] of the kind {table['kind']!r} has no key. Set value_env or value_file."
        )
    return (BraveSearch if is_brave else TavilySearch)(table["url"], key, private=private)


def _key(table: Mapping[str, Any], header: str = "Authorization", prefix: str = "") -> Credential | None:
    """The credential in a table that says where its secret is, or None."""
    env, file = table.get("value_env"), table.get("value_file")
    if env is None and file is None:
        return None
    header, prefix = table.get("header", header), table.get("prefix", prefix)
    return Credential(header=header, prefix=prefix, value_env=env, value_file=file)
