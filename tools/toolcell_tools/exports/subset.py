"""What an enforced dialect can say, as data. Each dialect names its source."""

import re
from dataclasses import dataclass

__all__ = ["NULL_IS_ABSENT", "Subset"]

NULL_IS_ABSENT = "x-null-is-absent"
"""Marks, in schemas that never leave this package, the properties of an object whose `null` means "left out"."""

_NOT_PORTABLE = re.compile(r"\(\?[=!<>a-zA-Z]|\\[1-9bBkpP]|[*+?}]\+")


@dataclass(frozen=True, slots=True)
class Subset:
    """The JSON Schema that a dialect enforces. `keywords` are the constraints it keeps as they are."""

    keywords: frozenset[str]
    formats: frozenset[str] = frozenset()
    enum_types: frozenset[str] = frozenset({"string", "integer", "number", "boolean", "null"})
    const: bool = False
    default: bool = False
    references: bool = True
    recursion: bool = True
    required_recursion: bool = True
    untyped: bool = False  # a schema may have no type, an array no items, an object no properties
    closed: bool = False  # every object has additionalProperties: false
    all_required: bool = False
    additional: bool = False  # additionalProperties is kept
    tuples: bool = False
    one_type: bool = False  # no list of types
    empty_objects: bool = True
    most_min_items: int | None = None

    def portable(self, pattern: str) -> bool:
        """Whether every engine reads the regular expression alike: no look-around, back-reference, `\\b`, flags."""
        return not _NOT_PORTABLE.search(pattern)
