"""Policies: what each tier may do, by tool, kind, agent and channel."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import (
    Capability,
    Explanation,
    PermissionDenied,
    PermissionTier,
    PolicyRule,
    SessionInfo,
    SessionKind,
    TierPolicy,
    UsageError,
    tool,
)
from toolcell.rules.call import ToolCall
from toolcell.rules.policy import Decision, StricterPolicy, explained
from toolcell_tools.declaration import ToolDeclaration


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough: nothing here waits in a way of its own."""
    return "asyncio"


@tool(tier=PermissionTier.READ_ONLY)
def look() -> str:
    """Look."""
    return "seen"


@tool(tier=PermissionTier.SYSTEM)
def act() -> str:
    """Act."""
    return "done"


@tool(tier=PermissionTier.ELEVATED)
def destroy() -> str:
    """Destroy."""
    return "gone"


@tool(tier=PermissionTier.WORKSPACE, needs={Capability.WRITE})
def change() -> str:
    """Change."""
    return "changed"


TOOLS = [look, act, destroy, change]


def info(
    kind: SessionKind = SessionKind.MAIN, agent: str = "agent", channel: str = "", above: tuple[str, ...] = ()
) -> SessionInfo:
    return SessionInfo("s", agent, kind, None, frozenset(), Path("/w"), channel, ancestors=above)


def decided(policy: TierPolicy, name: str, session: SessionInfo | None = None) -> Decision:
    declaration = next(one.declaration for one in TOOLS if one.name == name)
    return policy.decide(ToolCall("c", name, {}), declaration, session or info())


@pytest.mark.parametrize(
    ("name", "wanted"), [("look", "allow"), ("change", "allow"), ("act", "allow"), ("destroy", "ask")]
)
def test_by_default_only_elevated_tools_need_approval(name: str, wanted: Decision) -> None:
    assert decided(TierPolicy(), name) == wanted


def test_a_name_stands_in_the_place_of_the_tier() -> None:
    policy = TierPolicy(system="deny", tools={"act": "allow", "look": "ask"})
    assert (decided(policy, "act"), decided(policy, "look"), decided(policy, "change")) == ("allow", "ask", "allow")


def test_system_tools_are_restrictable_by_agent_by_channel_and_by_kind() -> None:
    policy = TierPolicy(
        agents={"intern": TierPolicy(system="deny")},
        channels={"public": TierPolicy(system="ask")},
        kinds={SessionKind.BRANCH: TierPolicy(workspace="deny")},
    )
    assert decided(policy, "act") == "allow"
    assert decided(policy, "act", info(agent="intern")) == "deny"
    assert decided(policy, "act", info(channel="public")) == "ask"
    assert decided(policy, "act", info(agent="intern", channel="public")) == "deny"
    assert decided(policy, "change", info(kind=SessionKind.BRANCH)) == "deny"


@pytest.mark.parametrize(
    ("name", "exceptions"),
    [
        ("channels", {"public": TierPolicy(system="deny")}),
        ("agents", {"intern": TierPolicy(system="deny")}),
        ("kinds", {SessionKind.BRANCH: TierPolicy(system="deny")}),
        ("tools", {"act": "deny"}),
    ],
)
def test_each_kind_of_exception_holds_where_there_is_no_other(name: str, exceptions: Any) -> None:
    policy = TierPolicy(**{name: exceptions})
    assert decided(policy, "act", info(SessionKind.BRANCH, "intern", "public")) == "deny"
    assert decided(policy, "look", info()) == "allow"


def test_the_strictest_wins_so_that_no_exception_loosens() -> None:
    policy = TierPolicy(system="deny", agents={"agent": TierPolicy(system="allow")})
    assert decided(policy, "act") == "deny"


@pytest.mark.parametrize("field", ["read_only", "workspace", "system", "elevated", "tools"])
def test_an_unknown_decision_is_refused(field: str) -> None:
    value: Any = {"act": "maybe"} if field == "tools" else "maybe"
    with pytest.raises(UsageError, match=r"'maybe'.*'allow', 'ask' or 'deny'"):
        TierPolicy(**{field: value})
    assert "maybe" not in get_args(Decision)


