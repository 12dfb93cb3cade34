"""The SQLite memory: any text goes in, any text is a query, and namespaces are separate."""

import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcell.backends import (
    BackendError,
    MemoryRecord,
    MemoryStore,
    NotConfigured,
    Refused,
    SQLiteMemory,
    Unreachable,
)
from toolcell.backends.records import namespace_of, room_of

pytestmark = pytest.mark.anyio

HOSTILE_TEXTS = [
    "",
    " ",
    '"',
    "'",
    "it's",
    "a AND",
    "NOT",
    "OR OR OR",
    "a NEAR b",
    "NEAR(a b, 5)",
    "col:x",
    "text:secret",
    "room : 1",
    "{text} : a",
    "-a",
    "^a",
    "a*",
    "*",
    "(((((",
    "a\x00b",
    '"\x00"',
    "'; DROP TABLE record; --",
    "%_%",
    "\\",
    "\ud800 lone",
    "\u202e rtl",
    "🙂",
    "_",
    "___ _",
    "e\u0301",
    "﷽" * 500,
    "word " * 5000,
    " ".join(f"w{n}" for n in range(3000)),
    "x" * 100_000,
]


def a_record(
    text: str, id: str = "", kind: str = "note", tags: tuple[str, ...] = (), created_at: float | None = None
) -> MemoryRecord:
    return MemoryRecord(id=id, text=text, kind=kind, tags=tags, created_at=created_at)


@pytest.fixture
async def memory() -> AsyncIterator[SQLiteMemory]:
    with SQLiteMemory() as memory:
        yield memory


async def found(memory: SQLiteMemory, query: str, namespace: str = "a", limit: int = 10) -> list[str]:
    return [record.text for record in await memory.search(query, limit=limit, namespace=namespace)]


async def test_a_record_comes_back_as_it_was_stored(memory: SQLiteMemory) -> None:
    store: MemoryStore = memory
    text = 'The "deploy" key\x00 is at noon — naïve 🙂'
    id = await store.store(a_record(text, kind="fact", tags=("ops", 'a"b'), created_at=5.5), namespace="a")
    [record] = await store.search("deploying NAIVE", limit=5, namespace="a")
    assert id and record == MemoryRecord(id, text, "fact", ("ops", 'a"b'), 5.5, record.score)
    assert record.score is not None and record.score > 0
    [by_tag] = await store.search("ops", limit=5, namespace="a")
    assert by_tag.id == id


async def test_better_matches_come_first_and_the_limit_holds(memory: SQLiteMemory) -> None:
    for text in ["cats are fine", "cats and dogs", "dogs, cats, dogs", "a bird", *["filler text"] * 20]:
        await memory.store(a_record(text), namespace="a")
    records = await memory.search("dogs cats", limit=10, namespace="a")
    assert [r.text for r in records] == ["dogs, cats, dogs", "cats and dogs", "cats are fine"]
    scores = [record.score or 0 for record in records]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0
    assert await found(memory, "dogs cats", limit=1) == ["dogs, cats, dogs"]
    assert await found(memory, "dogs", limit=0) == await found(memory, "dogs", limit=-1) == []
    assert len(await found(memory, "filler", limit=10**9)) == 20


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
async def test_any_text_is_a_query_and_reaches_no_other_namespace(memory: SQLiteMemory, text: str) -> None:
    await memory.store(a_record("secret a b x text lone word OR NOT NEAR"), namespace="other")
    assert await found(memory, text) == []


