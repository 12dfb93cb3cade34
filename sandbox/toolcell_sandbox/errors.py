"""The one error of this package."""

import os


class SandboxError(Exception):
    """A step of entering the sandbox, or a probe of it, did not succeed; nothing ran unconfined.

    `step` names the step, `mechanism` the kernel mechanism (may be empty), `errno` the kernel's answer (0 if none),
    `cure` what to do about it. The message is "what happened: value. what to do."
    """

    def __init__(self, what: str, *, step: str, mechanism: str = "", errno: int = 0, cure: str = "") -> None:
        self.what = what if not errno else f"{what}: {os.strerror(errno)} (errno {errno})"
        self.step = step
        self.mechanism = mechanism
        self.errno = errno
        self.cure = cure
        super().__init__(f"{self.what}. {cure}" if cure else f"{self.what}.")
