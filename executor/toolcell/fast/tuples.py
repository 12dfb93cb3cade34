"""Make named tuples faster, for those that each call makes."""

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeVar, cast

from .switches import is_on

T = TypeVar("T")


class Make(Protocol):
    def __call__(self, cls: type[T], values: Iterable[Any], /) -> T: ...


def _plain(cls: type[T], values: Iterable[Any], /) -> T:
    return cls(*values)


made: Final = cast("Make", tuple.__new__) if is_on("tuples") else _plain
"""`made(Cls, (a, b))` is `Cls(a, b)`, without the Python function `__new__` of a named tuple's class."""