@pytest.mark.parametrize("namespace", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
async def test_any_namespace_is_used_as_it_is_or_refused(memory: SQLiteMemory, namespace: str) -> None:
    try:
        await memory.store(a_record("hello"), namespace=namespace)
    except Refused:
        return
    assert await found(memory, "hello", namespace) == ["hello"]
    assert await found(memory, "hello", "a") == await found(memory, "hello", namespace + "x") == []


async def test_a_namespace_has_the_same_order_by_itself_or_beside_others(memory: SQLiteMemory) -> None:
    for number, text in enumerate(["an apple", "an apple", "a pear", "apple pear", "apple, apple"]):
        await memory.store(a_record(text, id=str(number)), namespace="a")

    async def order() -> list[str]:
        return [record.id for record in await memory.search("apple", limit=10, namespace="a")]

    alone = await order()
    assert alone == ["4", "3", "1", "0"], "the newest of equals first"
    await memory.store(a_record("a quince"), namespace="few")
    assert await order() == alone
    for _ in range(30):
        await memory.store(a_record("a quince"), namespace="many")
    assert await order() == alone


async def test_the_name_under_which_a_namespace_is_indexed_finds_nothing(memory: SQLiteMemory) -> None:
    await memory.store(a_record("hello"), namespace="a")
    for query in (room_of("a"), f"_{room_of('a')}", f"hello {room_of('a')}"):
        assert await found(memory, query) == (["hello"] if "hello" in query else [])


async def test_words_without_spaces_between_them_are_found_too(memory: SQLiteMemory) -> None:
    await memory.store(a_record("私は東京に住んでいます"), namespace="a")
    await memory.store(a_record("大阪"), namespace="a")
    await memory.store(a_record("東京"), namespace="b")
    assert await found(memory, "東京") == ["私は東京に住んでいます"]
    assert await found(memory, "東京", limit=1, namespace="b") == ["東京"]


async def test_a_known_id_replaces_the_record_of_its_own_namespace_only(memory: SQLiteMemory) -> None:
    for namespace, text in [("a", "first apple"), ("b", "second apple"), ("a", "third pear")]:
        assert await memory.store(a_record(text, id="same"), namespace=namespace) == "same"
    assert await found(memory, "apple pear") == ["third pear"]
    assert await found(memory, "apple pear", "b") == ["second apple"]
    assert not await memory.delete("same", namespace="c")
    assert await memory.delete("same", namespace="a")
    assert await found(memory, "apple pear") == []
    assert await found(memory, "apple pear", "b") == ["second apple"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (a_record("x" * 101), "101 bytes"),
        (a_record("é" * 51), "102 bytes"),
        (a_record(" \n"), "empty"),
        (a_record("half \ud800"), "Unicode"),
        (a_record("x", id="i" * 257), "id"),
        (a_record("x", id="\udfff"), "id"),
        (a_record("x", kind="k" * 257), "kind"),
        (a_record("x", tags=("t" * 257,)), "tag"),
        (a_record("x", tags=("t",) * 33), "33 tags"),
        (a_record("x", created_at=float("nan")), "time"),
        (a_record("x", created_at=float("inf")), "time"),
        (a_record("x", created_at=-1.0), "time"),
    ],
    ids=range(12),
)
async def test_what_is_over_a_limit_is_refused_and_leaves_nothing(record: MemoryRecord, why: str) -> None:
    with SQLiteMemory(max_text_bytes=100) as memory:
        with pytest.raises(Refused, match=why):
            await memory.store(record, namespace="a")
        assert await found(memory, "x half") == []
        await memory.store(a_record("x" * 100), namespace="a")


async def test_a_full_namespace_refuses_more_but_takes_replacements() -> None:
    with SQLiteMemory(max_records=2) as memory:
        for id in ("1", "2"):
            await memory.store(a_record("apple", id=id), namespace="a")
        with pytest.raises(Refused, match="full"):
            await memory.store(a_record("apple"), namespace="a")
        await memory.store(a_record("pear", id="2"), namespace="a")
        await memory.store(a_record("apple"), namespace="b")
        await memory.delete("1", namespace="a")
        await memory.store(a_record("plum"), namespace="a")
        assert sorted(await found(memory, "apple pear plum")) == ["pear", "plum"]


async def test_many_tasks_store_and_search_at_once(memory: SQLiteMemory) -> None:
    async def work(n: int) -> None:
        await memory.store(a_record(f"common only{n}"), namespace="a")
        assert await found(memory, f"only{n}") == [f"common only{n}"]

    async with anyio.create_task_group() as group:
        for n in range(50):
            group.start_soon(work, n)
    assert len(await found(memory, "common", limit=100)) == 50


