"""`glob`: find files by a pattern of their paths."""

import re
from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.paths import relative
from toolcell_tools.preview import Preview, counted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField
from toolcell_tools.workspace import WorkspaceReader

from .ignore import pattern_of
from .output_schemas import FOUND_PATHS
from .walk import shown, walk

__all__ = ["compiled_glob", "glob"]

MOST = 1_000
_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


def preview_glob(pattern: str, path: str) -> Preview:
    """The pattern, and where it is looked for."""
    return Preview(f"Find {pattern} in {path}")


@tool(
    needs={Capability.READ},
    preview=preview_glob,
    annotations=Annotations(title="Find files", idempotent=True),
    output_schema=FOUND_PATHS,
)
def glob(
    ctx: ToolContext,
    pattern: Annotated[
        str,
        LazyField(
            "A glob. ** stands for any number of directories, {a,b} for alternatives. A pattern without a slash is "
            "looked for at any depth.",
            min_length=1,
            examples=["*.py", "src/**/*.{ts,tsx}"],
        ),
    ],
    path: Annotated[str, LazyField("The directory to search, relative to the workspace.")] = ".",
    ignored: Annotated[bool, LazyField("Find what .gitignore leaves out too.")] = False,
) -> Answer:
    """Find files by a glob pattern, without what .gitignore leaves out. Links are not followed."""
    matches = compiled_glob(pattern, ctx.workspace, path).fullmatch
    paths: list[str] = []
    total = 0
    for directory in walk(ctx.workspace, path, everything=ignored):
        found = [name for name in (*directory.files, *directory.links) if matches(f"{directory.path}{name}")]
        total += len(found)
        paths.extend(shown(f"{directory.path}{name}") for name in found[: MOST - len(paths)])
    output: dict[str, object] = {"paths": sorted(paths)}
    if total > len(paths):
        output["more"] = f"{total - len(paths):,} more files match; narrow the pattern"
    return Answer(output=output, display=f"Found {counted(total, 'file')} for {pattern}")


def compiled_glob(pattern: str, workspace: WorkspaceReader, path: str) -> re.Pattern[str]:
    """The regular expression of a glob below the directory `path`, for paths relative to the workspace. Raises
    ToolFailure."""
    root = workspace.resolve(".")
    start = relative(root, workspace.resolve(path))
    below = "" if start == "." else re.escape(f"{start}/")
    try:
        alternatives = [_expression(each, str(root), below) for each in _without_braces(pattern)]
        return re.compile("|".join(alternatives), re.DOTALL)
    except re.error as error:
        raise ToolFailure(f"{pattern!r} is not a valid pattern: {error}") from error


def _expression(pattern: str, root: str, below: str) -> str:
    """The regular expression of a glob without braces. `below` is an expression for the directory of a relative glob.
    An absolute glob must be below `root`."""
    if pattern.startswith("/"):
        if not f"{pattern}/".startswith(f"{root}/"):
            raise ToolFailure(f"{pattern!r} is outside the workspace; use a pattern relative to the workspace")
        text, below = pattern[len(root) :], ""
    else:
        text = pattern
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolFailure(f"{pattern!r} has '..'; name the directory by `path`, and use a pattern for what is below it")
    if not parts or text.endswith(("/", "/.")):
        raise ToolFailure(f"{pattern!r} is for directories; use one for files, such as {'/'.join([*parts, '**'])!r}")
    return below + pattern_of("/".join(parts if "/" in text else ["**", *parts]))


def _without_braces(pattern: str) -> list[str]:
    """The patterns that the alternatives in braces stand for."""
    patterns = [pattern]
    while len(patterns) <= _ALTERNATIVES:
        opened = next((each for each in patterns if _BRACES.search(each)), None)
        if opened is None:
            return patterns
        patterns.remove(opened)
        found = _BRACES.search(opened)
        assert found is not None
        patterns += [opened[: found.start()] + part + opened[found.end() :] for part in found[1].split(",")]
    raise ToolFailure(f"{pattern!r} has more than {_ALTERNATIVES} alternatives; narrow it")
