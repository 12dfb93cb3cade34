"""What can be said of a tool, and variants of it: what is declared, what is refused."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from toolcell_sandbox.limits import Limits
from toolcell_tools import (
    Annotations,
    Capability,
    Pending,
    PermissionTier,
    Tool,
    ToolDeclaration,
    ToolDefinitionError,
    as_tool,
    dynamic_tool,
    encode_return,
    tool,
)
from toolcell_tools.capability import LEAST_TIERS
from toolcell_tools.options import LIMITS, ToolOptions


def send(to: str, text: str, times: int = 1) -> str:
    """Send."""
    return f"{to} {text} {times}"


@pytest.mark.parametrize("version", ["0.0.0", "1.2.3", "2.0.0-beta.1", "1.0.0-0.3.7", "1.0.0+build.5", "1.0.0-rc-1+a"])
def test_a_semantic_version_is_declared(version: str) -> None:
    assert tool(send, version=version).declaration.version == version


@pytest.mark.parametrize(
    "version", ["1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3 ", "", "1.2.٣"]
)
def test_another_version_is_refused(version: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"is not semantic\. Write major\.minor\.patch, such as '1\.2\.3'"):
        tool(send, version=version)


def test_what_a_model_and_a_policy_need_is_declared_and_survives_json() -> None:
    class Trouble(BaseModel):
        code: int

    declaration = tool(
        send,
        failure=Trouble,
        failure_mode="return",
        requires_approval=True,
        return_direct=True,
        preview=lambda to: f"to {to}",
        metadata={"team": "mail", "tags": ["a"]},
    ).declaration
    assert declaration.failure_schema is not None
    assert declaration.failure_schema["required"] == ["code"]
    assert declaration.failure_mode == "return"
    assert (declaration.requires_approval, declaration.return_direct, declaration.has_preview) == (True, True, True)
    assert declaration.metadata == {"team": "mail", "tags": ["a"]}
    assert (declaration.kind, declaration.placement, declaration.is_dynamic) == ("function", "cell", False)
    assert ToolDeclaration.model_validate_json(declaration.model_dump_json()) == declaration


@pytest.mark.parametrize("capability", Capability)
def test_a_tier_below_what_needs_and_uses_imply_is_refused_and_the_least_is_the_default(capability: Capability) -> None:
    least = LEAST_TIERS[capability]
    for option in ("needs", "uses"):
        options: dict[str, Any] = {option: {capability}}
        assert tool(send, **options).tier is least
        for tier in PermissionTier:
            if list(PermissionTier).index(tier) >= list(PermissionTier).index(least):
                assert tool(send, tier=tier, **options).tier is tier
                continue
            said = re.escape(f"'send': tier='{tier.value}' is too low for a tool with {capability.value}; the least is")
            with pytest.raises(ToolDefinitionError, match=f"{said} '{least.value}'"):
                tool(send, tier=tier, **options)


@pytest.mark.parametrize("capability", Capability)
def test_what_may_change_something_is_not_read_only(capability: Capability) -> None:
    annotations = Annotations(read_only=True)
    if capability in ("write", "exec", "channel", "memory.write"):
        said = f"'send': read_only=True does not fit a tool with {capability.value}"
        with pytest.raises(ToolDefinitionError, match=said):
            tool(send, needs={capability}, annotations=annotations)
    else:
        assert tool(send, needs={capability}, annotations=annotations).declaration.annotations.read_only


def test_a_variant_is_held_to_its_needs_too() -> None:
    with pytest.raises(ToolDefinitionError, match="too low"):
        tool(send, needs={"write"}).replace(tier=PermissionTier.READ_ONLY)


def test_only_a_host_tool_can_be_harmless() -> None:
    with pytest.raises(ToolDefinitionError, match="'send' takes no harmless: it is for host tools"):
        tool(send, harmless=True)


def test_approval_may_depend_on_the_arguments() -> None:
    seen: list[Mapping[str, Any]] = []

    def to_strangers(arguments: Mapping[str, Any]) -> bool:
        seen.append(arguments)
        return bool(arguments["to"] != "me")

    made = tool(send, requires_approval=to_strangers)
    assert made.declaration.requires_approval == "depends"
    assert [made.requires_approval_for({"to": to}) for to in ("me", "you")] == [False, True]
    assert seen == [{"to": "me"}, {"to": "you"}]
    assert tool(send).requires_approval_for({}) is False
    assert tool(send, requires_approval=True).requires_approval_for({}) is True


def test_whether_a_call_mutates_may_depend_on_the_arguments() -> None:
    made = tool(send, uses={"write"}, mutates=lambda arguments: arguments["to"] != "me")
    assert [made.mutates_for({"to": to}) for to in ("me", "you")] == [False, True]
    assert made.replace(name="post").mutates_for({"to": "me"}) is False
    assert tool(send).mutates_for({}) is True


def test_what_only_the_supervisor_asks_of_a_tool_does_not_travel() -> None:
    made = tool(send, requires_approval=lambda arguments: True, mutates=lambda arguments: True)
    assert not {"requires_approval", "mutates"} & made.__getstate__()["_options"].keys()


def test_a_long_running_tool_says_so_to_the_model_and_returns_a_handle() -> None:
    declaration = tool(send, long_running=True).declaration
    assert declaration.long_running
    assert declaration.description == (
        "Send.\n\nNOTE: This is a long-running operation. Do not call this tool again if it has already returned some "
        "intermediate or pending status."
    )
    sent = encode_return(Pending("job-7", message="ask again in a minute"))
    assert sent["output"] == {"handle_id": "job-7", "status": "pending", "message": "ask again in a minute"}


def test_the_note_counts_as_part_of_the_description() -> None:
    with pytest.raises(ToolDefinitionError, match=r"has 1,1\d\d characters"):
        tool(send, long_running=True, description="x" * 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"failure_mode": "raise"}, "failure_mode='raise'. Pass 'error' or 'return'"),
        ({"failure": {"type": "banana"}}, "failure is not valid JSON Schema"),
        ({"return_direct": 1}, "return_direct=1. Pass True or False"),
        ({"long_running": "yes"}, "long_running='yes'"),
        ({"requires_approval": "no"}, "requires_approval='no'. Pass True or False"),
        ({"metadata": {"at": object()}}, r"metadata is not JSON data: \$\.at"),
        ({"preview": "it sends"}, "preview='it sends' is not a function"),
        ({"description_": ""}, "has no option 'description_'. Did you mean 'description'"),
        ({"mutates": False}, "mutates=False is no function"),
        ({"mutates": bool, "needs": {"write", "read"}}, "needs write in each call, so mutates would hold none"),
        ({"mutates": bool, "lifetime": "session"}, "keeps one process over its calls"),
        ({"validate": False}, "has no option 'validate'"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(send, **options)


# -- a parameters schema of the author's own


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_a_schema_of_ones_own_is_declared_and_closed() -> None:
    own = schema("to", "text", to={"type": "string", "format": "email"}, text={"type": "string", "maxLength": 10})
    declared = tool(send, parameters_schema=own).declaration.parameters_schema
    assert declared == own | {"additionalProperties": False}


def test_a_default_in_it_holds_when_the_function_has_none() -> None:
    made = tool(send, parameters_schema=schema("text", to={"type": "string", "default": "me"}, text={"type": "string"}))
    assert made.run(made.bind({"text": "hi"}, None), None) == "me hi 1"
    assert made.run(made.bind({"text": "hi", "to": "you"}, None), None) == "you hi 1"


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (schema("to", to=TEXT), "does not require 'text', and the tool cannot do without it. Add it to 'required'"),
        (
            schema("to", "text", to=TEXT, text=TEXT, cc=TEXT),
            r"has 'cc', and the tool has no such parameter \(it has: to",
        ),
        (schema("to", "text") | {"additionalProperties": True}, "lets in properties that it does not name"),
        (schema("to", "text") | {"patternProperties": {"x": {}}}, "lets in properties that it does not name"),
        ({"type": "array"}, 'is a schema for "array", and arguments are an object'),
        (schema("to") | {"required": "to"}, "is not valid JSON Schema"),
    ],
)
def test_a_schema_that_the_function_cannot_serve_is_refused(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(send, parameters_schema=own)


# -- variants


def test_a_variant_is_shown_differently_and_does_the_same() -> None:
    original = tool(send, metadata={"a": 1})
    variant = original.replace(
        name="mail_send",
        description="Send mail.",
        version="2.0.0",
        requires_approval=True,
        timeout=5,
        annotations=Annotations(title="Mail"),
        tier=PermissionTier.ELEVATED,
    )
    assert variant("a", "b") == "a b 1"
    assert variant.original is original
    assert variant.replace(name="again").original is original
    assert original.original is original
    declaration = variant.declaration
    assert (declaration.name, declaration.description, declaration.version) == ("mail_send", "Send mail.", "2.0.0")
    assert (declaration.timeout, declaration.requires_approval, declaration.tier) == (5, True, PermissionTier.ELEVATED)
    assert (declaration.annotations.title, declaration.metadata) == ("Mail", {"a": 1})
    assert original.declaration == tool(send, metadata={"a": 1}).declaration


def test_a_variant_that_says_something_else_has_another_fingerprint() -> None:
    original = tool(send)
    prints = [
        original.declaration.fingerprint,
        original.replace(name="other").declaration.fingerprint,
        original.replace(description="Other.").declaration.fingerprint,
        original.replace(parameters_schema=schema("to", "text")).declaration.fingerprint,
    ]
    assert len(set(prints)) == 4
    assert original.replace().declaration.fingerprint == prints[0]


def test_a_variant_is_held_to_the_rules_of_tools_and_cannot_change_what_it_does() -> None:
    original = tool(send)
    with pytest.raises(ToolDefinitionError, match="is reserved"):
        original.replace(name="handoff")
    with pytest.raises(ToolDefinitionError, match="does not require 'text'"):
        original.replace(parameters_schema=schema("to"))
    with pytest.raises(ToolDefinitionError, match="has no option 'needs'"):
        original.replace(needs={"write"})  # type: ignore[call-arg]


def test_the_note_of_a_long_running_tool_stays_once_in_a_variant() -> None:
    variant = tool(send, long_running=True).replace(description="Mail.").replace(name="mail")
    assert variant.declaration.description.count("NOTE") == 1
    assert variant.declaration.description.startswith("Mail.\n\nNOTE")


def test_a_cell_that_has_the_original_runs_a_variant_unless_the_variant_binds_differently() -> None:
    original = tool(send)
    defaulting = original.replace(parameters_schema=schema("text", to={"type": "string", "default": "me"}, text=TEXT))
    assert original.replace(name="other").runs_like(original)
    assert not defaulting.runs_like(original)
    assert not tool(send, preview=lambda to: to).runs_like(original)
    assert not tool(send, lifetime="session").runs_like(original)


# -- bare callables


class Greeter:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    def __call__(self, name: str) -> str:
        """Greet somebody."""
        return f"{self.greeting} {name}"

    def loudly(self, name: str) -> str:
        return self(name).upper()


def test_any_callable_becomes_a_tool_by_the_name_it_has() -> None:
    greeter = Greeter("hi")
    made = [as_tool(one) for one in (send, greeter, greeter.loudly, partial(send, "me"), partial(send, text="t"))]
    assert [one.name for one in made] == ["send", "greeter", "loudly", "send", "send"]
    assert made[1].declaration.description == "Greet somebody."
    assert [list(one.declaration.parameters_schema["properties"]) for one in made] == [
        ["to", "text", "times"],
        ["name"],
        ["name"],
        ["text", "times"],
        ["to", "times"],
    ]


def test_what_a_partial_settles_is_hidden_from_the_model() -> None:
    made = as_tool(partial(send, text="the secret"))
    assert "secret" not in made.declaration.model_dump_json()
    assert made.run(made.bind({"to": "you"}, None), None) == "you the secret 1"


def test_a_call_runs_the_function_once_also_when_it_raises_a_type_error() -> None:
    calls: list[str] = []

    def picky(a: str) -> None:
        calls.append(a)
        raise TypeError("takes 0 positional arguments but 1 was given")

    made: Tool[..., Any] = as_tool(picky)
    with pytest.raises(TypeError):
        made.run(made.bind({"a": "x"}, None), None)
    assert calls == ["x"]


def test_the_origin_says_where_a_tool_was_written() -> None:
    assert as_tool(send).origin == f"{__name__}:send"
    assert as_tool(send).replace(name="other").origin == f"{__name__}:send"
    assert "test_options.py:" in tool(lambda: None, name="anonymous").origin


WRONG: list[Any] = [3, 1.5, True, object(), b"x", [1], {3: 4}, {"a": {1}}, {3}, lambda: 1, float("nan"), {"wal_s": 1}]
OPTIONS = sorted(ToolOptions.__annotations__.keys() - {"preview", "mutates", "requires_approval", "harmless"})


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_value_of_an_option_is_refused_by_the_name_of_the_option_or_is_no_mistake(
    option: str, value: Any
) -> None:
    made: dict[str, Callable[[], Tool[..., Any]]] = {"tool": lambda: as_tool(tool(send, **{option: value}))}
    if option not in ("name", "parameters_schema", "output_schema"):
        made["dynamic"] = lambda: dynamic_tool("send", handler=lambda arguments: arguments, **{option: value})
    for make in made.values():
        try:
            declaration = make().declaration
        except ToolDefinitionError as error:
            named = option in str(error) or (option == "limits" and "has no limit" in str(error))
            assert (named and "send" in str(error)) or f"name {value!r}" in str(error)
        else:
            assert declaration.name == "send"


def test_a_limit_is_known_by_its_name_and_a_misspelt_one_is_named_with_the_right_one() -> None:
    assert {field.name for field in fields(Limits)} == LIMITS
    every = dict.fromkeys(LIMITS, 1)
    assert tool(send, limits=every).limits == every
    with pytest.raises(ToolDefinitionError, match=r"'send' has no limit 'wal_s'\. Did you mean 'wall_s'\?"):
        tool(send, limits={"wal_s": 1})
    with pytest.raises(ToolDefinitionError, match=r"limits\['processes'\]=1\.5\. Pass a whole number above 0"):
        tool(send, limits={"processes": 1.5})
