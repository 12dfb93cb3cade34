"""Types whose values a result passes on unchanged: those of JSON, and lists and dicts of them."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

__all__ = ["Json", "JsonDict", "JsonList"]


class JsonList(Protocol):
    """A list of JSON values, also `list[int]`, which is no `list[Json]`. A tuple does not match: it becomes a list."""

    def __iter__(self) -> Iterator["Json"]: ...
    def copy(self) -> list[Any]: ...


class JsonDict(Protocol):
    """A dict with str keys and JSON values."""

    def __getitem__(self, key: str, /) -> "Json": ...
    def copy(self) -> dict[Any, Any]: ...


Json: TypeAlias = str | int | float | JsonList | JsonDict | None
