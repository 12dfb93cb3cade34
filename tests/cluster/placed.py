"""Backends that nodes make for themselves, by import path."""

import os

from toolcell import Credential, MemoryRecord
from toolcell.backends import SearchHit, Unreachable
from toolcell.testing.backends import DictWeb, ListMemory

__all__ = ["KEY", "KeyedWeb", "PidMemory", "memory", "refuse", "resolve", "web"]

KEY = "key-of-the-node-123"
MEMORIES: list[ListMemory] = []
WEBS: list["KeyedWeb"] = []


class KeyedWeb(DictWeb):
    """A web client with a credential, which its answers repeat."""

    credentials = (Credential(value=KEY),)

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        self.asked.append(query)
        if query == "fail":
            raise Unreachable(f"The engine answered: {KEY} is not valid.")
        return [SearchHit(f"you sent {KEY}", f"https://a.example.org/?key={KEY}")]


def memory() -> ListMemory:
    MEMORIES.append(ListMemory())
    return MEMORIES[-1]


class PidMemory(ListMemory):
    """A memory whose search returns the id of its own process."""

    async def search(self, query: str, *, limit: int, namespace: str) -> list[MemoryRecord]:
        return [MemoryRecord("pid", str(os.getpid()))]


def web() -> KeyedWeb:
    WEBS.append(KeyedWeb({"https://a.example.org/": b"page a", "https://b.example.org/": f"page {KEY}".encode()}))
    return WEBS[-1]


def resolve(host: str, port: int) -> list[str]:
    """Every name of these tests is on this machine."""
    return ["127.0.0.1"]


def refuse() -> None:
    raise LookupError(f"process {os.getpid()} has no memory")
