"""Describe constraints in words, for the description of a property whose schema cannot express them."""

import json
from collections.abc import Sequence
from typing import Any, cast

__all__ = ["described", "in_words"]

MAX_CHARS = 200  # of one phrase; a longer phrase is not worth its tokens
_PHRASES = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches the regular expression {}",
    "format": "format: {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minContains": "at least {} of the kind it must contain",
    "maxContains": "at most {} of the kind it must contain",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
    "default": "default: {}",
    "const": "always {}",
}


def in_words(keyword: str, value: Any) -> str | None:
    """A phrase for a constraint, or None if there is no short one."""
    if keyword == "uniqueItems":
        return "no item twice" if value else None
    if keyword in ("deprecated", "readOnly", "writeOnly"):
        return "deprecated" if keyword == "deprecated" and value else None
    if keyword == "examples" and isinstance(value, list):
        return _short("e.g. " + ", ".join(_json(one) for one in cast("list[object]", value)[:3]))
    if keyword == "enum":
        return _short("one of " + ", ".join(map(_json, cast("list[object]", value))))
    if keyword == "dependentRequired":
        return _short("; ".join(f"{name} needs {' and '.join(others)}" for name, others in value.items()))
    if keyword in ("anyOf", "oneOf") and all(set(one) == {"required"} for one in value):
        how_many = "at least one" if keyword == "anyOf" else "exactly one"
        return _short(f"give {how_many} of: " + " | ".join(" and ".join(one["required"]) for one in value))
    if keyword == "additionalProperties":
        return None if value is False else _short(f"other keys are allowed: {_json(value)}")
    if value == 1 and keyword in ("minLength", "minItems"):
        return "not empty"
    if keyword in _PHRASES:
        plain = value if keyword in ("pattern", "format") else _json(value)
        return _short(_PHRASES[keyword].format(plain))
    return _short(f"must also satisfy {_json({keyword: value})}")


def described(description: object, phrases: Sequence[str]) -> str | None:
    """A description with the phrases after it, or None if there is neither."""
    said = description.strip() if isinstance(description, str) else ""
    unique = list(dict.fromkeys(phrases))
    if not unique:
        return said or None
    added = "; ".join(unique)
    return f"{said} ({added})" if said else added[:1].upper() + added[1:]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _short(phrase: str) -> str | None:
    return phrase if len(phrase) <= MAX_CHARS else None
