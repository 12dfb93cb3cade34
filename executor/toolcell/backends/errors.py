"""What a backend raises. `str(error)` says what happened and what to do, and may be shown to a model as it is."""

__all__ = ["BackendError", "NotConfigured", "Refused", "Unreachable"]


class BackendError(Exception):
    """A backend could not do what it was asked. The message holds no stack, no path and no internal address."""


class Refused(BackendError):
    """The request is not acceptable. The same request will be refused again."""


class NotConfigured(BackendError):
    """The operation needs a setting or a component that the backend was not given."""


class Unreachable(BackendError):
    """The other side did not answer in time, or its answer cannot be used. The same request may work later."""