@pytest.mark.anyio
async def test_a_denied_call_is_an_error_that_says_why(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, policy=TierPolicy(system="deny")) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("look")).output == "seen"
        error = (await session.call("act")).error
        assert isinstance(error, PermissionDenied) and error.tier is PermissionTier.SYSTEM
        assert "policy denies" in error.reason and not error.retryable


@pytest.mark.anyio
async def test_a_policy_that_raises_denies(supervise: Any, workspace: Path) -> None:
    class Broken:
        def decide(self, *_: object) -> Decision:
            raise RuntimeError("no configuration")

    async with supervise(TOOLS, policy=Broken()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("look")).error
        assert isinstance(error, PermissionDenied) and "policy failed" in error.reason
        assert "no configuration" not in error.message


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, "Deny", "denied", "", "Allow", True, ["allow"]], ids=repr)
async def test_whatever_a_policy_says_but_allow_or_ask_denies(answer: Any, supervise: Any, workspace: Path) -> None:
    class Odd:
        def decide(self, *_: object) -> Any:
            return answer

    async with supervise(TOOLS, policy=Odd()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        error = (await session.call("look")).error
        assert isinstance(error, PermissionDenied) and "policy denies" in error.reason


@pytest.mark.anyio
async def test_a_policy_gives_no_capability(supervise: Any, workspace: Path) -> None:
    async with supervise(TOOLS, policy=TierPolicy(tools={"change": "allow"})) as supervisor:
        worker = await supervisor.open_session("worker", workspace=workspace)
        error = (await worker.call("change")).error
        assert isinstance(error, PermissionDenied) and error.missing == (Capability.WRITE,)


@tool(tier=PermissionTier.SYSTEM)
def run(command: str, options: dict[str, Any] | None = None) -> str:
    """Run."""
    return command


def judged(policy: TierPolicy, command: str, session: SessionInfo | None = None, **options: Any) -> Decision:
    call = ToolCall("c", "run", {"command": command, **options})
    return policy.decide(call, run.declaration, session or info())


def test_a_rule_decides_by_a_pattern_of_the_arguments() -> None:
    policy = TierPolicy(
        system="ask",
        rules=[
            PolicyRule("allow", tool="run", arguments={"command": "ls *"}),
            PolicyRule("deny", tool="run", arguments={"command": "*/etc/*"}, name="no system files"),
        ],
    )
    assert [judged(policy, each) for each in ("ls a", "rm a", "ls /etc/x", "LS a", "ls")] == [
        *("allow", "ask", "deny", "ask", "ask")
    ]
    assert decided(policy, "act") == "ask"


@pytest.mark.parametrize(
    ("conditions", "session", "fits"),
    [
        ({"tier": "system"}, info(), True),
        ({"tier": PermissionTier.ELEVATED}, info(), False),
        ({"kind": "branch"}, info(SessionKind.BRANCH), True),
        ({"kind": "branch"}, info(), False),
        ({"agent": "ann"}, info(agent="ann"), True),
        ({"agent": "ann", "channel": "desk"}, info(agent="ann"), False),
        ({"channel": "desk"}, info(channel="desk"), True),
        ({"arguments": {"options.mode": "fast*"}}, info(), True),
        ({"arguments": {"options.level": "3"}}, info(), True),
        ({"arguments": {"options.none": "*"}}, info(), False),
        ({"arguments": {"missing": "*"}}, info(), False),
        ({"arguments": {"options": '{"level":3,*'}}, info(), True),
    ],
)
def test_a_rule_holds_if_every_condition_does(conditions: Any, session: SessionInfo, fits: bool) -> None:
    policy = TierPolicy(rules=[PolicyRule("deny", **conditions)])
    said = judged(policy, "x", session, options={"mode": "faster", "level": 3})
    assert said == ("deny" if fits else "allow")


def test_a_text_that_is_too_long_to_compare_is_denied_and_never_allowed() -> None:
    long = "ls " + "x" * 100_001
    assert judged(TierPolicy(system="ask", rules=[PolicyRule("allow", arguments={"command": "ls *"})]), long) == "ask"
    assert judged(TierPolicy(rules=[PolicyRule("deny", arguments={"command": "rm *"})]), long) == "deny"


@pytest.mark.parametrize(
    ("glob", "command", "fits"),
    [
        ("*push*", "git \\\n push", True),
        ("git status", "git status\n", False),
        ("git status", "git status\nrm -rf .", False),
        ("git status*", "git status\nrm -rf .", True),
        ("?", "\n", True),
        ("*[!a-z]", "ls\n", True),
        ("*push*", "git PUSH", False),
        ("*[Pp][Uu][Ss][Hh]*", "git pUsH", True),
        ("ls *", " ls a", False),
        ("*rm*", "r\u200bm -rf .", False),
        ("*é*", "é", True),
        ("*é*", "e\u0301", False),
        ("a\x00*", "a\x00b", True),
        ("[", "[", True),
        ("[!", "[!", True),
        ("[z-a]", "m", False),
        (".*", "x", False),
        ("(a+)+$", "a" * 50, False),
        ("", "", True),
        ("", "x", False),
        ("*", "", True),
    ],
)
def test_a_glob_is_matched_with_the_whole_text_by_character(glob: str, command: str, fits: bool) -> None:
    denies = TierPolicy(rules=[PolicyRule("deny", arguments={"command": glob})])
    assert judged(denies, command) == ("deny" if fits else "allow")
    allows = TierPolicy(system="ask", rules=[PolicyRule("allow", arguments={"command": glob})])
    assert judged(allows, command) == ("allow" if fits else "ask")


@pytest.mark.parametrize(
    ("glob", "value", "fits"),
    [
        ("500", 500.0, True),
        ("500.5", 500.5, True),
        ("true", True, True),
        ("1", True, False),
        ("*", None, False),
        ('[[]"é","b"]', ["é", "b"], True),
        ('{"a":1,"b":[]}', {"b": [], "a": 1}, True),
        ("500", "500", True),
    ],
)
def test_a_value_that_is_no_string_is_matched_as_compact_json(glob: str, value: object, fits: bool) -> None:
    denies = TierPolicy(rules=[PolicyRule("deny", arguments={"options.a": glob})])
    assert judged(denies, "x", options={"a": value}) == ("deny" if fits else "allow")


@pytest.mark.parametrize(
    "options",
    [
        {"a.b": "fine", "a": {"b": "evil"}},
        {"a.b": "evil", "a": {"b": "fine"}},
        {"a": {"b": "evil"}},
        {"a.b": "evil"},
    ],
)
def test_a_key_with_a_dot_hides_no_member(options: dict[str, Any]) -> None:
    denies = TierPolicy(rules=[PolicyRule("deny", arguments={"options.a.b": "evil"})])
    assert judged(denies, "x", options=options) == "deny"
    allows = TierPolicy(system="ask", rules=[PolicyRule("allow", arguments={"options.a.b": "fine"})])
    assert judged(allows, "x", options=options) == "ask"


def test_no_rule_lifts_the_denial_of_a_tool_or_of_another_rule() -> None:
    allow = PolicyRule("allow", tool="run", arguments={"command": "ls"})
    assert judged(TierPolicy(system="ask", rules=[allow]), "ls") == "allow"
    assert judged(TierPolicy(system="deny", rules=[allow]), "ls") == "allow"
    assert judged(TierPolicy(tools={"run": "ask"}, rules=[allow]), "ls") == "allow"
    named = TierPolicy(tools={"run": "deny"}, rules=[allow])
    assert judged(named, "ls") == "deny" and not named.offers(run.declaration, info())
    assert judged(TierPolicy(rules=[allow, PolicyRule("deny", agent="agent")]), "ls") == "deny"
    assert judged(TierPolicy(rules=[allow], agents={"agent": TierPolicy(system="deny")}), "ls") == "deny"


@pytest.mark.parametrize(
    "command",
    ["git status; rm a", "git status\nrm a", "git status `rm a`", "git status $(rm a)", "git status|sh", "gitstatus"],
)
def test_the_allow_list_that_the_docs_show_asks_for_what_follows_the_command(command: str) -> None:
    rules = [
        PolicyRule("allow", tool="run", arguments={"command": "git status*"}),
        PolicyRule("ask", tool="run", arguments={"command": "*[;&|<>$()`\n]*"}),
    ]
    assert judged(TierPolicy(system="ask", rules=rules), command) == "ask"
    assert judged(TierPolicy(system="ask", rules=rules), "git status --short") == "allow"


def test_a_policy_of_ones_own_inside_another_decides_and_is_named() -> None:
    class NoRuns(TierPolicy):
        def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
            return "deny" if call.tool == "run" else super().decide(call, declaration, session)

    call = ToolCall("c", "run", {"command": "ls"})
    policy = TierPolicy(agents={"agent": NoRuns()})
    assert policy.decide(call, run.declaration, info()) == "deny" and decided(policy, "act") == "allow"
    assert policy.explain(call, run.declaration, info()).rule == "policy.agents.agent: NoRuns.decide"
    assert explained(NoRuns(), call, run.declaration, info()).decision == "deny"


def test_an_explanation_that_does_not_fit_the_decision_is_not_passed_on() -> None:
    class Two:
        def decide(self, call: ToolCall, declaration: object, session: SessionInfo) -> Decision:
            return "deny"

        def explain(self, call: ToolCall, declaration: object, session: SessionInfo) -> Explanation:
            return Explanation("allow", "a rule")

    assert explained(Two(), ToolCall("c", "act", {}), act.declaration, info()) == Explanation("deny", "Two")


@given(data=st.data())
def test_the_explanation_has_the_decision_and_no_weaker_rule_decides(data: st.DataObject) -> None:
    decisions = st.sampled_from(["allow", "ask", "deny"])
    rules = st.builds(
        PolicyRule,
        decisions,
        tool=st.sampled_from(["", "run", "act"]),
        agent=st.sampled_from(["", "agent", "ann"]),
        arguments=st.sampled_from([{}, {"command": "l*"}, {"command": "rm*"}]),
    )
    plain = st.builds(
        TierPolicy,
        system=decisions,
        tools=st.dictionaries(st.sampled_from(["run", "act"]), decisions),
        rules=st.lists(rules, max_size=3),
    )
    policy = replace(
        data.draw(plain),
        kinds=data.draw(st.dictionaries(st.sampled_from(SessionKind), plain)),
        agents=data.draw(st.dictionaries(st.sampled_from(["agent", "ann"]), plain)),
    )
    call = ToolCall("c", "run", {"command": data.draw(st.sampled_from(["ls", "rm a", "x"]))})
    above: tuple[str, ...] = data.draw(st.sampled_from([(), ("ann",), ("agent", "x")]))
    session = info(data.draw(st.sampled_from(SessionKind)), data.draw(st.sampled_from(["agent", "ann"])), above=above)
    told = policy.explain(call, run.declaration, session)
    assert told.decision == policy.decide(call, run.declaration, session)
    strength = ["allow", "ask", "deny"].index
    assert all(strength(decision) <= strength(told.decision) for _rule, decision in told.others)
    said = dict(policy.listed())
    named = said[told.rule]
    assert told.decision == (named.decision if isinstance(named, PolicyRule) else named)
    if not policy.offers(run.declaration, session):
        assert told.decision == "deny"


def test_a_rules_name_is_shortened_and_printable() -> None:
    policy = TierPolicy(rules=[PolicyRule("deny", name="a\x1b\n\u202e" + "b" * 10_000)])
    rule = policy.explain(ToolCall("c", "act", {}), act.declaration, info()).rule
    assert len(rule) < 300 and rule.isprintable()


def test_the_explanation_names_the_rule_that_decides_and_the_others() -> None:
    policy = TierPolicy(
        tools={"run": "ask"},
        rules=[PolicyRule("deny", arguments={"command": "rm *"}, name="no rm")],
        kinds={SessionKind.BRANCH: TierPolicy(system="ask")},
    )

    def told(command: str, kind: SessionKind) -> Explanation:
        return policy.explain(ToolCall("c", "run", {"command": command}), run.declaration, info(kind))

    assert told("ls", SessionKind.MAIN) == Explanation("ask", "policy.tools.run")
    assert told("rm a", SessionKind.MAIN) == Explanation("deny", "policy.rules[0] 'no rm'")
    others: tuple[tuple[str, Decision], ...] = (("policy.kinds.branch.system", "ask"),)
    assert told("rm a", SessionKind.BRANCH) == Explanation("deny", "policy.rules[0] 'no rm'", others)


def test_a_tool_is_offered_unless_every_call_of_it_is_denied() -> None:
    def offered(*rules: PolicyRule, **tiers: Any) -> bool:
        return TierPolicy(rules=rules, **tiers).offers(run.declaration, info())

    assert offered(PolicyRule("deny", arguments={"command": "rm *"}))
    assert not offered(PolicyRule("deny", tool="run"))
    assert not offered(system="deny")
    assert offered(PolicyRule("allow", tool="run", arguments={"command": "ls"}), system="deny")
    assert not offered(PolicyRule("deny", tool="run", arguments={"command": "ls"}), system="deny")
    assert not offered(PolicyRule("allow", tool="other"), system="deny")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PolicyRule("never"),  # type: ignore[arg-type]
        lambda: PolicyRule("deny", kind="brunch"),  # type: ignore[arg-type]
        lambda: PolicyRule("deny", tier="high"),  # type: ignore[arg-type]
        lambda: PolicyRule("deny", arguments={"path": 3}),  # type: ignore[dict-item]
        lambda: PolicyRule("deny", arguments={"path": "*" * 501}),
        lambda: PolicyRule("deny", tool=3),  # type: ignore[arg-type]
        lambda: PolicyRule("deny", name=["x"]),  # type: ignore[arg-type]
        lambda: TierPolicy(rules=PolicyRule("deny")),  # type: ignore[arg-type]
        lambda: TierPolicy(rules=["deny"]),  # type: ignore[list-item]
    ],
)
def test_a_wrong_rule_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_a_projects_denials_hold_with_every_policy() -> None:
    class Mine:
        def decide(self, call: ToolCall, declaration: object, session: SessionInfo) -> Decision:
            return "ask"

    denials = (TierPolicy(elevated="allow", tools={"act": "deny"}),)
    policy = StricterPolicy(Mine(), denials)
    assert policy.decide(ToolCall("c", "run", {"command": "x"}), run.declaration, info()) == "ask"
    assert policy.decide(ToolCall("c", "act", {}), act.declaration, info()) == "deny"
    assert policy.explain(ToolCall("c", "act", {}), act.declaration, info()).rule == "project policy.tools.act"
    assert not policy.offers(act.declaration, info()) and policy.offers(run.declaration, info())


