"""The exceptions that tools and handles raise, and those for mistakes in the program."""

from .capability import Capability

__all__ = [
    "MissingCapability",
    "NoTimeLeft",
    "ProtectedName",
    "RequestDenied",
    "ToolDefinitionError",
    "ToolFailure",
    "ToolcellError",
    "Unencodable",
    "UsageError",
]


class ToolcellError(Exception):
    """The base class of every exception that toolcell raises."""


class UsageError(ToolcellError):
    """The calling program made a mistake: a closed session, a child of a Worker, an argument without meaning."""


class ToolFailure(Exception):
    """Raised by a tool to end its call with an ExecutionError with this message and this `data`, a JSON value.

    The model sees both, so say what is wrong and what to do instead. Handles raise it too: for a path outside the
    workspace, or a missing file.
    """

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[type["ToolFailure"], tuple[str, object]]:
        return type(self), (self.message, self.data)


class NoTimeLeft(ToolFailure):
    """Raised by a tool to end its call before the deadline, because it cannot end in time. It becomes a Timeout, and a
    kept process is kept."""


class MissingCapability(Exception):
    """Raised by a handle or by `require` if the call was not granted the capability. It becomes PermissionDenied."""

    def __init__(self, capability: Capability) -> None:
        super().__init__(
            f"this call was not granted {capability.value!r}. Add needs={{Capability.{capability.name}}} to the tool "
            "and call it in a session that grants it."
        )
        self.capability = capability

    def __reduce__(self) -> tuple[type["MissingCapability"], tuple[Capability]]:
        return type(self), (self.capability,)


class ProtectedName(Exception):
    """Raised by the write handle for a path under a protected name. It becomes PermissionDenied.

    `name` is the protected name; the host can remove it from the profile's protected names.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(
            f"{path!r} is protected by the name {name!r}: such files are run later, outside of the sandbox, so no call "
            f"may make or change them. Do without it, or ask a person to make the change."
        )
        self.path = path
        self.name = name

    def __reduce__(self) -> tuple[type["ProtectedName"], tuple[str, str]]:
        return type(self), (self.path, self.name)


class RequestDenied(Exception):
    """Raised by the HTTP handle for a request that the profile's rules, or the rules for all tools, do not allow. It
    becomes PermissionDenied. Nothing was sent, unless the message names a redirect.
    """


class ToolDefinitionError(UsageError, ValueError):
    """A tool cannot be made as written. The message names the tool, the wrong part and the remedy."""


class Unencodable(ValueError):
    """A tool returned something that is not JSON data. The message begins with the offending value's JSON path."""
