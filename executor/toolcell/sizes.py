"""How much memory a value takes, in bytes."""

import sys
from collections.abc import Mapping
from typing import Any, cast


def memory_of(value: object) -> int:
    """The memory of JSON data and of all that is in it; what is in it twice counts twice."""
    total, values = 0, [value]
    while values:
        value = values.pop()
        total += sys.getsizeof(value)
        if isinstance(value, Mapping):
            mapping = cast("Mapping[Any, Any]", value)
            values.extend(mapping)
            values.extend(mapping.values())
        elif isinstance(value, (list, tuple)):
            values.extend(cast("list[Any]", value))
    return total
