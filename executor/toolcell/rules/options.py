"""Options: a dataclass states each option of a public method once, and is the method's parameters.

`parameters_of(Options.__init__)` gives a method the signature of the dataclass, for editors, type checkers and `help`.
The method makes the dataclass of what it gets. So an option's name, type, default, check and meaning stand in one
class, and the blocking API, which takes the parameters of the async one in the same way, has the option too.

`PlainOptions` are the options of a supervisor that are plain data. They are keys of [supervisor] in toolcell.toml as
well: `Config` derives from them, as the supervisor's `Options` do, and the model of the table is made of the fields
here. `kind` names the type of such a value. `runtime.settings` has the check of each kind, `rules.toml.schema` its
type in a file.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolcell.rules.limits import Concurrency
from toolcell_sandbox.errors import named
from toolcell_tools.capability import SessionKind

TYPE_CHECKING = False  # type checkers know this name; an import of typing would take milliseconds
if TYPE_CHECKING:
    from typing import Any, Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")
    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["PlainOptions", "option", "parameters_of", "show_parameters"]


def parameters_of(
    method: "Callable[Concatenate[Any, P], object]",
) -> "Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]":
    """A decorator: a method has the parameters of another one. Others are refused, with a similar name."""
    return lambda function: named(show_parameters(function, method))


def show_parameters(function: "F", method: "Callable[..., object]") -> "F":
    """Give the function the signature of the method, and its own annotation of what it returns if it has one."""
    shown = inspect.signature(method)
    shown = shown.replace(return_annotation=function.__annotations__.get("return", shown.return_annotation))
    function.__doc__ = function.__doc__ or method.__doc__
    setattr(function, "__signature__", shown)  # noqa: B010 - type checkers know no such attribute
    return function


def option(default: "Any", kind: str, cure: str = "", *, least: int = 1) -> "Any":
    """A field of PlainOptions. `cure` ends the error of a wrong number; `least` is the least number."""
    return field(default=default, metadata={"kind": kind, "cure": cure, "least": least})


@dataclass(frozen=True, kw_only=True)
class PlainOptions:
    """The options of a supervisor that a toolcell.toml may set too.

    - `allow_missing` names mechanisms of the sandbox that may be missing here; every result then names them.
    - `max_cells` bounds the cells at any time (default: by the machine); `standby` is how many call processes wait
      ready in each, 0 or 1.
    - `approval_timeout_s` is how long a call waits for the answer to a request for approval, in seconds.
    - `model_bytes` is the size of the longest output that a model gets in full. A longer output is also written to a
      file, an artifact that `for_model` names.
    - `state` is the directory that makes the supervisor durable: its journal survives a kill. One supervisor at a time
      writes there, and no session may see it. Without it, nothing is kept after the end.
    - `journal_bytes` bounds the journal's log: its oldest records are removed (default: everything is kept).
    - `quarantine` is the directory to which files with protected names are moved, at most 256 MiB and for 30 days
      (default: `toolcell/quarantine` in the user's cache directory, on a disk).
    - `concurrency` bounds how many calls of a tool, or of a session kind, run at the same time.
    - `session_ttl_s` has the seconds after which sessions of a kind expire (default: "branch" 1,800, "worker" 300,
      "main" never; `math.inf` means never).
    - `hook_timeout_s` is the time of an async hook, in seconds.
    """

    allow_missing: Iterable[str] = option(frozenset[str](), "mechanisms")
    max_cells: int | None = option(None, "count", "Leave it out for a default by the machine.")
    standby: int = option(1, "standby")
    approval_timeout_s: float = option(300.0, "finite seconds")
    model_bytes: int = option(100_000, "count", "Leave it out for 100,000.")
    state: str | Path | None = option(None, "path")
    journal_bytes: int | None = option(
        None, "count", "Pass at least 1,048,576, or leave it out to keep everything.", least=1024 * 1024
    )
    quarantine: str | Path | None = option(None, "path")
    concurrency: Concurrency = option(Concurrency(), "concurrency")
    session_ttl_s: Mapping[SessionKind, float] | Mapping[str, float] | None = option(None, "lifetimes")
    hook_timeout_s: float = option(300.0, "seconds")
