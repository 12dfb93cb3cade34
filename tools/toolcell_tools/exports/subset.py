"""The JSON Schema subset of an enforced dialect, as data. Each dialect names its source."""

import re
from dataclasses import dataclass

__all__ = ["NULL_IS_ABSENT", "Subset"]

NULL_IS_ABSENT = "x-null-is-absent"
"""The keyword that lists an object's properties whose `null` means "left out". It never leaves this package."""

_NOT_PORTABLE = re.compile(r"\(\?[=!<>a-zA-Z]|\\[1-9bBkpP]|[*+?}]\+")


@dataclass(frozen=True, slots=True)
class Subset:
    """The JSON Schema subset that a dialect enforces. `keywords` are the constraints that it keeps unchanged."""

    keywords: frozenset[str]
    formats: frozenset[str] = frozenset()
    enum_types: frozenset[str] = frozenset({"string", "integer", "number", "boolean", "null"})
    empty_text: bool = True  # "" may be one of an enum's values
    const: bool = False
    default: bool = False
    references: bool = True
    recursion: bool = True
    required_recursion: bool = True
    untyped: bool = False  # schemas without type, arrays without items and objects without properties are allowed
    closed: bool = False  # every object has additionalProperties: false
    all_required: bool = False
    additional: bool = False  # additionalProperties is kept
    tuples: bool = False
    one_type: bool = False  # no list of types
    empty_objects: bool = True
    most_min_items: int | None = None

    def portable(self, pattern: str) -> bool:
        """Whether all engines read the pattern alike: it has no look-around, back-reference, `\\b` or flags."""
        return not _NOT_PORTABLE.search(pattern)
