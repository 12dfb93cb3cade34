"""Cells of the sandbox alone, as its own tests make them."""

from tests.sandbox.conftest import any_cell, cell, private_dir

__all__ = ["any_cell", "cell", "private_dir"]
