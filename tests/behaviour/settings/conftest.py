"""The same three places for a toolcell.toml as those of the loader's own tests."""

from tests.config.conftest import places

__all__ = ["places"]
