"""The parts of a session that may change: its config and its values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolcell.wire.frames import encoded_bytes
from toolcell.wire.messages import VALUES_BYTES
from toolcell_tools.session_info import SessionInfo


class SessionData:
    """A session's config and values. `info` is the present SessionInfo for toolsets, hooks and policies."""

    __slots__ = ("info",)

    def __init__(self, info: SessionInfo) -> None:
        self.info = info

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config, from the next call on."""
        self.info = replace(self.info, config=config)

    def set_values(self, values: dict[str, Any]) -> None:
        """Replace the values, from the next call on."""
        self.info = replace(self.info, values=values)

    def set_invocation(self, invocation_id: str) -> None:
        """Replace the id of the turn, from the next call on."""
        self.info = replace(self.info, invocation_id=invocation_id)

    def remember(self, values: Mapping[str, Any]) -> bool:
        """Merge what a call has left in `ctx.values`. Returns False, and changes nothing, if that is too large."""
        own = self.info.values
        if encoded_bytes({**own, **values}) > VALUES_BYTES:
            return False
        own.update(values)
        return True
