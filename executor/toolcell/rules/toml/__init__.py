"""Settings from `toolcell.toml`: layers of files, checked one by one, into a profile for each kind of session.

A program that loads no file does not import `load`, whose models take milliseconds.
"""

from toolcell.rules.toml.config import Config

__all__ = ["Config"]
