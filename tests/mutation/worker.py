"""A throwaway copy of the checkout with an environment of its own, in which one mutant at a time is tested.

A cell's zygote is `python -I`, which reads no PYTHONPATH: only an environment's own .pth file leads it to the copy.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .mutants import Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ("executor", "sandbox", "tools")
LEFT_BEHIND = (".git", "__pycache__", ".mutation", ".mypy_cache", ".ruff_cache", ".venv", "build", "dist", "docs")
TEST_S = 60
"""A test that has not ended by then waits for what the mutant took away. The suite's own bound is 120 s."""
LIMIT_S = 900
"""What runs longer than this hangs."""
ATTEMPTS = 3
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc", "--", "sh", "-ec")
WRITABLE = "/tmp /var/tmp /srv /run /mnt /opt"
WALLS = (
    f'for place in {WRITABLE}; do mount --bind "$place" "$place"; done; mount -o remount,bind,ro /; cd "$0"; '
    '"$@"; exit $?'  # the shell stays, and reaps what is left
)
"""Of root's tests, around what a mutant may do: none of it is code that a mutant is of."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::[^\[\s]+(?:\[.*?\])?)?)(?: - |$)", re.MULTILINE)
"""A test that failed, or a file whose tests could not even be collected."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of tests ended: "passed", "failed", "timeout", or "broken" where pytest itself could not work."""

    word: str
    seconds: float
    failed: str = ""
    output: str = ""


class Worker:
    """One copy. `try_out` puts a mutant in, runs tests and takes it out again."""

    def __init__(self, place: Path) -> None:
        self.tree = place / "checkout"
        self.python = place / "env" / "bin" / "python"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*LEFT_BEHIND), symlinks=True)
        environment = place / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
        own = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
        inherited = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = [*(str(self.tree / source) for source in SOURCES), *inherited]
        Path(own, "checkout.pth").write_text("".join(f"{line}\n" for line in lines))
        self._clock = int(time.time())
        self._process: subprocess.Popen[bytes] | None = None

    def leads_here(self) -> bool:
        """Whether an isolated interpreter of this environment finds the copy's packages, and not the checkout's."""
        code = (
            "import toolcell as r, toolcell_sandbox as s, toolcell_tools as t; print(*(m.__file__ for m in (r, s, t)))"
        )
        done = subprocess.run([self.python, "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/")
        return all(path.startswith(f"{self.tree}/") for path in done.stdout.split())

    def stop(self) -> None:
        """End the tests that run now, from another thread."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def put(self, module: str, text: bytes) -> None:
        """Write a module, with a time of its own: bytecode is taken for a source's by its size and its second."""
        path = self.tree / module
        self._clock += 1
        path.write_bytes(text)
        os.utime(path, (self._clock, self._clock))

    def tested(self, mutant: Mutant, text: bytes, tests: Sequence[str]) -> Outcome:
        """Run `tests` on the mutant. A failure counts when the test that failed fails again, and not without it; a test
        of which that is not so is left out. A mutant that ends the test run itself (it pulls the root away from under
        it, say) is noticed where the same tests pass without it.
        """
        for _ in range(ATTEMPTS):
            outcome = self._on(mutant, text, tests)
            if outcome.word == "broken" and self.run(tests, LIMIT_S).word == "passed":
                return Outcome("failed", outcome.seconds, "the end of the test run itself", outcome.output)
            if outcome.word != "failed" or "::" not in outcome.failed:
                return outcome
            alone = [outcome.failed]
            if self._on(mutant, text, alone).word != "passed" and self.run(alone, LIMIT_S).word == "passed":
                return outcome
            tests = [*tests, f"--deselect={outcome.failed}"]
        return Outcome("broken", outcome.seconds, outcome.failed, outcome.output)

    def _on(self, mutant: Mutant, text: bytes, tests: Sequence[str]) -> Outcome:
        self.put(mutant.module, mutant.applied(text))
        try:
            return self.run(tests, LIMIT_S)
        finally:
            self.put(mutant.module, text)

    def run(self, tests: Sequence[str], limit_s: float) -> Outcome:
        """Run tests until one fails."""
        command = [str(self.python), "-m", "pytest", "-n", "0", "-x", "-q", "--no-header", "--tb=line", "-rfE"]
        command += ["-p", "tests.mutation.one_loop", f"--timeout={TEST_S}", *tests]
        if os.geteuid() == 0:
            command = [*APART, WALLS, str(self.tree), *command]
        began = time.monotonic()
        self._process = process = subprocess.Popen(
            command,
            cwd=self.tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            raw, _ = process.communicate(timeout=limit_s)
            output = raw.decode(errors="replace")
            word = "passed" if process.returncode == 0 else "failed" if FAILED.search(output) else "broken"
        except subprocess.TimeoutExpired:
            output, word = "", "timeout"
        finally:
            end_group(process)
        failed = FAILED.search(output)
        return Outcome(word, time.monotonic() - began, failed.group(1) if failed else "", output[-3_000:])


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End what the tests have started, the runner itself first: what it supervises ends with it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended, and so has all that was in its group
    process.communicate()
