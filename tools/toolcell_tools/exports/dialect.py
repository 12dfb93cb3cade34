"""A provider's dialect as data: its rules for names, the subset of JSON Schema that it enforces, its payloads. Each
dialect names its source. Names are cut only if they must be, and stay unique."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from toolcell_tools.result import ToolResult

from .calls import ModelCall, RawCall, parse_arguments

__all__ = ["Dialect", "NameMap", "NameRule", "Subset", "fit_names"]

_NOT_PORTABLE = re.compile(r"\(\?[=!<>a-zA-Z]|\\[1-9bBkpP]|[*+?}]\+")


@dataclass(frozen=True, slots=True)
class NameRule:
    """A provider's rule for names: the first character, the others, the length. The sets are written as in a regex."""

    first: str
    rest: str
    length: int

    def allows(self, name: str) -> bool:
        """Whether the provider accepts `name` unchanged."""
        pattern = rf"[{self.first}][{self.rest}]{{0,{self.length - 1}}}"
        return re.fullmatch(pattern, name) is not None

    def fitted(self, name: str, digest_chars: int) -> str:
        """`name` with refused characters replaced by `_`, cut, and ended by a digest of the full name."""
        cleaned = re.sub(rf"[^{self.rest}]", "_", name)
        if not re.match(rf"[{self.first}]", cleaned):
            cleaned = f"t_{cleaned}"
        suffix = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:digest_chars]
        return f"{cleaned[: self.length - 1 - digest_chars]}_{suffix}"


@dataclass(frozen=True, slots=True)
class NameMap:
    """Maps each tool's name to its exported name, and back. `forward` is original → exported, one to one."""

    forward: Mapping[str, str]

    def exported(self, original: str) -> str:
        """The name that the provider sees. Raises KeyError for a tool that was not exported."""
        return self.forward[original]

    def original(self, exported: str) -> str:
        """The tool name for a provider's name. An unknown name is returned unchanged."""
        for mine, theirs in self.forward.items():
            if theirs == exported:
                return mine
        return exported

    @property
    def changed(self) -> dict[str, str]:
        """Only the names that differ, original → exported."""
        return {mine: theirs for mine, theirs in self.forward.items() if mine != theirs}


def fit_names(names: Iterable[str], rule: NameRule, taken: Iterable[str] = ()) -> NameMap:
    """A one-to-one map of `names` to names that `rule` allows, none of them in `taken`.

    Names that fit are unchanged. The others end in a digest, which grows until the name is unique.
    """
    wanted, used = list(names), set(taken)
    forward: dict[str, str] = {}
    for name in wanted:
        if rule.allows(name) and name not in used:
            forward[name] = name
            used.add(name)
    for name in wanted:
        if name in forward:
            continue
        fitted = next(one for size in range(8, 57) if (one := rule.fitted(name, size)) not in used)
        forward[name] = fitted
        used.add(fitted)
    return NameMap(MappingProxyType({name: forward[name] for name in wanted}))


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


@dataclass(frozen=True, slots=True)
class Dialect:
    """A provider's properties besides its schema rules. `parse` reads its payloads and `render` writes them."""

    name: str
    providers: frozenset[str]
    names: NameRule
    parse: Callable[[Mapping[str, Any]], RawCall]
    render: Callable[[ModelCall, ToolResult, bool], dict[str, Any]]
    parameters: NameRule | None = None
    description_chars: int | None = None
    outputs: bool = False
    """Whether its tools have an output schema. Otherwise each that is lost is a finding."""

    def parse_call(self, payload: Mapping[str, Any]) -> ModelCall:
        """The call in a payload, with name and arguments as the provider sent them. Raises InvalidCall."""
        raw = self.parse(payload)
        arguments = parse_arguments(raw.arguments, raw.name, raw.call_id)
        return ModelCall(raw.name, arguments, raw.call_id, raw.name, raw.is_text)
