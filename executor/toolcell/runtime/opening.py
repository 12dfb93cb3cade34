"""Check the options of a new session: its parts, the place of its workspace, and the names in its profile."""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from toolcell.errors import UsageError
from toolcell.rules import misuse
from toolcell.rules.limits import UsageLimits
from toolcell.rules.profile import Profile
from toolcell.runtime.options import ChildOptions, SessionOptions
from toolcell_sandbox.profile import is_below
from toolcell_tools.capability import SessionKind

CONTEXT_BYTES: Final = 64 * 1024
"""The most bytes in the context summary of a session. Each cell of the session gets it once."""


@dataclass(frozen=True, kw_only=True)
class Opening(ChildOptions):
    """The checked options of a new session. None means the parent's value, or the supervisor's default."""

    kind: SessionKind = field(kw_only=False)
    workspace: str | Path = field()
    agent_id: str = field()
    config: dict[str, Any] = field()
    user_id: str = ""
    invocation_id: str = ""


def opening_of(options: SessionOptions, **given: Any) -> Opening:
    """The opening that the options and the values `given` in their place ask for. Raises UsageError for a wrong one."""
    asked = {**vars(options), **given}
    misuse.check_parts(**{name: asked[name] for name in ("channel", "memory", "web", "http")})
    misuse.check_keys(session_id=options.session_id or None)
    for name in ("agent_id", "user_id", "invocation_id", "context"):
        misuse.check_text(name, asked.get(name, ""))
    if len(asked.get("context", "").encode("utf-8", "surrogatepass")) > CONTEXT_BYTES:
        raise UsageError(f"context has more than {CONTEXT_BYTES:,} bytes. Pass a summary, and put the rest in a file.")
    if options.ttl_s is not None:
        misuse.seconds("ttl_s", options.ttl_s, ", math.inf for no end, or None for the kind's value")
    misuse.check_profile("profile", options.profile)
    limits = options.usage_limits
    if limits is not None and not isinstance(limits, UsageLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"usage_limits is no UsageLimits: {limits!r}. Write UsageLimits(calls=100).")
    asked["kind"] = misuse.session_kind(options.kind)
    asked["config"] = dict(misuse.settings_of(asked["config"]))
    return Opening(**asked)


def workspace_of(path: str | Path) -> Path:
    """The real path of a workspace. It is made if its parent exists. Raises UsageError if it cannot be a workspace."""
    path = misuse.path("workspace", path)
    try:
        root = os.path.realpath(path)
    except FileNotFoundError:
        raise UsageError(
            f"The workspace is relative to a directory that was deleted: {str(path)!r}. Pass an absolute path."
        ) from None
    if not os.path.isdir(root):
        if not os.path.lexists(root) and os.path.isdir(os.path.dirname(root)):
            try:
                os.mkdir(root)
            except OSError as error:  # also if it exists and is not accessible
                raise UsageError(
                    f"The workspace cannot be made: {str(path)!r}: {error.strerror}. Pass one that this user can reach."
                ) from None
        else:
            raise UsageError(
                f"The workspace is not a directory: {str(path)!r}. Pass one that exists, or a new name in one."
            )
    if root in ("/", "/tmp") or f"{root}/".startswith(("/dev/", "/proc/", "/sys/")):
        raise UsageError(f"The workspace cannot be {root!r}: a cell has its own. Pass a directory elsewhere.")
    return _path(root)


_path = lru_cache(maxsize=1024)(Path)  # making a Path takes as long as all system calls about it


def require_apart(record: str, writable: Iterable[str]) -> None:
    """Raise UsageError for a directory through which a cell could change this supervisor's record."""
    for path in writable if record else ():
        if is_below(record, [path]):
            raise UsageError(
                f"{path!r} cannot be writable in a cell: it contains the supervisor's record {record!r}. "
                "Use another directory, or set XDG_RUNTIME_DIR to one outside of it."
            )


def require_texts(workspace: str, profile: Profile) -> None:
    """Raise UsageError for a name that is not UTF-8 (in Python, a str with surrogates): it cannot be sent to a cell."""
    paths = (*profile.readable, *profile.writable, *profile.system)
    if not "".join((workspace, *paths)).isascii():
        _require_text("The workspace", workspace)
        for path in paths:
            _require_text("A path of the profile", path)
    if profile.env or profile.pass_env or not sys.prefix.isascii():
        for name, value in profile.environment(os.environ).items():
            _require_text(f"The environment variable {name!a} of the profile", name + value)


def _require_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = "" if "variable" in what else f": {text!a}"  # a variable's value may be a secret
        raise UsageError(f"{what} is not UTF-8{shown}. Give it a name that is, or leave it out.") from None
