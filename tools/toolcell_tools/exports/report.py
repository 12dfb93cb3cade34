"""The differences between each tool and its export: places where the export says less, more or something else."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Action", "Difference", "Inexpressible", "Report", "Unexportable"]

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