def test_in_a_hook_the_call_is_enough_for_an_explanation() -> None:
    call = ToolCall("c", "act", {}, 1, info(), act.declaration)
    assert TierPolicy(system="ask").explain(call) == Explanation("ask", "policy.system")
    of_workers = TierPolicy(kinds={SessionKind.WORKER: TierPolicy(system="deny")})
    assert of_workers.explain(call) == of_workers.explain(call, act.declaration, info())
    with pytest.raises(UsageError, match="no declaration"):
        TierPolicy().explain(ToolCall("c", "act", {}))


HELPER = info(agent="delegate", above=("ann", "bob"))


@pytest.mark.parametrize("agent", ["ann", "bob", "delegate"])
@pytest.mark.parametrize("decision", ["deny", "ask"])
@pytest.mark.parametrize("how", ["rule", "agents", "stricter"])
def test_a_denial_or_a_question_for_an_agent_holds_for_those_below_it(agent: str, decision: Decision, how: str) -> None:
    strict = TierPolicy(rules=[PolicyRule(decision, agent=agent, tool="act")])
    if how == "agents":
        strict = TierPolicy(agents={agent: TierPolicy(system=decision)})
    policy = StricterPolicy(TierPolicy(), (strict,)) if how == "stricter" and decision == "deny" else strict
    assert policy.decide(ToolCall("c", "act", {}), act.declaration, HELPER) == decision
    assert policy.offers(act.declaration, HELPER) == (decision == "ask")
    told = policy.explain(ToolCall("c", "act", {}), act.declaration, HELPER)
    assert told.decision == decision and told.rule.endswith(f"agents.{agent}.system" if how == "agents" else "rules[0]")
    assert decided(strict, "act", info(agent="carol", above=("dave",))) == "allow"


