"""What a backend raises. `str(error)` says what happened and what to do, and may be shown to a model as it is."""

__all__ = ["BackendError", "NotConfigured", "Refused", "Unreachable"]


class BackendError(Exception):
    """A backend could not do what it was asked. The message holds no stack, no path and no internal address."""


class Refused(BackendError):
    """The request itself is not acceptable: the same request will be refused again."""


class NotConfigured(BackendError):
    """The operation needs a setting or a component that whoever made the backend did not give."""


class Unreachable(BackendError):
    """The other side did not answer in time, or not in a way that can be used: the same request may work later."""
