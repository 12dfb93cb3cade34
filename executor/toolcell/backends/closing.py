"""Stores that a `with` block closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["ClosedByWith"]


class ClosedByWith(ABC):
    """Calls `close` at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Free what the store holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