def test_an_allowance_for_an_agent_does_not_pass_down() -> None:
    policy = TierPolicy(system="ask", rules=[PolicyRule("allow", agent="bob", tool="act")])
    assert decided(policy, "act", info(agent="bob")) == "allow"
    assert decided(policy, "act", info(agent="bob", above=("ann",))) == "allow"
    assert decided(policy, "act", HELPER) == "ask"
    relaxed = TierPolicy(system="ask", agents={"bob": TierPolicy(system="allow")})
    assert decided(relaxed, "act", HELPER) == "ask"


def test_a_question_for_an_agent_lifts_no_denial_of_its_helper() -> None:
    asks = PolicyRule("ask", agent="bob", tool="act")
    assert decided(TierPolicy(system="deny", rules=[asks]), "act", info(agent="bob")) == "ask"
    policy = TierPolicy(system="deny", rules=[asks])
    assert decided(policy, "act", HELPER) == "deny" and not policy.offers(act.declaration, HELPER)


def test_an_allowance_for_a_helper_holds_unless_an_agent_above_it_is_denied_or_asked() -> None:
    allow = PolicyRule("allow", agent="delegate", tool="act")
    assert decided(TierPolicy(system="ask", rules=[allow]), "act", HELPER) == "allow"
    for decision in ("ask", "deny"):
        strict = PolicyRule(decision, agent="ann", tool="act")
        assert decided(TierPolicy(system="ask", rules=[allow, strict]), "act", HELPER) == decision


