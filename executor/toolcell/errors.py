"""The exceptions that toolcell raises in the user's program. Failures of a tool, a model or a sandbox are not raised.
They are `ToolError` values.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolcell_sandbox.errors import refuse_with
from toolcell_tools.failures import ToolcellError, UsageError

__all__ = ["ArgumentError", "ConfigError", "ConfigProblem", "SandboxUnavailableError", "ToolcellError", "UsageError"]


class ArgumentError(UsageError, ValueError):
    """An argument of the API is wrong. Profile, Limits and network policies raise it too."""


refuse_with(ArgumentError)


class SandboxUnavailableError(ToolcellError):
    """The supervisor cannot start, because a mechanism of the sandbox is missing here. `mechanism` names the mechanism,
    and `cure` says how to get it.
    """

    def __init__(self, message: str, mechanism: str = "", cure: str = "") -> None:
        super().__init__(message)
        self.mechanism = mechanism
        self.cure = cure


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One mistake in the settings: its place and its remedy. `key` is empty if the file itself is wrong."""

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
