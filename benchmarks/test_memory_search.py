"""A hybrid search of 20,000 records, against FTS5 alone plus a product of numpy alone, on the same texts."""

import json
import random
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcell import LocalEmbedder, MemoryStore, SQLiteMemory
from toolcell.backends import MemoryRecord

from .conftest import Publish
from .interleave import Block, Case, interleave, timed
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

RECORDS, LIMIT, SAMPLES, SMOKE = 20_000, 5, 3, 500
QUERIES = {"rare words": "basalt lantern", "usual words": "harbour timetable winter", "common words": "report meeting"}
_WORDS = (
    *("report", "meeting", "harbour", "timetable", "winter"),
    *("invoice", "garden", "engine", "signal", "market", "paper", "window", "basalt", "lantern"),
)
_SHARES = [0.4, 0.3, 0.05, 0.05, 0.05, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.002, 0.002]
_TABLE = "CREATE VIRTUAL TABLE word USING fts5(text, tags, tokenize='porter unicode61 remove_diacritics 2')"
_BEST = f"SELECT rowid FROM word WHERE word MATCH ? ORDER BY rank LIMIT {LIMIT}"


def test_searching_the_memory(publish: Publish) -> None:
    publish(memory_search, 15)


def texts(total: int) -> list[str]:
    """Texts of some 12 words, each of which has a word of `_WORDS` with its share."""
    drawn = random.Random(7)
    filler = [f"word{number}" for number in range(3_000)]
    return [
        " ".join(
            [word for word, share in zip(_WORDS, _SHARES, strict=True) if drawn.random() < share]
            + drawn.choices(filler, k=8)
        )
        for _ in range(total)
    ]


async def memory_search(rounds: int, workspace: Path) -> Figure:
    given = texts(RECORDS if rounds > 2 else SMOKE)
    embedder = LocalEmbedder()
    vectors = np.asarray(embedder.embed(given), dtype=np.float32)
    plain = sqlite3.connect(workspace / "plain.sqlite", isolation_level=None)
    plain.execute("PRAGMA journal_mode = WAL")
    plain.execute(_TABLE)
    plain.execute("BEGIN")
    plain.executemany("INSERT INTO word(text, tags) VALUES (?, '')", [(text,) for text in given])
    plain.execute("COMMIT")
    try:
        with SQLiteMemory(workspace / "memory.sqlite", embedder=embedder) as memory:
            await fill(memory, given)
            await memory.search("warm up", limit=1, namespace="agent")
            cases = [
                case
                for name, query in QUERIES.items()
                for case in (
                    Case(name, "ours", searching(memory, query)),
                    Case(f"FTS5 + numpy, {name}", "floor", timed(floor(plain, vectors, embedder, query), SAMPLES)),
                )
            ]
            measured = await interleave(cases, rounds)
    finally:
        plain.close()
    ratios = {
        name: statistics.median(ours.samples) / statistics.median(theirs.samples)
        for name, ours, theirs in zip(QUERIES, measured[::2], measured[1::2], strict=True)
    }
    told = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items())
    return Figure(
        "memory-search",
        f"Search {len(given):,} records by words and meaning",
        measured,
        notes=[f"times the floor, medians of all samples: {told}"],
    )


async def fill(memory: MemoryStore, given: list[str]) -> None:
    for number, text in enumerate(given):
        await memory.store(MemoryRecord(str(number), text), namespace="agent")


def searching(memory: MemoryStore, query: str) -> Block:
    """The whole search, as the broker awaits it: with the embedding, the fusion, the rows and the worker thread."""

    async def block() -> list[float]:
        samples: list[float] = []
        for _ in range(SAMPLES):
            began = time.perf_counter()
            found = await memory.search(query, limit=LIMIT, namespace="agent")
            samples.append(time.perf_counter() - began)
            assert len(found) == LIMIT
        return samples

    return block


def floor(
    plain: sqlite3.Connection, vectors: NDArray[np.float32], embedder: LocalEmbedder, query: str
) -> Callable[[], object]:
    """FTS5's best rows, and the product of all vectors with the query's; nothing is joined or ranked."""
    either = " OR ".join(json.dumps(word) for word in query.split())
    asked = np.asarray(embedder.embed([query])[0], dtype=np.float32)

    def go() -> None:
        rows = plain.execute(_BEST, (either,)).fetchall()
        scores = vectors @ asked
        assert rows and len(scores) == len(vectors)

    return go
