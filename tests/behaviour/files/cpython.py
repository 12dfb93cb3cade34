"""Run CPython's own tests of file work in a cell: `python tests/behaviour/files/cpython.py [PYTHON [MODULE…]]`.

PYTHON is an interpreter with its package `test`: python.org's and pyenv's have it, Debian's in libpython3.x-testsuite.
Each module runs twice through the tool `shell`, with its files in the workspace and in the scratch directory. Prints a
line for each and exits with their number of failures. It is not part of the suite, because some machines lack the
package.

The profile protects no names. One test is left out: it makes a socket in the file system, which is forbidden in cells.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from toolcell import Limits, Profile, Session, SessionKind, Supervisor, base_tools

MODULES = ("test_mailbox", "test_shutil", "test_tempfile", "test_pathlib")
NOT_FOR_A_CELL = ("test_is_socket_true",)
MIB = 1024 * 1024
LIMITS = Limits(
    wall_s=300.0,
    cpu_s=300.0,
    memory_bytes=1024 * MIB,
    processes=64,
    open_files=256,
    file_bytes=64 * MIB,
    scratch_bytes=256 * MIB,
    output_bytes=8 * MIB,
    result_bytes=8 * MIB,
)


async def failures(session: Session, python: str, module: str, where: str) -> int:
    """Return 1 if the module's tests fail with their files in this directory, or do not run. Print how they ended."""
    run = f"{python} -m test -v {' '.join(f'-i {name!r}' for name in NOT_FOR_A_CELL)} {module}"
    look = "grep -E '^(Ran |OK|FAILED|FAIL:|ERROR:|Fatal|.*No module named)'"
    command = f"mkdir -p {where} && cd {where} && TMPDIR={where} {run} > log 2>&1; code=$?; {look} log; exit $code"
    result = await session.call("shell", {"command": command, "timeout_s": 290})
    said: dict[str, Any] = result.unwrap()
    passed = said["exit_code"] == 0
    print(f"{'ok    ' if passed else 'FAILED'} {module} in {where}: {said['stdout']}", flush=True)
    return 0 if passed else 1


async def main(python: str, modules: tuple[str, ...]) -> int:
    profile = Profile.for_kind("main").replace(limits=LIMITS, protected=())
    readable = (*profile.readable, str(Path(python).resolve().parent.parent))
    profiles = {SessionKind.MAIN: profile.replace(readable=readable)}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        async with Supervisor(tools=base_tools(), profiles=profiles) as supervisor:
            session = await supervisor.open_session("main", workspace=place)
            return sum(
                [
                    await failures(session, python, module, where)
                    for module in modules
                    for where in (f"{place}/work", "/tmp/work")
                ]
            )


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    sys.exit(anyio.run(main, chosen, tuple(sys.argv[2:]) or MODULES))
