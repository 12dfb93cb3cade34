"""The pydantic models of the tables in a toolcell.toml. `complaints` describes the mistakes in one.

The error of a check never shows a value, because it may be a secret. The checks of limits, names and networks call
`Limits`, `Profile` and `ProxyNetwork`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, ClassVar, TypeGuard, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from toolcell.rules.channel import LEVELS, ChannelPolicy
from toolcell.rules.credentials import Credential, parse_origin
from toolcell.rules.hosts import HttpRule
from toolcell.rules.options import PlainOptions
from toolcell.rules.pages import WebRule
from toolcell.rules.profile import Profile
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import from_wire as network_of
from toolcell_sandbox.profile import CAPABILITIES
from toolcell_sandbox.report import NAMES
from toolcell_sandbox.trees.protected import check as check_names
from toolcell_tools.capability import PermissionTier, SessionKind

_LISTS = (list, tuple, frozenset, set)
_KINDS_OF_VALUE: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a fraction"),
    (str, "text"),
    (list, "a list"),
    (Mapping, "a table"),
)


def is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether this is a mapping with text keys, as a TOML table is."""
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)  # pyright: ignore[reportUnknownVariableType]


def not_a(wanted: str, value: object) -> ValueError:
    """The error for a value of a wrong type. It names only the type, because the value may be a secret."""
    found = next((words for kind, words in _KINDS_OF_VALUE if isinstance(value, kind)), f"a {type(value).__name__}")
    return ValueError(f"should be {wanted}, is {found}.")


# -- values ------------------------------------------------------------------------------------------------------------


def _is(wanted: str, *kinds: type) -> BeforeValidator:
    """A check that the value has one of these types. A bool is not a number."""

    def check(value: object) -> object:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise not_a(wanted, value)
        return value

    return BeforeValidator(check)


def _list_of_text(value: object) -> list[object]:
    if not isinstance(value, _LISTS):
        raise not_a("a list of text", value)
    return list(cast("list[object]", value))


def _dict(wanted: str, value: object) -> dict[str, object]:
    if not is_table(value):
        raise not_a(wanted, value)
    return dict(value)


def _table_of(what: str) -> BeforeValidator:
    return BeforeValidator(partial(_dict, f"a table of {what}"))


def _no_secret(value: object) -> object:
    raise ValueError("is a secret in a file of settings. Name where it is, with value_env or value_file.")


