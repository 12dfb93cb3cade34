"""Declarations: what they carry, and when the fingerprint changes."""

from typing import Any

import pytest

from toolcell_tools import KIND_GRANTS, Annotations, Capability, PermissionTier, SessionKind, ToolDeclaration, tool


def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"


def made(source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["f"]


def test_a_declaration_survives_json_with_capabilities_in_order() -> None:
    declaration = tool(greet, needs={Capability.WRITE, Capability.READ, Capability.EXEC}, timeout=5).declaration
    dumped = declaration.model_dump(mode="json")
    assert dumped["needs"] == ["exec", "read", "write"]
    assert (dumped["placement"], dumped["timeout"], dumped["tier"]) == ("cell", 5.0, "system")
    assert ToolDeclaration.model_validate_json(declaration.model_dump_json()) == declaration


def test_equal_tools_have_equal_fingerprints() -> None:
    assert tool(greet).declaration.fingerprint == tool(greet).declaration.fingerprint


@pytest.mark.parametrize("change", [{"name": "hi"}, {"version": "2.0.0"}, {"description": "Say hello."}])
def test_the_fingerprint_changes_with_what_a_tool_says(change: dict[str, Any]) -> None:
    assert tool(greet, **change).declaration.fingerprint != tool(greet).declaration.fingerprint


def test_the_fingerprint_changes_with_the_schema_and_with_the_code() -> None:
    sources = [
        "def f(a: int): return a",
        "def f(a: str): return a",
        "def f(a: int): return a + 1",
        "def f(a: int): return a + 2",
        "def f(a: int):\n    def g(): return 1\n    return g",
        "def f(a: int):\n    def g(): return 2\n    return g",
        "def f(a: int): return a in {'x', 'y'}",
    ]
    prints = [tool(made(source)).declaration.fingerprint for source in sources]
    assert len(set(prints)) == len(sources)
    assert prints == [tool(made(source)).declaration.fingerprint for source in sources]


def test_annotations_are_filled_in_from_tier_and_needs() -> None:
    reading = tool(greet).declaration.annotations
    writing = tool(greet, needs={Capability.WRITE}).declaration.annotations
    assert (reading.read_only, reading.sequential) == (True, False)
    assert (writing.read_only, writing.sequential) == (False, True)
    assert tool(greet, uses={Capability.WRITE}).declaration.annotations.sequential, "where it may write, it is one"


def test_annotations_that_were_given_are_kept() -> None:
    given = Annotations(title="T", read_only=False, sequential=False)
    annotations = tool(greet, needs={Capability.WRITE}, annotations=given).declaration.annotations
    assert annotations == given


def test_the_words_of_the_contract_have_the_values_of_the_contract() -> None:
    assert [one.value for one in Capability] == [
        "read",
        "write",
        "exec",
        "channel",
        "memory.read",
        "memory.write",
        "web",
        "http",
        "net",
    ]
    assert [one.value for one in SessionKind] == ["main", "branch", "worker"]
    assert [one.value for one in PermissionTier] == ["read_only", "workspace", "system", "elevated"]


def test_main_and_branch_may_everything_and_a_worker_only_look() -> None:
    assert KIND_GRANTS[SessionKind.MAIN] == KIND_GRANTS[SessionKind.BRANCH] == frozenset(Capability)
    assert KIND_GRANTS[SessionKind.WORKER] == {Capability.READ, Capability.MEMORY_READ, Capability.WEB}
