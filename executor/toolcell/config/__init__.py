"""Settings from `toolcell.toml`: layers of files, checked one by one, into a profile for each kind of session.

`load` and what it uses are imported by whoever loads a file: their models take milliseconds.
"""

from .config import Config

__all__ = ["Config"]
