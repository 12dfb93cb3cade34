"""Sessions: which session may open which, the effect of closing, private state, and state for children."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import misbehaving
from tests.helpers import until

from toolcell import (
    Capability,
    Limits,
    Profile,
    Session,
    SessionKind,
    Supervisor,
    Timeout,
    ToolContext,
    UsageError,
    base_tools,
    tool,
)
from toolcell.session import core_of
from toolcell.supervisor import runtime_of
from toolcell.testing.backends import ListChannel, ListMemory

pytestmark = pytest.mark.anyio


def remember(ctx: ToolContext, key: str, value: Any = None) -> Any:
    """Set `key` in the session's values. Return its earlier value."""
    before = ctx.values.get(key)
    ctx.values[key] = value
    return before


def configured(ctx: ToolContext) -> dict[str, Any]:
    """Return the config, and change it."""
    found = dict(ctx.config)
    ctx.config["changed"] = True
    return found


def identity(ctx: ToolContext) -> dict[str, Any]:
    """Return the identity of the caller."""
    return {
        "session": ctx.session_id,
        "kind": ctx.session_kind.value,
        "agent": ctx.agent_id,
        "root": str(ctx.workspace_root),
        "call": ctx.call_id,
    }


def environment(names: list[str]) -> dict[str, str | None]:
    """Return the values of environment variables."""
    return {name: os.environ.get(name) for name in names}


TOOLS = [*base_tools(), remember, configured, identity, environment, misbehaving.sleep_for_ever, misbehaving.echo]


async def test_a_tree_is_four_deep_and_no_deeper(main: Session) -> None:
    session = main
    for _ in range(4):
        session = await session.open_child("branch")
    assert core_of(session).depth == 4
    for kind in ("branch", "worker"):
        with pytest.raises(UsageError, match="deep"):
            await session.open_child(kind)
    assert (await session.call("echo", {"value": 1})).output == 1


async def test_a_session_has_eight_open_children_and_no_more(main: Session) -> None:
    children = [await main.open_child("worker") for _ in range(8)]
    with pytest.raises(UsageError, match="8"):
        await main.open_child("branch")
    await children[3].close()
    assert (await main.open_child("branch")).parent is main


async def test_a_worker_is_a_leaf(main: Session) -> None:
    worker = await main.open_child("worker")
    for kind in SessionKind:
        with pytest.raises(UsageError, match="leaf"):
            await worker.open_child(kind)


async def test_a_main_session_is_nobodys_child(main: Session) -> None:
    branch = await main.open_child("branch")
    for parent in (main, branch):
        with pytest.raises(UsageError, match="root"):
            await parent.open_child("main")


async def test_a_child_takes_after_its_parent_unless_told_otherwise(
    shared: Supervisor, workspace: Path, tmp_path: Path
) -> None:
    main = await shared.open_session("main", workspace=workspace, agent_id="ada", config={"tone": "dry"})
    same = await main.open_child("branch")
    other = await main.open_child("worker", workspace=tmp_path, agent_id="bob", session_id="given", config={})
    assert (await same.call("identity")).output == {
        "session": same.id,
        "kind": "branch",
        "agent": "ada",
        "root": str(workspace),
        "call": f"{same.id}-1",
    }
    told = (await other.call("identity", call_id="mine")).output
    assert told == {"session": "given", "kind": "worker", "agent": "bob", "root": str(tmp_path), "call": "mine"}
    assert (await same.call("configured")).output == {"tone": "dry"}
    assert (await other.call("configured")).output == {}
    assert same.parent is main and main.parent is None and same.workspace == workspace
    await main.close()


async def test_closing_a_session_closes_all_below_it_and_a_closed_session_is_of_no_use(main: Session) -> None:
    branch = await main.open_child("branch")
    leaf = await (await branch.open_child("branch")).open_child("worker")
    sibling = await main.open_child("worker")
    await branch.close()
    await branch.close()
    for closed in (branch, leaf):
        with pytest.raises(UsageError, match="closed"):
            await closed.call("echo")
        with pytest.raises(UsageError, match="closed"):
            await closed.open_child("worker")
        with pytest.raises(UsageError, match="closed"):
            await closed.tools()
    assert (await sibling.call("echo", {"value": 1})).output == 1


async def test_ids_are_unique_and_free_again_after_closing(shared: Supervisor, main: Session) -> None:
    with pytest.raises(UsageError, match="open session of this id"):
        await shared.open_session("main", workspace=main.workspace, session_id=main.id)
    children = [await main.open_child("worker") for _ in range(4)]
    assert len({session.id for session in (main, *children)}) == 5
    again = children[0].id
    await children[0].close()
    assert (await main.open_child("worker", session_id=again)).id == again


async def test_a_workspace_is_a_directory_or_a_new_name_in_one(shared: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    session = await shared.open_session("main", workspace=tmp_path / "new")
    assert (tmp_path / "new").is_dir()
    await session.close()
    for path in (tmp_path / "missing" / "deeper", tmp_path / "file"):
        with pytest.raises(UsageError, match="directory"):
            await shared.open_session("main", workspace=path)


async def test_the_cells_of_a_closed_session_end(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    await session.call("identity")
    await session.call("read", {"path": "."})
    own = [cell.pid for cell in runtime_of(shared).pool.cells.values() if cell.spec.key.session_id == session.id]
    assert len(own) == 2
    await session.close()
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in own))


