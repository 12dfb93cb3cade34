"""Guards that are wrong fail where they are made, and what a session is offered works there."""

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from toolcell import (
    Capability,
    Deny,
    ExecutionError,
    Hook,
    HostNetwork,
    PermissionDenied,
    Profile,
    ProxyNetwork,
    PublicWeb,
    SessionInfo,
    SessionKind,
    Supervisor,
    TierPolicy,
    ToolCall,
    ToolDeclaration,
    ToolResult,
    Toolset,
    UsageError,
    base_tools,
    host_tool,
    provider_tool,
    tool,
)
from toolcell_tools.definition import Tool
from toolcell_tools.errors import ErrorBase
from toolcell_tools.preview import Preview

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


@tool
def greet(name: str = "you") -> str:
    """Greet."""
    return f"hello {name}"


@tool
def wipe() -> str:
    """Wipe."""
    return "gone"


@tool(needs={Capability.NET})
def dial() -> str:
    """Dial."""
    return "dialled"


@tool(needs={Capability.HTTP})
def order() -> str:
    """Order."""
    return "ordered"


@host_tool(needs={Capability.NET})
def dial_outside() -> str:
    """Dial from the supervisor's own process."""
    return "dialled"


# -- policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        TierPolicy(tools={"wip": "deny"}),
        TierPolicy(kinds={SessionKind.BRANCH: TierPolicy(tools={"wip": "deny"})}),
        TierPolicy(agents={"intern": TierPolicy(channels={"public": TierPolicy(tools={"wip": "deny"})})}),
    ],
    ids=["its own", "of a kind", "of a channel of an agent"],
)
def test_a_policy_that_names_no_tool_is_refused_with_the_near_name(policy: TierPolicy) -> None:
    with pytest.raises(UsageError, match=r"no tool 'wip'\. Did you mean 'wipe'"):
        Supervisor([greet, wipe], policy=policy)


def test_a_policy_may_name_a_tool_that_its_provider_runs() -> None:
    search = provider_tool("search", provider="openai", definition={"type": "web_search"})
    Supervisor([greet, search], policy=TierPolicy(tools={"search": "deny"}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kinds": {"brnch": TierPolicy()}}, "'brnch'. Did you mean 'branch'"),
        ({"agents": {"intern": {"shell": "deny"}}}, "agents['intern'] is not a TierPolicy"),
        ({"tools": ["shell"]}, "tools is not a mapping"),
    ],
)
def test_a_tier_policy_that_could_not_hold_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        TierPolicy(**options)
    assert said in str(raised.value)


class Misspelt:
    def decides(self, call: object, declaration: object, session: object) -> str:
        return "deny"


class Slow:
    async def decide(self, call: object, declaration: object, session: object) -> str:
        return "deny"


