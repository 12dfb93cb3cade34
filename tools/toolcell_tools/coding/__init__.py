"""The coding tools: find and change files of a project. One file each; each uses only handles."""

from typing import Any

from toolcell_tools.definition import Tool

__all__ = ["coding_tools"]


def coding_tools() -> tuple[Tool[..., Any], ...]:
    """list, glob, grep and apply_patch. The first three need READ only, so a Worker has them."""
    from .apply_patch import apply_patch
    from .glob import glob
    from .grep import grep
    from .list import list_directory

    return (list_directory, glob, grep, apply_patch)
