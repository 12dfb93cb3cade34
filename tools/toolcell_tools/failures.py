"""The exceptions of the vocabulary: raised by tools, by handles, and for mistakes of the program."""

from .capability import Capability

__all__ = [
    "MissingCapability",
    "ProtectedName",
    "RequestDenied",
    "ToolDefinitionError",
    "ToolFailure",
    "ToolcellError",
    "Unencodable",
    "UsageError",
]


class ToolcellError(Exception):
    """The root of everything that toolcell raises."""


class UsageError(ToolcellError):
    """The program is wrong, not the world: a closed session, a child of a Worker, an argument that nobody can mean."""


class ToolFailure(Exception):
    """Raised by a tool to end its call with an ExecutionError of this message and this JSON-able `data`.

    The model sees both, so say what is wrong and what to do instead. Handles raise it too, for a path outside the
    workspace or a file that is not there.
    """

    def __init__(self, message: str, data: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def __reduce__(self) -> tuple[type["ToolFailure"], tuple[str, object]]:
        return type(self), (self.message, self.data)


class MissingCapability(Exception):
    """Raised by a handle, or by `require`, that this call was not granted; it becomes PermissionDenied."""

    def __init__(self, capability: Capability) -> None:
        super().__init__(
            f"this call was not granted {capability.value!r}. Add needs={{Capability.{capability.name}}} to the tool "
            "and call it in a session that grants it."
        )
        self.capability = capability

    def __reduce__(self) -> tuple[type["MissingCapability"], tuple[Capability]]:
        return type(self), (self.capability,)


class ProtectedName(Exception):
    """The write handle refuses a path under a protected name; it becomes PermissionDenied.

    `name` is the protected name, by which the host can lift it.
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
    """Raised by the HTTP handle for a request that the profile's rules do not allow, or that no tool may make; it
    becomes PermissionDenied. Nothing was sent, unless the message speaks of a redirect.
    """


class ToolDefinitionError(UsageError, ValueError):
    """A tool cannot be made as written; the message names the tool, the part that is wrong and how to mend it."""


class Unencodable(ValueError):
    """A tool returned something that is not JSON data; the message begins with the JSON path of the offender."""
