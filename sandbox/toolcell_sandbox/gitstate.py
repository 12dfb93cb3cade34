"""The state of a stopped git operation: a rebase, a cherry-pick, a revert or an am.

`git rebase --continue` runs the `exec` lines of the list of steps, the program `git-merge-<strategy>`, and `git apply`
with the options of an am. States that git writes by itself run no other program and are accepted. The grammar is that
of git's sequencer.c and builtin/am.c. A step that is not known here is refused.
"""

import re
from collections.abc import Callable

from .gitconfig import STRATEGIES, NotRead, parse

MAX_STATE_BYTES = 16 * 1024 * 1024  # a list of a hundred thousand steps

_STEP = re.compile(
    rb"[ \t]*(?:(?:pick|p|revert|edit|e|reword|r|fixup|f|squash|s|break|b|label|l|reset|t|merge|m|update-ref|u|noop"
    rb"|drop|d)(?:[ \t\r\0]|\Z)|[^A-Za-z0-9 \t]|\Z)"
)
"""A step that runs no program, an empty line, or a comment: no step begins with such a core.commentChar."""

_APPLY = re.compile(
    rb"(?: *'(?:--(?:whitespace|directory|exclude|include)=[^'\\]*|--ignore-space-change|--ignore-whitespace|--reject"
    rb"|-[Cp][0-9]+)')*\s*"
)
_OPTIONS = frozenset(
    f"options.{name}"
    for name in (
        *("no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "signoff", "mainline"),
        *("keep-redundant-commits", "record-origin", "allow-ff", "gpg-sign", "strategy-option", "allow-rerere-auto"),
        "default-msg-cleanup",
    )
)


def _steps(raw: bytes) -> bool:
    return all(_STEP.match(line) for line in raw.split(b"\n"))


def _strategy(raw: bytes) -> bool:
    return raw.rstrip(b"\r\n").decode(errors="replace") in {"", *STRATEGIES}


def _apply_options(raw: bytes) -> bool:
    return _APPLY.fullmatch(raw) is not None


def _options(raw: bytes) -> bool:
    try:
        entries = parse(raw)
    except NotRead:
        return False
    return all(
        entry.value in STRATEGIES if entry.key == "options.strategy" else entry.key in _OPTIONS for entry in entries
    )


STATE: dict[str, Callable[[bytes], bool]] = {
    "git-rebase-todo": _steps,
    "strategy": _strategy,
    "apply-opt": _apply_options,
    "opts": _options,
}
"""The files of a state from which git takes commands or programs, with a check that their content runs nothing."""
