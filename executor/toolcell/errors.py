"""What toolcell raises at its user. What a tool, a model or a sandbox does is never raised: it is a `ToolError`
value.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolcell_sandbox.refusal import refuse_with
from toolcell_tools.failures import ToolcellError, UsageError

__all__ = ["ArgumentError", "ConfigError", "ConfigProblem", "SandboxUnavailableError", "ToolcellError", "UsageError"]


class ArgumentError(UsageError, ValueError):
    """An object of the API cannot be made of these arguments. A Profile, Limits and a network policy raise it too."""


refuse_with(ArgumentError)


class SandboxUnavailableError(ToolcellError):
    """The supervisor cannot start: a mechanism of the sandbox is missing here. `mechanism` names it, `cure` mends
    it.
    """

    def __init__(self, message: str, mechanism: str = "", cure: str = "") -> None:
        super().__init__(message)
        self.mechanism = mechanism
        self.cure = cure


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in the settings: where it is, and what to do. `key` is empty where the file itself is wrong."""

    source: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place} {self.message}"


class ConfigError(ToolcellError):
    """The settings of a toolcell.toml are wrong. The message has a line for each of `problems`."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
