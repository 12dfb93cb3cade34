"""The policy in a toolcell.toml: equal to Python's, and a project's file can only deny."""

from typing import Any

import pytest

from toolcell import (
    ConfigError,
    PermissionTier,
    PolicyRule,
    SessionInfo,
    SessionKind,
    TierPolicy,
    ToolCall,
    load_config,
    tool,
)

from .conftest import Places

WHOLE = """
[policy]
system = "ask"
[policy.tools]
shell = "deny"
[[policy.rules]]
decision = "allow"
tool = "shell"
arguments = { command = "ls *" }
name = "look"
[[policy.rules]]
decision = "deny"
tier = "elevated"
kind = "branch"
agent = "ann"
channel = "desk"
[policy.kinds.worker]
read_only = "ask"
[policy.agents.guest]
workspace = "deny"
[policy.agents.guest.tools]
read = "ask"
[policy.channels.public]
elevated = "deny"
"""


def test_a_file_says_all_that_python_does(places: Places) -> None:
    places.user(WHOLE)
    assert places.load().policy == TierPolicy(
        system="ask",
        tools={"shell": "deny"},
        rules=(
            PolicyRule("allow", tool="shell", arguments={"command": "ls *"}, name="look"),
            PolicyRule("deny", tier=PermissionTier.ELEVATED, kind=SessionKind.BRANCH, agent="ann", channel="desk"),
        ),
        kinds={SessionKind.WORKER: TierPolicy(read_only="ask")},
        agents={"guest": TierPolicy(workspace="deny", tools={"read": "ask"})},
        channels={"public": TierPolicy(elevated="deny")},
    )


def test_every_setting_of_a_policy_can_be_set() -> None:
    from dataclasses import fields

    from toolcell.rules.toml.schema import PolicyTable, RuleTable

    assert PolicyTable.model_fields.keys() == {each.name for each in fields(TierPolicy)}
    assert RuleTable.model_fields.keys() == {each.name for each in fields(PolicyRule)}


def test_tables_are_merged_and_rules_replaced(places: Places) -> None:
    places.user(WHOLE)
    places.explicit(
        '[policy]\nworkspace = "ask"\nrules = []\n[policy.tools]\nread = "allow"\n[policy.agents.guest]\nsystem = "ask"'
    )
    policy = places.load().policy
    assert policy is not None
    assert (policy.system, policy.workspace, policy.rules) == ("ask", "ask", ())
    assert policy.tools == {"shell": "deny", "read": "allow"}
    assert policy.agents["guest"] == TierPolicy(workspace="deny", system="ask", tools={"read": "ask"})
    assert load_config(policy={"system": "deny"}).policy is not None


def test_each_rule_has_the_file_that_said_it_last(places: Places) -> None:
    user = str(places.user(WHOLE))
    project = str(
        places.project('[[policy.rules]]\ndecision = "deny"\nname = "x"\n[policy.agents.ann]\nsystem = "deny"')
    )
    explicit = str(places.explicit('[policy]\nsystem = "deny"\n[[policy.rules]]\ndecision = "ask"'))
    assert places.load().rule_files == {
        "policy.system": explicit,
        "policy.tools.shell": user,
        "policy.kinds.worker.read_only": user,
        "policy.agents.guest.workspace": user,
        "policy.agents.guest.tools.read": user,
        "policy.channels.public.elevated": user,
        "policy.rules[0]": explicit,
        "project policy.rules[0] 'x'": project,
        "project policy.agents.ann.system": project,
    }
    assert load_config(policy={"system": "ask"}).rule_files["policy.system"] == ""


def test_a_policy_may_be_nested_and_a_very_deep_one_is_refused(places: Places) -> None:
    def nested(depth: int) -> str:
        return "policy = " + "{ agents = { a = " * depth + '{ system = "deny" }' + " } }" * depth

    for depth in (2, 60):
        places.project(nested(depth))
        assert [*places.load().rule_files] == [f"project policy{'.agents.a' * depth}.system"]
    places.project(nested(1000))
    assert places.complaints() == [": is nested too deeply. Flatten it."]


def test_without_a_policy_the_supervisor_has_its_default(places: Places) -> None:
    config = places.load()
    assert (config.policy, config.denials) == (None, ())


def test_a_project_adds_denials(places: Places) -> None:
    places.user('[policy]\nelevated = "allow"')
    places.project(
        '[policy.tools]\nshell = "deny"\n[[policy.rules]]\ndecision = "deny"\narguments = { path = "*.key" }\n'
        '[policy.kinds.branch]\nsystem = "deny"'
    )
    config = places.load()
    assert config.policy == TierPolicy(elevated="allow")
    quiet: dict[str, Any] = {"elevated": "allow"}
    (denials,) = config.denials
    assert denials == TierPolicy(
        **quiet,
        tools={"shell": "deny"},
        rules=(PolicyRule("deny", arguments={"path": "*.key"}),),
        kinds={SessionKind.BRANCH: TierPolicy(**quiet, system="deny")},
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[policy]\nelevated = "allow"', "toolcell.toml:2: policy.elevated"),
        ('[policy]\nsystem = "ask"', "policy.system"),
        ('[policy.tools]\nshell = "allow"', "policy.tools.shell"),
        ('[[policy.rules]]\ndecision = "allow"', "policy.rules[0].decision"),
        ('[policy.agents.ann]\nsystem = "allow"', "policy.agents.ann.system"),
        ('[policy.kinds.worker.tools]\nread = "ask"', "policy.kinds.worker.tools.read"),
    ],
)
def test_a_project_can_do_nothing_else(text: str, place: str, places: Places) -> None:
    places.project(text)
    with pytest.raises(ConfigError) as refused:
        places.load()
    assert place in str(refused.value) and "can only deny" in str(refused.value)


def test_a_projects_globs_cannot_hold_up_the_supervisor(places: Places) -> None:
    rule = '[[policy.agents.agent.rules]]\ndecision = "deny"\narguments = {{ a = "*{}b" }}\n'
    places.project("".join(rule.format("?" * 398) for _ in range(5)))
    (denials,) = places.load().denials
    session = SessionInfo("s", "agent", SessionKind.MAIN, None, frozenset(), places.project_folder)
    assert denials.decide(ToolCall("c", "take", {"a": "a" * 100_000}), take.declaration, session) == "allow"
    places.project("".join(rule.format("?" * 398) for _ in range(6)))
    (complaint,) = places.complaints()
    assert complaint.startswith("policy: has globs of 2,400 characters together, more than 2,000")


@tool
def take(a: str) -> str:
    """Take."""
    return a


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[policy]\nsytem = "ask"', "Did you mean system?"),
        ('[policy]\nsystem = "never"', "no decision 'never'"),
        ('[policy.kinds.wroker]\nsystem = "ask"', "Did you mean worker?"),
        ('[[policy.rules]]\ntool = "shell"', "decision"),
        ('[[policy.rules]]\ndecision = "deny"\ntol = "x"', "Did you mean tool?"),
        ('[[policy.rules]]\ndecision = "deny"\narguments = { path = 3 }', "should be text"),
        ('[[policy.rules]]\ndecision = "allow"\ntool = ""', "is empty"),
        ("[policy]\nrules = 3", "should be a list"),
        ("[policy]\ntools = 3", "should be a table"),
    ],
)
def test_a_mistake_is_named(text: str, what: str, places: Places) -> None:
    places.user(text)
    with pytest.raises(ConfigError) as refused:
        places.load()
    assert what in str(refused.value)
