"""How much memory a value takes, in bytes."""

import sys
from collections.abc import Mapping
from typing import Any


def memory_of(value: object) -> int:
    """The memory of JSON data with all nested values, in bytes. A shared value counts at each occurrence."""
    values: list[Any] = [value]
    total = 0
    while values:
        each = values.pop()
        total += sys.getsizeof(each)
        if isinstance(each, Mapping):
            values.extend(each)  # pyright: ignore[reportUnknownArgumentType]
            values.extend(each.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(each, (list, tuple)):
            values.extend(each)  # pyright: ignore[reportUnknownArgumentType]
    return total
