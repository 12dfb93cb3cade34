"""The default channel: it writes an agent's messages to the log of the program that runs the agent."""

import logging

from toolcell.backends.errors import NotConfigured
from toolcell_tools.preview import printable

__all__ = ["LogChannel"]

_log = logging.getLogger("toolcell.channel")
_LEVEL = logging.WARNING  # the level that a program without a logging configuration shows on stderr


class LogChannel:
    """Writes each message to the logger `toolcell.channel` at WARNING, which Python shows on stderr by default.

    Raises NotConfigured if no handler takes the message, because then nobody has seen it. `reaches_people` is False: a
    model is told that its message was logged, and not that it was sent.
    """

    reaches_people = False

    async def send(self, text: str, *, sender: str) -> None:
        if not _is_shown():
            raise NotConfigured(
                "Nobody saw the message: no channel is set up in this session, and the log does not show it. "
                "Whoever runs the agent can give the session a channel."
            )
        _log.log(_LEVEL, "%s: %s", printable(sender), printable(text, keep="\n\t").replace("\n", "\n    "))


def _is_shown() -> bool:
    """Whether a handler takes the message: a handler of this logger or of a parent logger, or Python's last resort."""
    if not _log.isEnabledFor(_LEVEL):
        return False
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = _log
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    if not handlers and logging.lastResort is not None:
        handlers = [logging.lastResort]
    return any(each.level <= _LEVEL and not isinstance(each, logging.NullHandler) for each in handlers)
