"""Read a docstring's description and its text on each parameter, in Google, NumPy or Sphinx style."""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from .signature import underlying

__all__ = ["Documented", "documented"]

_SECTION = re.compile(r"^[ \t]*(:\w[^:\n]*:|\w[\w ]*:[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE)
_QUIET: Any = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}


class Documented(NamedTuple):
    """Summary and body in one text, and a description for each parameter that has one."""

    description: str
    parameters: dict[str, str]


def documented(fn: Callable[..., object]) -> Documented:
    """The parsed docstring of `fn`; empty if there is none."""
    text = inspect.getdoc(underlying(fn)) or ""
    if not _SECTION.search(text):
        return Documented(text.strip(), {})  # without sections there is no need to import griffe, which takes 50 ms
    from griffe import Docstring

    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in Docstring(text).parse("auto", per_style_options=_QUIET):
        kind, value = section.kind.value, section.value
        if kind == "text":
            prose.append(value)
        elif kind == "admonition":
            prose.append(f"{section.title or value.annotation}: {value.description}")
        elif kind in {"parameters", "other parameters"}:
            parameters |= {one.name: " ".join(one.description.split()) for one in value if one.description}
    return Documented("\n\n".join(prose).strip(), parameters)
