"""The state directory, which makes a supervisor durable: its place, its lock, its version and its key."""

from toolcell.store.state.directory import StateDirectory

__all__ = ["StateDirectory"]