def _without_null(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a null character. Leave it out.")
    return text


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("is empty. Leave it out for any.")
    return text


def _asking(what: str, ask: Callable[[Any], object]) -> AfterValidator:
    """A check by `ask`, the check of the object that gets the value. Its errors begin with the object's name,
    `what`.
    """

    def check(value: Any) -> Any:
        try:
            ask(value)
        except ValueError as error:
            raise ValueError(str(error).removeprefix(what)) from None
        return value

    return AfterValidator(check)


def _known(what: str, names: frozenset[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(names))}."
            raise ValueError(f"there is no {what} {name!r}. {remedy}")
        return name

    return AfterValidator(check)


def _variable_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("is not a name of an environment variable. Leave out '=' and what follows.")
    return name


def _limit(name: str) -> BeforeValidator:
    seconds = name.endswith("_s")
    wanted, kinds = ("a number of seconds", (int, float)) if seconds else ("a whole number", (int,))

    def check(value: Any) -> Any:
        try:
            Limits().replace(**{name: value})
        except ValueError as error:
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise not_a(f"{wanted} above zero", value) from None
            raise ValueError(str(error).removeprefix(f"Limits.{name} ")) from None
        return value

    return BeforeValidator(check)


def _whole(least: int, most: float = math.inf) -> AfterValidator:
    def check(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"should be {_words(least, most)}, is {value}.")
        return value

    return AfterValidator(check)


def _words(least: int, most: float = math.inf) -> str:
    return f"a whole number from {least}" + ("" if most == math.inf else f" to {most}")


def _seconds(value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"should be a number of seconds above zero, is {value}.")
    return value


def _lifetime(value: float) -> float:
    if not value > 0:
        raise ValueError(f"should be a number of seconds above zero, or inf, is {value}.")
    return value


_Flag = Annotated[bool, _is("true or false", bool)]
_Text = Annotated[str, _is("text", str), AfterValidator(_without_null)]
_Listed = BeforeValidator(_list_of_text)
_Texts = Annotated[list[_Text], _Listed]
_Seconds = Annotated[float, AfterValidator(_seconds), _is("a number of seconds above zero", int, float)]
_Lifetime = Annotated[float, AfterValidator(_lifetime), _is("a number of seconds above zero, or inf", int, float)]
_Count = Annotated[int, _is(_words(1), int), _whole(1)]


def _of_profile(name: str) -> AfterValidator:
    return _asking(f"Profile.{name} ", lambda value: Profile().replace(**{name: value}))


def _protected_name(name: str) -> None:
    """Check a protected name, "..." for the names of the layers below, or "!name" to remove one. `load` checks that it
    exists.
    """
    check_names([name.removeprefix("!")] if name != "..." else [])


# -- tables ------------------------------------------------------------------------------------------------------------


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    wanted: ClassVar[str] = "a table"

    @model_validator(mode="before")
    @classmethod
    def _is_table(cls, value: object) -> object:
        return _dict(cls.wanted, value)


def _table(name: str, of: Mapping[str, object]) -> type[_Table]:
    """A model with these annotated fields. All are optional."""
    make: Any = create_model  # its signature does not allow fields that are known only at run time
    return cast("type[_Table]", make(name, __base__=_Table, **{field: (kind, None) for field, kind in of.items()}))


def _left_out() -> Any:
    """The default of a table, which may be left out."""
    return Field(default=None)


LimitsTable = _table("LimitsTable", {each.name: Annotated[Any, _limit(each.name)] for each in fields(Limits)})


class NetworkTable(_Table):
    """A network policy: its kind, and the fields of ProxyNetwork."""

    wanted: ClassVar[str] = 'a table such as { kind = "proxy", allow = ["example.org"] }'
    kind: _Text = ""
    allow: Any = ()
    allow_private: Any = ()
    max_bytes: Any = None
    max_connections: Any = None
    idle_s: Any = None

    @model_validator(mode="after")
    def _is_a_policy(self) -> "NetworkTable":
        if "kind" not in self.model_fields_set:
            raise ValueError('does not say its kind. Set kind to "none", "proxy" or "host".')
        try:
            network_of(self.model_dump(exclude_unset=True))
        except ValueError as error:
            raise ValueError(str(error).removeprefix("Profile.network ")) from None
        return self


class CredentialTable(_Table):
    """The place of a secret, and how it is sent. A settings file never contains the secret."""

    wanted: ClassVar[str] = 'a table such as { value_env = "API_TOKEN", prefix = "Bearer " }'
    header: _Text = ""
    value_env: _Text = ""
    value_file: _Text = ""
    prefix: _Text = ""
    scheme: _Text = ""
    value: Annotated[Any, BeforeValidator(_no_secret)] = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _is_a_credential(self) -> "CredentialTable":
        Credential(**self.model_dump(exclude_unset=True))
        return self


def _one_or_more_texts(value: object) -> list[object]:
    return [value] if isinstance(value, str) else _list_of_text(value)


def _per_s(value: float) -> None:
    ChannelPolicy(per_s=value)


class ChannelPolicyTable(_Table):
    """The fields of ChannelPolicy."""

    wanted: ClassVar[str] = 'a table such as { level = "reply", burst = 5 }'
    level: Annotated[_Text, _known("level", frozenset(LEVELS))] = ""
    burst: _Count = 1
    per_s: Annotated[float, _asking("ChannelPolicy.per_s ", _per_s), _is("a number above zero", int, float)] = 1.0


class ProfileTable(_Table):
    """The fields of Profile, except `cwd`, which each call sets."""

    grants: Annotated[list[Annotated[_Text, _known("capability", CAPABILITIES)]], _Listed] = []
    limits: LimitsTable = _left_out()  # type: ignore[valid-type]
    readable: _Texts = []
    writable: _Texts = []
    system: _Texts = []
    env: Annotated[dict[Annotated[str, AfterValidator(_variable_name)], _Text], _table_of("text")] = {}
    pass_env: Annotated[list[Annotated[_Text, AfterValidator(_variable_name)]], _Listed] = []
    network: NetworkTable = _left_out()
    http: Annotated[list[Annotated[_Text, _asking("Profile.http ", HttpRule.parse)]], _Listed] = []
    web: Annotated[
        list[Annotated[_Text, _asking("Profile.web ", WebRule.parse)]], BeforeValidator(_one_or_more_texts)
    ] = []
    channel: ChannelPolicyTable = _left_out()
    proc: _Flag = True
    hostname: Annotated[_Text, _of_profile("hostname")] = ""
    protected: Annotated[list[Annotated[_Text, _asking("", _protected_name)]], _Listed] = []
    unchecked: Annotated[_Text, _of_profile("unchecked")] = ""
    quarantined: Annotated[_Text, _of_profile("quarantined")] = ""
    exceptions: Annotated[_Text, _of_profile("exceptions")] = ""
    changes: Annotated[_Text, _of_profile("changes")] = ""
    changed_files: Annotated[int, _is("a number", int), _of_profile("changed_files")] = 200


def _one_or_more(value: object) -> list[object]:
    return list(cast("list[object]", value)) if isinstance(value, (list, tuple)) else [value]


def _values_of(what: str) -> BeforeValidator:
    return BeforeValidator(partial(_dict, what))


class ConcurrencyTable(_Table):
    """The fields of Concurrency."""

    wanted: ClassVar[str] = "a table such as { tools = { fetch = 4 }, kinds = { worker = 8 } }"
    tools: Annotated[dict[_Text, _Count], _values_of("a table such as { fetch = 4 }")] = {}
    kinds: Annotated[
        dict[Annotated[_Text, _known("session kind", frozenset(SessionKind))], _Count],
        _values_of("a table such as { worker = 8 }"),
    ] = {}


class _KeyTable(_Table):
    """A place where a secret is, if there is one. The secret is never in a settings file."""

    value_env: _Text = ""
    value_file: _Text = ""
    value: Annotated[Any, BeforeValidator(_no_secret)] = Field(default=None, exclude=True)
    url: _Text = ""
    private: _Flag = False


class SearchTable(_KeyTable):
    """A search engine: its kind, its endpoint, and where its key is."""

    wanted: ClassVar[str] = 'a table such as { kind = "searxng", url = "https://search.example.org/search" }'
    kind: Annotated[_Text, _known("search engine", frozenset({"searxng", "brave", "tavily"}))]

    @model_validator(mode="after")
    def _has_an_endpoint(self) -> "SearchTable":
        if not self.url:
            raise ValueError("has no url. Name the search engine's endpoint.")
        return self


class WebTable(_Table):
    """The options of PublicWeb that are plain data."""

    wanted: ClassVar[str] = "a table such as { timeout_s = 30.0 }"
    search: SearchTable = _left_out()
    allow_private: _Texts = []
    timeout_s: _Seconds = 15.0
    max_redirects: Annotated[int, _is(_words(0), int), _whole(0)] = 5
    user_agent: _Text = ""


class MemoryTable(_Table):
    """The memory of sessions that are given none."""

    wanted: ClassVar[str] = "a table such as { embed = true }"
    kind: Annotated[_Text, _known("memory", frozenset({"sqlite", "lancedb"}))] = "sqlite"
    path: _Text = ""
    embed: _Flag = False
    max_text_bytes: _Count = 1
    max_records: _Count = 1


class ChannelTable(_KeyTable):
    """The channel of sessions that are opened without one."""

    wanted: ClassVar[str] = 'a table such as { kind = "console" }'
    kind: Annotated[_Text, _known("channel", frozenset({"log", "console", "webhook"}))]
    header: _Text = ""
    prefix: _Text = ""
    approves: _Flag = False
    timeout_s: _Seconds = 30.0


_KINDS: Mapping[str, object] = {
    "count": _Count,
    "standby": Annotated[int, _is(_words(0, 1), int), _whole(0, 1)],
    "seconds": _Seconds,
    "finite seconds": _Seconds,
    "path": _Text,
    "mechanisms": Annotated[list[Annotated[_Text, _known("mechanism", frozenset(NAMES))]], _Listed],
    "concurrency": ConcurrencyTable,
    "lifetimes": Annotated[
        dict[Annotated[_Text, _known("session kind", frozenset(SessionKind))], _Lifetime],
        _values_of("a table such as { worker = 600 }"),
    ],
}
"""The type of each kind of PlainOptions."""

SupervisorTable = _table(
    "SupervisorTable",
    {
        **{each.name: _KINDS[each.metadata["kind"]] for each in fields(PlainOptions)},
        "credentials": Annotated[  # a host may have one credential or a list of them
            dict[
                Annotated[str, _asking("", parse_origin)],
                Annotated[list[CredentialTable], BeforeValidator(_one_or_more)],
            ],
            _values_of('a table such as { "api.example.com" = { value_env = "API_TOKEN" } }'),
        ],
        "channel": ChannelTable,
        "memory": MemoryTable,
        "web": WebTable,
    },
)


_Condition = Annotated[_Text, AfterValidator(_not_empty)]
_Decision = Annotated[_Text, _known("decision", frozenset({"allow", "ask", "deny"}))]


class RuleTable(_Table):
    """The fields of PolicyRule."""

    wanted: ClassVar[str] = 'a table such as { decision = "deny", tool = "shell" }'
    decision: _Decision
    tool: _Condition = ""
    tier: Annotated[_Text, _known("tier", frozenset(PermissionTier))] = ""
    kind: Annotated[_Text, _known("session kind", frozenset(SessionKind))] = ""
    agent: _Condition = ""
    channel: _Condition = ""
    arguments: Annotated[dict[_Text, _Text], _values_of('a table such as { path = "src/*" }')] = {}
    name: _Text = ""


class PolicyTable(_Table):
    """The fields of TierPolicy."""

    read_only: _Decision = ""
    workspace: _Decision = ""
    system: _Decision = ""
    elevated: _Decision = ""
    tools: Annotated[dict[_Text, _Decision], _values_of('a table such as { shell = "ask" }')] = {}
    rules: Annotated[list[RuleTable], _Listed] = []
    kinds: Annotated[
        dict[Annotated[_Text, _known("session kind", frozenset(SessionKind))], "PolicyTable"],
        _values_of("a table of session kinds"),
    ] = {}
    agents: Annotated[dict[_Text, "PolicyTable"], _values_of("a table of agents")] = {}
    channels: Annotated[dict[_Text, "PolicyTable"], _values_of("a table of channels")] = {}


class McpServerTable(_Table):
    """One MCP server: the keys that MCP clients share, then the other arguments of `mcp_toolset`."""

    wanted: ClassVar[str] = 'a table such as { command = "mcp-server-git" }'
    command: Annotated[_Text, AfterValidator(_not_empty)] = ""
    args: _Texts = []
    env: Annotated[dict[Annotated[str, AfterValidator(_variable_name)], _Text], _table_of("text")] = {}
    url: Annotated[_Text, AfterValidator(_not_empty)] = ""
    headers: Annotated[dict[_Text, _Text], _table_of("text")] = {}
    type: Annotated[_Text, _known("transport", frozenset({"stdio", "http", "streamable-http"}))] = ""
    disabled: _Flag = False
    profile: ProfileTable = _left_out()
    needs: Annotated[list[Annotated[_Text, _known("capability", CAPABILITIES)]], _Listed] = []
    tier: Annotated[_Text, _known("tier", frozenset(PermissionTier))] = ""
    tiers: Annotated[
        dict[_Text, Annotated[_Text, _known("tier", frozenset(PermissionTier))]],
        _values_of('a table such as { search = "read_only" }'),
    ] = {}
    prefix: _Text = ""
    requires_approval: _Flag = False
    timeout: _Seconds = 1.0
    required: _Flag = False

    @model_validator(mode="after")
    def _is_one_server(self) -> "McpServerTable":
        if bool(self.command) == bool(self.url):
            raise ValueError("is a server with a command or with a url, and not with both. Set one of them.")
        if self.url and (self.args or self.env):
            raise ValueError("has a url, and no process that could have args or env. Leave them out.")
        if self.command and self.headers:
            raise ValueError("has a command, which takes no headers. Leave them out.")
        return self


ProfilesTable = _table("ProfilesTable", {kind.value: ProfileTable for kind in SessionKind})


class FileTable(_Table):
    """A whole toolcell.toml. `state` may stand here or in [supervisor]."""

    state: _Text = ""
    profiles: ProfilesTable = _left_out()  # type: ignore[valid-type]
    supervisor: SupervisorTable = _left_out()  # type: ignore[valid-type]
    policy: PolicyTable = _left_out()
    mcpServers: Annotated[
        dict[Annotated[_Text, AfterValidator(_not_empty)], McpServerTable],
        _values_of('a table such as { git = { command = "mcp-server-git" } }'),
    ] = {}
