"""An agent's memory through the public API: how long it lasts, what the model is told, and who finds what."""

from pathlib import Path
from typing import Any

import pytest

from toolcell import MemoryKind, Session, SessionKind, Supervisor, UsageError, base_tools, load_config
from toolcell.testing import ListMemory

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
MAIN = SessionKind.MAIN


async def description(session: Session) -> str:
    (found,) = [declared.description for declared in await session.tools() if declared.name == "memory_store"]
    return found


async def texts(session: Session, query: str) -> list[str]:
    return [record["text"] for record in (await session.call("memory_search", {"query": query})).output["records"]]


async def test_with_a_state_directory_the_memory_survives_and_the_model_is_told(
    supervise: Any, workspace: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with supervise(base_tools(), state=state) as supervisor:
        session = await supervisor.open_session(MAIN, workspace=workspace, agent_id="ada")
        assert "kept on disk, also after this program has ended" in await description(session)
        stored = {"text": "Deploy on Fridays only", "kind": MemoryKind.DECISION.value, "tags": ["release"]}
        assert (await session.call("memory_store", stored)).is_error is False
    assert (state / "memory.sqlite").stat().st_mode & 0o777 == 0o600
    async with supervise(base_tools(), state=state) as supervisor:
        session = await supervisor.open_session(MAIN, workspace=workspace, agent_id="ada")
        (record,) = (await session.call("memory_search", {"query": "release"})).output["records"]
        assert (record["kind"], record["tags"]) == ("decision", ["release"]) and record["created_at"] > 1e9
        other = await supervisor.open_session(MAIN, workspace=workspace, agent_id="eve")
        assert await texts(other, "release") == []


async def test_without_one_it_ends_with_the_supervisor_and_the_model_is_told(supervise: Any, workspace: Path) -> None:
    for _ in range(2):
        async with supervise(base_tools()) as supervisor:
            session = await supervisor.open_session(MAIN, workspace=workspace)
            told = await description(session)
            assert "until the program that runs this agent ends, and no longer" in told and "disk" not in told
            assert await texts(session, "Fridays") == []
            await session.call("memory_store", {"text": "Deploy on Fridays only"})
            assert await texts(session, "Fridays") == ["Deploy on Fridays only"]


async def test_a_store_of_the_programs_own_is_used_and_nothing_is_claimed_for_it(
    supervise: Any, workspace: Path
) -> None:
    memory = ListMemory()
    async with supervise(base_tools(), memory=memory) as supervisor:
        session = await supervisor.open_session(MAIN, workspace=workspace)
        told = await description(session)
        assert "Records are kept" not in told
        await session.call("memory_store", {"text": "a fact"})
        unknown = await session.call("memory_store", {"text": "a fact", "kind": "rumour"})
        assert unknown.error is not None and unknown.error.kind == "validation"
    assert [(namespace, record.kind) for namespace, record in memory.records] == [("agent", "fact")]


async def test_the_settings_place_the_memory(supervise: Any, workspace: Path, tmp_path: Path) -> None:
    file = tmp_path / "toolcell.toml"
    file.write_text('[supervisor.memory]\npath = "notes.sqlite"\nmax_records = 1\n')
    async with supervise(base_tools(), config=load_config(file=file)) as supervisor:
        session = await supervisor.open_session(MAIN, workspace=workspace)
        await session.call("memory_store", {"text": "one"})
        full = await session.call("memory_store", {"text": "two"})
        assert full.error is not None and "This memory is full: it has 1 records" in full.error.message
    assert (tmp_path / "notes.sqlite").exists()
    file.write_text('[supervisor.memory]\nkind = "lancedb"\n')
    with pytest.raises(UsageError, match="has no path"):
        Supervisor(base_tools(), config=load_config(file=file))
