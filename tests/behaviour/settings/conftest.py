"""The three places of a toolcell.toml, as in the loader's own tests."""

from tests.config.conftest import places

__all__ = ["places"]
