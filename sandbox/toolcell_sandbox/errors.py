"""The one error of this package."""

import os


class SandboxError(Exception):
    """A step of entering the sandbox, or its probe, failed. No code ran unconfined.

    `step` names the step, `mechanism` the kernel mechanism (may be empty), `errno` is the kernel's error (0 if none),
    and `cure` the remedy. The message is "what happened: value. what to do."
    """

    def __init__(self, what: str, *, step: str, mechanism: str = "", errno: int = 0, cure: str = "") -> None:
        self.what = what if not errno else f"{what}: {os.strerror(errno)} (errno {errno})"
        self.step = step
        self.mechanism = mechanism
        self.errno = errno
        self.cure = cure
        super().__init__(f"{self.what}. {cure}" if cure else f"{self.what}.")
