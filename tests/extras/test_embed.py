"""The extra [embed]: a search by meaning, offline, with the model that is in the package."""

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from toolcell import Embedder, LocalEmbedder, MemoryKind, SQLiteMemory, Supervisor, base_tools, load_config
from toolcell.backends import MemoryRecord
from toolcell.backends.vector_index import VectorCache, VectorTable, packed, unit

pytestmark = pytest.mark.anyio
FACTS = {
    "cat": "The cat sleeps on the mat",
    "tax": "Quarterly tax report is due in May",
    "store": "We use PostgreSQL as the database",
    "style": "The user prefers short answers",
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    yield LocalEmbedder()


async def filled(path: str | Path, embedder: Embedder | None) -> SQLiteMemory:
    memory = SQLiteMemory(path, embedder=embedder)
    for id, text in FACTS.items():
        await memory.store(MemoryRecord(id, text, MemoryKind.FACT), namespace="a")
    return memory


async def ids(memory: SQLiteMemory, query: str, namespace: str = "a") -> list[str]:
    return [record.id for record in await memory.search(query, limit=3, namespace=namespace)]


@pytest.mark.parametrize(
    ("query", "id"), [("feline", "cat"), ("pet", "cat"), ("data storage", "store"), ("brief replies", "style")]
)
async def test_a_record_is_found_by_other_words(embedder: LocalEmbedder, query: str, id: str) -> None:
    with await filled(":memory:", embedder) as memory:
        assert (await ids(memory, query))[0] == id
        assert await ids(memory, query, namespace="b") == []
    with await filled(":memory:", None) as plain:
        assert await ids(plain, query) == []


async def test_a_record_that_both_rankings_have_comes_first(embedder: LocalEmbedder) -> None:
    with await filled(":memory:", embedder) as memory:
        await memory.store(MemoryRecord("both", "A cat is a feline animal"), namespace="a")
        assert (await ids(memory, "feline"))[:2] == ["both", "cat"]
        assert await ids(memory, "quantum chromodynamics") == []


async def test_a_file_that_was_written_without_an_embedder_is_found_by_meaning_later(
    embedder: LocalEmbedder, tmp_path: Path
) -> None:
    (await filled(tmp_path / "m.sqlite", None)).close()
    with SQLiteMemory(tmp_path / "m.sqlite", embedder=embedder) as memory:
        assert await ids(memory, "feline") == ["cat"]
        assert await memory.delete("cat", namespace="a")
        assert await ids(memory, "feline") == []
        await memory.store(MemoryRecord("tax", "Kittens are young cats"), namespace="a")
        assert await ids(memory, "feline") == ["tax"]


async def test_what_another_process_writes_is_found_by_meaning(embedder: LocalEmbedder, tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    with SQLiteMemory(path, embedder=embedder) as one, SQLiteMemory(path) as other:
        await one.store(MemoryRecord("1", "Rain is expected tomorrow"), namespace="a")
        assert await ids(one, "feline") == []
        await other.store(MemoryRecord("2", "The cat sleeps"), namespace="a")
        assert await ids(one, "feline") == ["2"]


async def test_the_vectors_of_another_embedder_are_made_again(tmp_path: Path, embedder: LocalEmbedder) -> None:
    class Constant:
        name, dimensions, least = "constant", 2, 0.5

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0, 0.0] for _ in texts]

    path = tmp_path / "m.sqlite"
    (await filled(path, embedder)).close()
    with SQLiteMemory(path, embedder=Constant()) as memory:
        assert len(await ids(memory, "anything")) == 3
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT DISTINCT model, length(data) FROM vector").fetchall() == [("constant/2", 8)]


def test_the_table_of_vectors_is_exact_under_every_change() -> None:
    random = np.random.default_rng(7)
    vectors = dict(enumerate(packed(random.standard_normal((300, 16)).tolist())))
    table = VectorTable(16)
    table.add(vectors.items())
    for number in range(0, 300, 3):
        table.remove(number)
        del vectors[number]
    table.remove(999)
    query = unit(random.standard_normal(16).tolist())
    scores = {n: float(np.frombuffer(v, np.float32) @ query) for n, v in vectors.items()}
    best = sorted(scores, key=lambda number: -scores[number])
    assert table.nearest(query, 10, -1.0) == best[:10] and len(table) == 200
    assert table.nearest(query, 500, 0.2) == [number for number in best if scores[number] >= 0.2]
    assert table.nearest(query, 0, -1.0) == VectorTable(16).nearest(query, 5, -1.0) == []


def test_a_text_has_the_same_vector_alone_and_in_a_batch(embedder: LocalEmbedder) -> None:
    texts = ["feline", "A cat sat on the mat.", "日本語", "x" * 3000, " ", "émigré 42"]
    for text, vector in zip(texts, embedder.embed(texts), strict=True):
        alone = np.asarray(embedder.embed([text])[0])
        assert alone.shape == (embedder.dimensions,) and alone.dtype == np.float32
        assert np.allclose(alone, vector, atol=1e-5), text


def test_the_tables_in_memory_are_bounded() -> None:
    cache = VectorCache(10_000)
    for name in "abc":
        cache.put(name, VectorTable(16))
    assert cache.get("a") is None and cache.get("c") is not None
    cache.put("large", VectorTable(10_000))
    assert cache.get("c") is None and cache.get("large") is not None


async def test_an_agent_finds_what_it_learned_after_a_restart_by_other_words(tmp_path: Path) -> None:
    file = tmp_path / "toolcell.toml"
    file.write_text('[supervisor]\nstate = "state"\n[supervisor.memory]\nembed = true\n')
    (tmp_path / "work").mkdir()
    for query in ("", "feline"):
        async with Supervisor(base_tools(), config=load_config(file=file)) as supervisor:
            session = await supervisor.open_session("main", workspace=tmp_path / "work")
            if not query:
                await session.call("memory_store", {"text": FACTS["cat"], "kind": "fact"})
            else:
                (record,) = (await session.call("memory_search", {"query": query})).output["records"]
                assert record["text"] == FACTS["cat"]


def test_the_example_that_repairs_a_project_finds_its_decision_by_other_words(tmp_path: Path) -> None:
    program = Path(__file__).parent.parent.parent / "examples" / "repair_a_project.py"
    ran = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    assert "By 'trailing remarks': In iniconfig, an inline comment after a value ends it" in ran.stdout
