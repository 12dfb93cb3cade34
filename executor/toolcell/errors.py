"""What toolcell raises at its user. What a tool, a model or a sandbox does is never raised: it is a `ToolError`
value.
"""


class ToolcellError(Exception):
    """The root of everything that toolcell raises."""


class UsageError(ToolcellError):
    """The call is wrong in the program, not in the world: a closed session, a child of a Worker, a duplicate tool."""


class SandboxUnavailableError(ToolcellError):
    """The supervisor cannot start: a mechanism of the sandbox is missing here. `mechanism` names it, `cure` mends
    it.
    """

    def __init__(self, message: str, mechanism: str = "", cure: str = "") -> None:
        super().__init__(message)
        self.mechanism = mechanism
        self.cure = cure
