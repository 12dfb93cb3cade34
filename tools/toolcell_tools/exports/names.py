"""Map tool names to names that a provider accepts, and back. A name is cut only if it must be, and stays unique."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

__all__ = ["NameMap", "NameRule", "fit_names"]


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
