"""The extra [lancedb]: records in a process of its own, which no fork of ours copies."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers import until

from toolcell import LanceDBMemory, LocalEmbedder, Supervisor, base_tools, load_config
from toolcell.backends import BackendError, MemoryRecord, Refused, Unreachable

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def memory(
    tmp_path_factory: pytest.TempPathFactory, nothing_is_left_of_the_module: None
) -> AsyncIterator[LanceDBMemory]:
    with LanceDBMemory(tmp_path_factory.mktemp("lance") / "db", embedder=LocalEmbedder(), max_records=50) as memory:
        yield memory


async def ids(memory: LanceDBMemory, query: str, namespace: str) -> list[str]:
    return [record.id for record in await memory.search(query, limit=5, namespace=namespace)]


async def test_a_record_comes_back_whole_and_by_other_words(memory: LanceDBMemory) -> None:
    kept = MemoryRecord("1", "The cat sleeps on the mat", "preference", ("animal",), 1234.5)
    assert await memory.store(kept, namespace="a") == "1"
    for query in ("cats", "feline", "animal"):
        (found,) = await memory.search(query, limit=5, namespace="a")
        assert (found.id, found.text, found.kind, found.tags, found.created_at) == (
            "1", kept.text, "preference", ("animal",), 1234.5,
        )  # fmt: skip
    assert "lancedb" not in sys.modules and "pyarrow" not in sys.modules


async def test_nobody_else_can_read_the_records(tmp_path: Path) -> None:
    had = os.umask(0o022)
    try:
        with LanceDBMemory(tmp_path / "new" / "db") as memory:
            await memory.store(MemoryRecord("1", "a secret"), namespace="a")
    finally:
        os.umask(had)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert len(made) > 5
    assert {str(path): oct(path.stat().st_mode & 0o077) for path in made if path.stat().st_mode & 0o077} == {}


async def test_namespaces_are_isolated_whatever_they_are_called(memory: LanceDBMemory) -> None:
    names = ["b", "b' OR '1'='1", "b\0c", "b/c"]
    for name in names:
        await memory.store(MemoryRecord("x' --", f"secret word {len(name)}"), namespace=name)
    for name in names:
        (found,) = await memory.search("secret", limit=5, namespace=name)
        assert found.text == f"secret word {len(name)}"
    assert await memory.delete("x' --", namespace=names[1])
    assert not await memory.delete("x' --", namespace=names[1])
    assert await ids(memory, "secret", names[0]) == ["x' --"]


@pytest.mark.parametrize("query", ['"a', "a AND", "(", "col:x", "it's", "~ ^ *", "a\0b"])
async def test_any_text_is_a_query(memory: LanceDBMemory, query: str) -> None:
    assert await ids(memory, query, "nobody") == []


async def test_an_id_is_replaced_and_a_full_namespace_refuses(memory: LanceDBMemory) -> None:
    for number in range(50):
        await memory.store(MemoryRecord(str(number), f"number {number}"), namespace="full")
    await memory.store(MemoryRecord("0", "zero instead"), namespace="full")
    with pytest.raises(Refused, match="full: it has 50 records"):
        await memory.store(MemoryRecord("new", "one more"), namespace="full")
    assert (await ids(memory, "instead", "full"))[0] == "0"


async def test_a_process_that_is_killed_is_an_error_at_most_and_the_records_are_there(memory: LanceDBMemory) -> None:
    await memory.store(MemoryRecord("kept", "survives a kill"), namespace="k")
    process = memory._process._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: process.poll() is not None)
    assert await ids(memory, "survives", "k") == ["kept"]


async def test_a_directory_belongs_to_one_embedder_and_a_closed_memory_says_so(
    memory: LanceDBMemory, tmp_path: Path
) -> None:
    with LanceDBMemory(tmp_path / "db") as plain:
        await plain.store(MemoryRecord("1", "a cat"), namespace="a")
        assert await ids(plain, "cats", "a") == ["1"]
    with pytest.raises(BackendError, match="closed"):
        await plain.search("cat", limit=1, namespace="a")
    with LanceDBMemory(tmp_path / "db", embedder=LocalEmbedder()) as other, pytest.raises(Unreachable):
        await other.search("cat", limit=1, namespace="a")


DIES = """
import anyio, os, sys
from toolcell import LanceDBMemory
from toolcell.backends import MemoryRecord

async def main():
    memory = LanceDBMemory(sys.argv[1])
    await memory.store(MemoryRecord("1", "x"), namespace="a")
    print(memory._process._process.pid, flush=True)
    os.kill(os.getpid(), 9)

anyio.run(main)
"""


async def test_the_process_ends_with_a_program_that_is_killed(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "db")], capture_output=True, check=False)
    pid = int(run.stdout)
    await until(lambda: not os.path.exists(f"/proc/{pid}"))


async def test_a_supervisor_keeps_its_memory_there(tmp_path: Path) -> None:
    file = tmp_path / "toolcell.toml"
    file.write_text('[supervisor.memory]\nkind = "lancedb"\npath = "lance"\n')
    (tmp_path / "work").mkdir()
    for _ in range(2):
        async with Supervisor(base_tools(), config=load_config(file=file)) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path / "work")
            (told,) = [each.description for each in await session.tools() if each.name == "memory_store"]
            assert "kept on disk" in told
            stored = await session.call("memory_store", {"text": "the sky is blue"})
            assert stored.error is None
    assert (tmp_path / "lance").is_dir()
