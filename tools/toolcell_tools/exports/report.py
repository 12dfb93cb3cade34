"""The differences between each tool and its export: places where the export says less, more or something else, and the
words that stand in a description for a constraint that the exported schema cannot express."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

__all__ = ["Action", "Difference", "Inexpressible", "Report", "Unexportable", "described", "in_words"]

Action = Literal["dropped", "widened", "narrowed", "rewritten", "moved", "renamed", "fallback", "refused", "passed"]


class Inexpressible(Exception):
    """The dialect's enforced mode cannot express something. The tool is then exported in the lenient mode."""

    def __init__(self, pointer: str, keyword: str, detail: str) -> None:
        super().__init__(f"{pointer or '/'}: {keyword}: {detail}")
        self.pointer, self.keyword, self.detail = pointer, keyword, detail


class Unexportable(Exception):
    """No dialect can take the schema. The tool is left out of the export, and the report says so."""

    def __init__(self, pointer: str, keyword: str, detail: str) -> None:
        super().__init__(f"{pointer or '/'}: {keyword}: {detail}")
        self.pointer, self.keyword, self.detail = pointer, keyword, detail


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between a tool and its export.

    `pointer` is the JSON Pointer (RFC 6901) of the place in the parameters schema, with definitions below `/$defs`. It
    is empty for the whole tool. Places in the output schema are below `/outputSchema`. `loosens`: the exported schema
    may accept arguments here that the original rejects. `tightens`: it may reject arguments that the original accepts.
    """

    tool: str
    pointer: str
    keyword: str
    action: Action
    detail: str
    loosens: bool = False
    tightens: bool = False

    def __str__(self) -> str:
        effects = [word for word, on in (("looser", self.loosens), ("tighter", self.tightens)) if on]
        effect = f" [{', '.join(effects)}]" if effects else ""
        return f"{self.tool}{self.pointer}: {self.keyword} {self.action}: {self.detail}{effect}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of an export, tool by tool. `str(report)` has a line for each."""

    findings: tuple[Difference, ...] = ()

    def of(self, tool: str) -> tuple[Difference, ...]:
        """The findings about one tool, by its original name."""
        return tuple(one for one in self.findings if one.tool == tool)

    def loosens(self, tool: str) -> bool:
        """Whether the tool's exported schema may accept arguments that the original rejects."""
        return any(one.loosens for one in self.of(tool))

    def tightens(self, tool: str) -> bool:
        """Whether the tool's exported schema may reject arguments that the original accepts."""
        return any(one.tightens for one in self.of(tool))

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


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