async def test_a_file_keeps_its_records_and_belongs_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "memory.db"
    with SQLiteMemory(path) as memory:
        await memory.store(a_record("kept"), namespace="a")
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {0o600}
        assert Path(f"{path}-wal").exists()
    with SQLiteMemory(str(path)) as memory:
        assert await found(memory, "kept") == ["kept"]


STORE_TWENTY = """
import sys, anyio
from toolcell.backends import MemoryRecord, SQLiteMemory

async def main(path, name):
    with SQLiteMemory(path) as memory:
        for n in range(20):
            await memory.store(MemoryRecord("", f"from {name} {n}"), namespace="a")

anyio.run(main, *sys.argv[1:])
"""


async def test_three_processes_open_and_write_one_new_file(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    names = ("left", "middle", "right")
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(anyio.run_process, [sys.executable, "-c", STORE_TWENTY, str(path), name])
    with SQLiteMemory(path) as memory:
        for name in names:
            assert len(await found(memory, name, limit=100)) == 20


async def test_a_writer_in_another_process_that_never_ends_is_an_error_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.backends.database._BUSY_S", 0.1)
    path = tmp_path / "memory.db"
    with SQLiteMemory(path) as memory:
        await memory.store(a_record("before"), namespace="a")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match="locked"):
            await memory.store(a_record("during"), namespace="a")
        assert await found(memory, "before during") == ["before"]
        other.execute("ROLLBACK")
        other.close()
        await memory.store(a_record("after"), namespace="a")
        assert await found(memory, "after") == ["after"]


async def test_a_closed_memory_says_so(memory: SQLiteMemory) -> None:
    memory.close()
    memory.close()
    with pytest.raises(BackendError, match="closed"):
        await memory.search("x", limit=1, namespace="a")


async def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t(x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotConfigured, match="another program"):
        SQLiteMemory(path)
    assert path.read_bytes() == before
    path.write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(NotConfigured, match="cannot be opened"):
        SQLiteMemory(path)
    with pytest.raises(NotConfigured, match="writable folder"):
        SQLiteMemory(tmp_path)


async def test_a_file_of_a_newer_toolcell_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    SQLiteMemory(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(NotConfigured, match="newer toolcell"):
        SQLiteMemory(path)


AGENTS = st.text(max_size=6) | st.sampled_from(["", "[", "a", "b", '["a","b"]', '","', "a/b"])


@given(st.lists(st.lists(AGENTS, min_size=1, max_size=5), min_size=2, max_size=2))
@example([["a", "b"], ['["a","b"]']])
@example([["a", "b"], ["a/b"]])
@example([["[a"], ["a"]])
@example([["a", ""], ["a"]])
def test_no_two_lines_of_agents_have_the_same_namespace(lines: list[list[str]]) -> None:
    first, second = lines
    assert (namespace_of(first) == namespace_of(second)) == (first == second)


def test_the_namespace_of_an_agent_without_ancestors_is_its_id() -> None:
    assert [namespace_of(line) for line in (["ann"], ["a/b"], ["ann", "d\u00e9l\u00e9gu\u00e9"])] == [
        *("ann", "a/b", '["ann","d\u00e9l\u00e9gu\u00e9"]')
    ]


async def test_without_an_embedder_the_store_works_where_numpy_is_not_installed(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.modules["numpy"] = None
from toolcell import MemoryRecord, SQLiteMemory

async def main():
    with SQLiteMemory({str(tmp_path / "memory.sqlite")!r}) as memory:
        await memory.store(MemoryRecord(id="", text="The gate is blue."), namespace="a")
        print([record.text for record in await memory.search("gate", namespace="a", limit=1)])

asyncio.run(main())
"""
    done = await anyio.run_process([sys.executable, "-c", program], check=False)
    assert (done.stdout, done.stderr) == (b"['The gate is blue.']\n", b"")