@given(
    rules=st.lists(
        st.builds(
            PolicyRule,
            st.sampled_from(get_args(Decision)),
            agent=st.sampled_from(["", "a", "b", "c", "a/b"]),
            tier=st.sampled_from([None, PermissionTier.SYSTEM]),
        ),
        max_size=4,
    ),
    agents=st.dictionaries(
        st.sampled_from(["", "a", "b", "a/b"]), st.builds(TierPolicy, system=st.sampled_from(get_args(Decision)))
    ),
    tier=st.sampled_from(get_args(Decision)),
    line=st.lists(st.sampled_from(["", "a", "b", "c", "a/b"]), min_size=1, max_size=5),
)
def test_no_line_is_allowed_what_its_last_agent_alone_or_a_rule_for_one_of_them_is_not(
    rules: list[PolicyRule], agents: dict[str, TierPolicy], tier: Decision, line: list[str]
) -> None:
    policy = TierPolicy(system=tier, rules=rules, agents=agents)
    strictness = get_args(Decision).index
    said = decided(policy, "act", info(agent=line[-1], above=tuple(line[:-1])))
    of_line: list[Decision] = [rule.decision for rule in rules if rule.agent in line and rule.decision != "allow"]
    of_line += [agents[each].system for each in line if each in agents]
    assert strictness(said) >= max(map(strictness, [decided(policy, "act", info(agent=line[-1])), *of_line]))
