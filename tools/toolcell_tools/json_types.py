"""The types whose values a result hands over as they are: JSON's own, and lists and dicts of them."""

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

__all__ = ["Json", "JsonDict", "JsonList"]


class JsonList(Protocol):
    """A list, of JSON: `list[int]` too, though it is no `list[Json]`. A tuple is none, for it arrives as a list."""

    def __iter__(self) -> Iterator["Json"]: ...
    def copy(self) -> list[Any]: ...


class JsonDict(Protocol):
    """A dict, of JSON by text."""

    def __getitem__(self, key: str, /) -> "Json": ...
    def copy(self) -> dict[Any, Any]: ...


Json: TypeAlias = str | int | float | JsonList | JsonDict | None
