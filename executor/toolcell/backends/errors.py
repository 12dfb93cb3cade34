"""The exceptions of backends. `str(error)` says what happened and what to do, and may be shown to a model."""

__all__ = ["BackendError", "NotConfigured", "OutsideRules", "Refused", "Unreachable"]


class BackendError(Exception):
    """A backend could not carry out an operation. The message has no stack trace, no path and no internal address."""


class Refused(BackendError):
    """The request is not acceptable. The same request would be refused again."""


class OutsideRules(Refused):
    """The rules of the session's profile do not allow the request. Nothing was sent."""


class NotConfigured(BackendError):
    """The operation needs a setting or a component that the backend lacks."""


class Unreachable(BackendError):
    """The other side did not answer in time, or sent an unusable answer. The same request may work later."""
