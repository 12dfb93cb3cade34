"""Tools in the dialects of model providers: the names of `toolcell_tools.exports`."""

from toolcell_tools import exports
from toolcell_tools.exports import *  # noqa: F403

__all__: list[str] = []
__all__ += exports.__all__