@pytest.mark.parametrize(
    ("policy", "said"),
    [(Misspelt(), "'decides'"), (Slow(), "async"), (TierPolicy, "class"), ({"shell": "deny"}, "decide")],
)
def test_what_cannot_decide_is_no_policy(policy: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Supervisor(policy=cast("Any", policy))


class Later(Toolset):
    """Offers `wipe` when it is asked."""

    @property
    def name(self) -> str:
        return "later"

    async def tools(self, session: SessionInfo) -> list[Tool[..., Any]]:
        return [wipe]


async def test_rules_for_tools_of_toolsets_are_checked_when_those_are_known(
    supervise: Any, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = TierPolicy(tools={"wipe": "deny", "wip": "deny"})
    async with supervise([greet], toolsets=[Later()], policy=policy) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        for _ in range(2):
            assert [one.name for one in await session.tools()] == ["greet"]
        assert isinstance((await session.call("wipe")).error, PermissionDenied)
        (record,) = supervisor.journal.of(kind="incident")
    assert "'wip'" in record.data["what"] and "Did you mean 'wipe'" in record.data["what"]
    assert sum("'wip'" in each.getMessage() for each in caplog.records) == 1, "told once"


async def test_a_rule_that_matched_nothing_all_along_is_reported_at_the_end(
    supervise: Any, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervise([greet], toolsets=[Later()], policy=TierPolicy(tools={"wip": "deny"})) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("greet")).error is None
    assert any("'wip'" in each.getMessage() for each in caplog.records)


# -- hooks -----------------------------------------------------------------------------------------------------------


class Misnamed:
    async def before_cal(self, call: ToolCall) -> Deny:
        return Deny("no")


class HalfMisnamed(Hook):
    async def after_call(self, call: ToolCall, result: ToolResult) -> None:
        return None

    async def beforeCall(self, call: ToolCall) -> Deny:
        return Deny("no")


class Unfit:
    async def before_call(self) -> None: ...


class Streams:
    async def after_call(self, call: ToolCall, result: ToolResult) -> Any:
        yield result


class NoMethod:
    before_call = "deny"


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (3, "no hook methods"),
        (Hook(), "no hook methods"),
        (Misnamed(), "'before_cal'. Did you mean 'before_call'"),
        (HalfMisnamed(), "'beforeCall'. Did you mean 'before_call'"),
        (Unfit(), "before_call of Unfit does not take"),
        (Streams(), "generator"),
        (NoMethod(), "not callable"),
        (HalfMisnamed, "is a class"),
    ],
)
def test_what_would_never_be_asked_is_no_hook(hook: object, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        Supervisor(hooks=[hook])
    assert said in str(raised.value)


def test_one_hook_that_is_in_no_list_is_refused() -> None:
    with pytest.raises(UsageError, match="list"):
        Supervisor(hooks=cast("Any", Sync([])))


class Sync:
    """Its methods are plain functions."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def before_call(self, call: ToolCall) -> ToolCall:
        self.log.append("before")
        return call.with_arguments({"name": "sync"})

    def after_call(self, call: ToolCall, result: ToolResult) -> ToolResult:
        self.log.append("after")
        return ToolResult(output=[result.output])


class Proxied:
    """Has no method of its own, and hands everything to another hook."""

    def __init__(self, to: object) -> None:
        self._to = to

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


@dataclass
class OnlyErrors:
    """A dataclass, with one method and a helper whose name is near that of a method it has."""

    seen: list[str] = field(default_factory=list[str])

    async def on_error(self, call: ToolCall, error: ErrorBase) -> None:
        self.on_errors(error)

    def on_errors(self, error: ErrorBase) -> None:
        self.seen.append(error.message)


async def test_sync_hooks_and_hooks_of_any_make_work(supervise: Any, workspace: Path) -> None:
    log: list[str] = []
    errors = OnlyErrors()
    async with supervise([greet], hooks=[Proxied(Sync(log)), errors]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("greet")).output == ["hello sync"]
    assert log == ["before", "after"] and errors.seen == []


class Stuck:
    """A plain method that hangs."""

    def __init__(self, name: str) -> None:
        self.free = threading.Event()
        setattr(self, name, self._hang)

    def _hang(self, *_given: object) -> None:
        self.free.wait(3600)


@pytest.mark.parametrize(
    ("name", "says"), [("before_call", "was stopped, because the hook Stuck"), ("after_call", "result is withheld")]
)
async def test_a_plain_hook_that_hangs_has_the_deadline_and_holds_no_loop(
    supervise: Any, workspace: Path, name: str, says: str
) -> None:
    hook = Stuck(name)
    async with supervise([greet], hooks=[hook], hook_timeout_s=0.3) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        result = await session.call("greet")  # on the event loop, the hook would hang for an hour
        hook.free.set()
    assert isinstance(result.error, PermissionDenied) and says in result.error.message


# -- what is offered -------------------------------------------------------------------------------------------------


async def offered(supervisor: Supervisor, workspace: Path, **options: Any) -> set[str]:
    session = await supervisor.open_session("main", workspace=workspace, **options)
    return {one.name for one in await session.tools()}


async def test_what_the_policy_denies_is_not_offered_and_not_suggested(supervise: Any, workspace: Path) -> None:
    search = provider_tool("search", provider="openai", definition={"type": "web_search"})
    policy = TierPolicy(tools={"shell": "deny", "search": "deny"}, agents={"intern": TierPolicy(workspace="deny")})
    async with supervise([*base_tools(), search], policy=policy) as supervisor:
        names = await offered(supervisor, workspace)
        assert not names & {"shell", "search"} and "write" in names
        assert "write" not in await offered(supervisor, workspace, agent_id="intern")
        session = await supervisor.open_session("main", workspace=workspace)
        forced = await session.call("shell", {"command": "true"})
        assert isinstance(forced.error, PermissionDenied) and "policy denies" in forced.error.message
        assert "shell" not in (await session.call("shel")).error.suggestions


class Lenient(TierPolicy):
    """Decides by the arguments, whatever the tiers say."""

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Any:
        return "allow" if call.arguments.get("name") == "you" else "deny"


async def test_a_policy_that_decides_by_the_call_takes_nothing_from_the_offer(supervise: Any, workspace: Path) -> None:
    async with supervise([greet], policy=Lenient(tools={"greet": "deny"})) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert [one.name for one in await session.tools()] == ["greet"]
        assert (await session.call("greet", {"name": "you"})).output == "hello you"


@pytest.mark.parametrize(
    ("profile", "name", "capability", "said"),
    [
        (Profile.for_kind("main"), "dial", Capability.NET, "no network"),
        (Profile.for_kind("main").replace(network=ProxyNetwork(allow=[])), "dial", Capability.NET, "no host"),
        (Profile.for_kind("main"), "order", Capability.HTTP, "no host"),
    ],
    ids=["no network", "an empty proxy", "no rules"],
)
async def test_a_capability_that_reaches_nothing_is_refused_before_the_run_in_words(
    profile: Profile, name: str, capability: Capability, said: str, supervise: Any, workspace: Path
) -> None:
    async with supervise([dial, order, *base_tools()]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        assert name not in {one.name for one in await session.tools()}
        result = await session.call(name, {})
    assert isinstance(result.error, PermissionDenied) and result.error.missing == (capability,)
    assert said in result.error.message and "Whoever runs the agent" in result.error.message
    assert result.usage.wall_s == 0, "no process has run"


async def test_a_search_says_where_there_is_no_engine(supervise: Any, workspace: Path) -> None:
    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        (search,) = [one for one in await session.tools() if one.name == "web_search"]
        assert search.description.startswith(
            "There is no search engine here, so that every call fails. Search the web."
        )
        result = await session.call("web_search", {"query": "owls"})
        assert isinstance(result.error, ExecutionError) and "search" in result.error.message
        engine = PublicWeb(search_url="https://search.example.com/?q={query}")
        session = await supervisor.open_session("worker", workspace=workspace, web=engine)
        (search,) = [one for one in await session.tools() if one.name == "web_search"]
        assert search.description.startswith("Search the web.")


async def test_a_shell_without_a_network_says_so(supervise: Any, workspace: Path) -> None:
    wide = Profile.for_kind("main").replace(network=HostNetwork())
    async with supervise(base_tools()) as supervisor:
        for profile, closed in ((None, True), (wide, False)):
            session = await supervisor.open_session("main", workspace=workspace, profile=profile)
            (shell,) = [one for one in await session.tools() if one.name == "shell"]
            assert shell.description.endswith("\n\nIt has no network.") is closed


async def test_what_reaches_something_is_offered_and_runs(supervise: Any, workspace: Path) -> None:
    wide = Profile.for_kind("main").replace(network=HostNetwork(), http=("GET https://api.example.com",))
    engine = PublicWeb(search_url="https://search.example.com/?q={query}")
    async with supervise([dial, order, dial_outside, *base_tools()]) as supervisor:
        assert {"dial", "order", "web_search"} <= await offered(supervisor, workspace, profile=wide, web=engine)
        assert "dial_outside" in await offered(supervisor, workspace), (
            "what the supervisor runs needs no cell's network"
        )
        session = await supervisor.open_session("main", workspace=workspace, profile=wide)
        assert (await session.call("dial")).output == "dialled"


# -- messages --------------------------------------------------------------------------------------------------------


@contextmanager
def level_of_the_channel(level: int) -> Generator[None]:
    logger = logging.getLogger("toolcell.channel")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


async def test_the_default_channel_says_that_a_message_was_only_logged_or_that_nobody_saw_it(
    supervise: Any, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervise(base_tools()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        output = (await session.call("message", {"text": "up\x1b[2J\nnext"})).output
        assert (output["sent"], output["logged"]) == (False, True)
        assert "which nobody may read" in output["note"]
        with level_of_the_channel(logging.CRITICAL):
            unseen = await session.call("message", {"text": "anybody?"})
    (shown,) = [each for each in caplog.records if each.name == "toolcell.channel"]
    assert shown.levelno == logging.WARNING, "which a program that sets up no logging shows on stderr"
    assert shown.getMessage().endswith("up\\x1b[2J\n    next")
    assert isinstance(unseen.error, ExecutionError) and "Nobody saw the message" in unseen.error.message


# -- summaries -------------------------------------------------------------------------------------------------------


def test_the_summary_of_a_call_shows_the_values() -> None:
    small, large = (Preview.of_call("shop_pay", {"amount": amount}).summary for amount in (5, 500))
    assert (small, large) == ("shop_pay(amount=5)", "shop_pay(amount=500)")


def test_a_long_value_hides_no_short_one() -> None:
    shown = Preview.of_call("pay", {"note": "x" * 5_000, "amount": 500, "to": "ann", "memo": "y" * 5_000}).summary
    assert "amount=500" in shown and 'to="ann"' in shown and len(shown) <= 200
    assert 'note="xxx' in shown and 'memo="yyy' in shown, "and each shows how it begins"


def test_a_value_neither_leaves_its_quotes_nor_turns_the_writing() -> None:
    shown = Preview.of_call("pay", {"to": 'ann", amount=5', "note": "\u202eevil\x1b[2J"}).summary
    assert r'to="ann\", amount=5"' in shown and "\\u202eevil" in shown and "\x1b" not in shown
