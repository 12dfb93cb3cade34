"""Protected paths of git that may stay although a call made or changed them, because their content runs nothing.

Git makes such files by itself: settings that are all known to be harmless, the sample hooks that it ships, `.git` files
that point to a repository in the same tree (which is judged as well), and the state of a stopped rebase that runs no
program when it continues.

Of that state, `git rebase --continue` runs the `exec` lines of the list of steps, the program `git-merge-<strategy>`,
and `git apply` with the options of an am. The grammar is that of git's sequencer.c and builtin/am.c. A step that is not
known here is refused.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable
from functools import lru_cache

from . import walker
from .facts import Seen, facts_of
from .git_settings import (
    MAX_BYTES,
    STRATEGIES,
    UNREADABLE,
    NotRead,
    harmless_part,
    in_words,
    is_inside,
    objection,
    parse,
)
from .protected import GIT_ODD, GIT_PARTS, GIT_POINTER, GIT_STATES, folded, reason_of
from .walker import Root

POINTER = b"gitdir: "
POINTER_BYTES = 4096
SAMPLE_BYTES = 64 * 1024
SETTINGS = (GIT_PARTS["config"], GIT_PARTS["config.worktree"])
_TEMPLATES = ("/usr/share/git-core/templates", "/usr/local/share/git-core/templates")
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


def objection_to(root: Root, path: str, seen: Seen, name: str) -> str:
    """The reason, in a few words, why a path may not stay; "" if it may stay.

    The file is read once, and must still be the one that was seen. `name` (one of `JUDGED`) protects it.
    """
    if stat.S_ISDIR(seen.mode) and (name in STATES or (name == GIT_PARTS["hooks"] and _is_hooks(path))):
        return ""  # the files in it are judged one by one
    if name == GIT_ODD:
        return "" if stat.S_ISREG(seen.mode) or stat.S_ISDIR(seen.mode) else reason_of(name)
    part = folded(os.path.basename(path))
    if name in STATES and part not in STATE and part not in GIT_STATES and stat.S_ISREG(seen.mode):
        return ""  # git takes no command and no program from it
    raw = content(root, path, seen, MAX_STATE_BYTES if name in STATES else MAX_BYTES)
    if raw is None:
        return f"{reason_of(name)}, and it is no plain file"
    return _JUDGES[name](root, path, raw)


def settings_objection(root: Root, path: str, raw: bytes) -> str:
    """The reason why these git settings are not harmless; "" if they are."""
    try:
        return objection(parse(raw), inside=_work_tree_rule(root, path))
    except NotRead as problem:
        return f"{UNREADABLE}: {problem}"


def harmless_settings(root: Root, path: str, seen: Seen) -> tuple[bytes, str] | None:
    """The harmless part of git settings, and a text about the other part. None if the file cannot be split."""
    raw = content(root, path, seen) if is_settings(seen) else None
    return None if raw is None else harmless_of(root, path, raw)


def is_settings(seen: Seen) -> bool:
    """Whether the path is protected as git settings only."""
    return {name for name in seen.names if name is not None} <= set(SETTINGS)


def harmless_of(root: Root, path: str, raw: bytes) -> tuple[bytes, str] | None:
    """`harmless_settings` for content that is to be at this path."""
    try:
        rest, keys = harmless_part(raw, inside=_work_tree_rule(root, path))
    except NotRead:
        return None
    return rest, in_words(keys) if keys else ""


def _state_objection(root: Root, path: str, raw: bytes) -> str:
    part = folded(os.path.basename(path))
    if part in STATE and STATE[part](raw):
        return ""
    return reason_of(next(iter(STATES)))


def _pointer_objection(root: Root, path: str, raw: bytes) -> str:
    """Judge a `.git` file: git writes "gitdir: " and a path, which must lie in the same tree."""
    to = _plain_path(raw.removeprefix(POINTER)) if raw.startswith(POINTER) else ""
    if not to:
        return reason_of(GIT_POINTER)
    return "" if _inside(root, path)(to) else f"{reason_of(GIT_POINTER)}, which is outside of the workspace"


def _common_objection(root: Root, path: str, raw: bytes) -> str:
    """Judge a `commondir` file: it belongs to a linked work tree and must name the repository of that work tree."""
    worktrees, _, _name = os.path.dirname(path).rpartition("/")
    common, _, kind = worktrees.rpartition("/")
    to = _plain_path(raw)
    whole = os.path.normpath(os.path.join(root.path, os.path.dirname(path), to or "."))
    if kind == "worktrees" and whole == os.path.normpath(os.path.join(root.path, common)) and _inside(root, path)(to):
        return ""
    return reason_of(GIT_PARTS["commondir"])


def path_in(raw: bytes) -> str:
    """The path in a `.git` or `commondir` file as git reads it: up to a NUL, without the line end."""
    return os.fsdecode(raw.partition(b"\0")[0].rstrip(b"\r\n"))


def _plain_path(raw: bytes) -> str:
    """`path_in`, or "" if programs may read another path than git. Git writes no leading or trailing blank."""
    text = path_in(raw)
    return "" if b"\0" in raw or text != text.strip() or not text.isprintable() else text


def _work_tree_rule(root: Root, path: str) -> Callable[[str], bool]:
    """The rule for `core.worktree`: only a submodule may have it, as git writes it, in the same tree. In any other
    repository, it would redirect the hooks and files that a person chose."""
    return _inside(root, path) if f"/{path}".rpartition("/")[0].count("/modules/") else lambda value: False


def _inside(root: Root, path: str) -> Callable[[str], bool]:
    return is_inside(os.path.join(root.path, os.path.dirname(path)), root.path)


def _sample_objection(root: Root, path: str, raw: bytes) -> str:
    """Judge a sample hook: it must be as git ships it, because a person makes it a hook by renaming it."""
    above, _, name = path.rpartition("/")
    if _is_hooks(above) and name.endswith(".sample") and raw in _shipped(name, root.path):
        return ""
    return reason_of(GIT_PARTS["hooks"])


def _is_hooks(path: str) -> bool:
    return folded(os.path.basename(path)) == "hooks"


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


STATES = frozenset(GIT_STATES.values())
_JUDGES = {
    GIT_POINTER: _pointer_objection,
    GIT_PARTS["commondir"]: _common_objection,
    GIT_PARTS["hooks"]: _sample_objection,
    **dict.fromkeys(SETTINGS, settings_objection),
    **dict.fromkeys(STATES, _state_objection),
}


JUDGED = frozenset([*_JUDGES, GIT_ODD])
"""The protected names whose files may stay, depending on their content."""


def content(root: Root, path: str, seen: Seen, most: int = MAX_BYTES) -> bytes | None:
    """The content of the file, if it is still the one that was seen and has at most `most` bytes; else None."""
    if not stat.S_ISREG(seen.mode) or seen.size > most:
        return None
    try:
        held = root.open(path, walker.ENTRY)
    except OSError:
        return None
    try:
        info = os.fstat(held)
        if facts_of(info) != (seen.device, seen.inode, seen.mode, seen.size, seen.changed_ns) or info.st_nlink != 1:
            return None
        return walker.content(held, most + 1)
    except OSError:
        return None
    finally:
        os.close(held)


@lru_cache(maxsize=64)
def _shipped(name: str, outside: str) -> tuple[bytes, ...]:
    """The samples of this name that git ships on this machine. Files in the tree `outside` do not count."""
    program = shutil.which("git")
    own = (
        (f"{os.path.dirname(os.path.dirname(os.path.realpath(program)))}/share/git-core/templates",) if program else ()
    )
    samples: list[bytes] = []
    for directory in dict.fromkeys((*_TEMPLATES, *own)):
        path = os.path.realpath(f"{directory}/hooks/{name}")
        if "/" in name or path.startswith(outside.rstrip("/") + "/"):
            continue
        try:
            with open(path, "rb") as file:
                samples.append(file.read(SAMPLE_BYTES))
        except OSError:
            continue  # no sample of that name is there
    return tuple(samples)
