"""The default channel: an agent's words go to the log of the program that runs it."""

import logging

__all__ = ["LogChannel"]

_log = logging.getLogger("toolcell.channel")


class LogChannel:
    """Writes each message to the logger `toolcell.channel` at INFO."""

    async def send(self, text: str, *, sender: str) -> None:
        _log.info("%s: %s", sender, text)
