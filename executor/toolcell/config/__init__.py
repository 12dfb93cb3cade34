"""Settings from `toolcell.toml`: layers of files, checked one by one, into a profile for each kind of session."""

from .load import Config, load_config

__all__ = ["Config", "load_config"]