async def test_a_session_may_have_a_profile_of_its_own(shared: Supervisor, workspace: Path) -> None:
    short = Profile.for_kind("main").replace(limits=Limits(wall_s=0.3), env={"COLOUR": "blue"})
    session = await shared.open_session("main", workspace=workspace, profile=short)
    assert (await session.call("environment", {"names": ["COLOUR", "HOME"]})).output == {
        "COLOUR": "blue",
        "HOME": "/tmp",
    }
    result = await session.call("sleep_for_ever")
    assert isinstance(result.error, Timeout) and result.error.elapsed >= 0.3
    await session.close()


async def test_nothing_of_the_supervisors_environment_is_passed_unless_named(
    shared: Supervisor, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "hush")
    monkeypatch.setenv("A_SETTING", "known")
    profile = Profile.for_kind("main").replace(pass_env=("A_SETTING", "NOT_SET"))
    session = await shared.open_session("main", workspace=workspace, profile=profile)
    found = (await session.call("environment", {"names": ["A_SECRET", "A_SETTING", "NOT_SET"]})).output
    assert found == {"A_SECRET": None, "A_SETTING": "known", "NOT_SET": None}
    await session.close()


async def test_grants_are_the_sessions_profile_and_parent_together(main: Session) -> None:
    some = Profile.for_kind("branch").replace(grants=frozenset({"read", "channel", "memory.read"}))
    branch = await main.open_child("branch", profile=some)
    worker = await branch.open_child("worker")
    assert branch.grants == {Capability.READ, Capability.CHANNEL, Capability.MEMORY_READ}
    assert worker.grants == {Capability.READ, Capability.MEMORY_READ}
    assert {declaration.name for declaration in await worker.tools() if declaration.needs} == {"read", "memory_search"}


async def test_a_branch_borrows_its_parents_channel_and_one_with_its_own_uses_that(
    shared: Supervisor, workspace: Path
) -> None:
    owned, other = ListChannel(), ListChannel()
    main = await shared.open_session("main", workspace=workspace, channel=owned)
    borrower = await (await main.open_child("branch")).open_child("branch")
    owner = await main.open_child("branch", channel=other)
    (await borrower.call("message", {"text": "one"})).unwrap()
    (await owner.call("message", {"text": "two"})).unwrap()
    assert owned.sent == [("one", f"agent/{borrower.id}")]
    assert other.sent == [("two", f"agent/{owner.id}")]
    await main.close()


async def test_agents_that_share_a_memory_do_not_see_each_others_records(shared: Supervisor, workspace: Path) -> None:
    memory = ListMemory()
    ada = await shared.open_session("main", workspace=workspace, memory=memory, agent_id="ada")
    bob = await ada.open_child("branch", agent_id="bob")
    (await ada.call("memory_store", {"text": "ada likes owls"})).unwrap()
    (await bob.call("memory_store", {"text": "bob likes gum"})).unwrap()
    assert [one["text"] for one in (await ada.call("memory_search", {"query": "likes"})).output["records"]] == [
        "ada likes owls"
    ]
    await ada.close()


async def test_values_last_from_call_to_call_and_stay_in_their_session(main: Session) -> None:
    other = await main.open_child("branch")
    assert (await main.call("remember", {"key": "a", "value": [1, {"b": 2}]})).output is None
    result = await main.call("remember", {"key": "a", "value": "later"})
    assert result.output == [1, {"b": 2}] and result.values == {"a": "later"}
    assert (await other.call("remember", {"key": "a"})).output is None


async def test_a_tool_that_changes_its_config_changes_a_copy(shared: Supervisor, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace, config={"tone": "dry"})
    for _ in range(2):
        assert (await session.call("configured")).output == {"tone": "dry"}
    assert session.config == {"tone": "dry"}
    await session.close()


async def test_a_supervisor_says_what_is_wrong_with_its_use(workspace: Path) -> None:
    with pytest.raises(UsageError, match="not running"):
        await Supervisor().open_session("main", workspace=workspace)
    with pytest.raises(UsageError, match=r"Two tools are named 'remember': \S+:remember and \S+:configured\. Rename"):
        Supervisor([tool(remember), tool(configured, name="remember")])
    twice: list[Callable[[], None]] = []
    for _ in range(2):
        if not twice:

            def again() -> None:
                """The first."""
        else:

            def again() -> None:
                """The second."""

        again.__qualname__ = "again"  # as in a module that defines it twice
        twice.append(again)
    lines = "\\.py:{}\\) and .*\\.py:{}\\)\\. Rename".format(*(one.__code__.co_firstlineno for one in twice))
    with pytest.raises(UsageError, match=f"Two tools are named 'again': .*{lines}"):
        Supervisor(twice)
    for options in ({"standby": 2}, {"max_cells": 0}):
        with pytest.raises(UsageError):
            Supervisor(**options)  # type: ignore[arg-type]
