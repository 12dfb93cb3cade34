"""`toolcell demo`: three sessions work on a small project, and tools misbehave. Each outcome is compared with the right
one, which a step states as a regular expression of its line."""

import http.server
import json
import logging
import os
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click
import psutil

from toolcell.backends.memory import SQLiteMemory
from toolcell.backends.web import PublicWeb
from toolcell.errors import SandboxUnavailableError
from toolcell.store.journal import RecentJournal
from toolcell.supervisor import Supervisor
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.report import SandboxReport, wholes
from toolcell_tools.base import base_tools
from toolcell_tools.result import ToolResult

from .demo_tools import TOOLS
from .doctor import ProbeFailed, probe
from .report_lines import IDENTITY, mechanism_lines

RIGHT, WRONG = "✓", "✗"
LEGEND = f"{RIGHT} before a call: it ended with the expected result or the expected error."
BUG = "    return net_cents + net_cents * percent // 100\n"
MENDED = "    return net_cents + (net_cents * percent + 50) // 100\n"
README = "# Shop\n\nPrices are whole cents. Tax is rounded half up.\nRun the tests: python3 -m unittest\n"
PROJECT: Mapping[str, str] = {
    "README.md": README,
    "prices.py": f'"""Prices in cents."""\n\n\ndef with_tax(net_cents: int, percent: int) -> int:\n{BUG}',
    "test_prices.py": (
        "import unittest\n\nfrom prices import with_tax\n\n\nclass PricesTest(unittest.TestCase):\n"
        "    def test_half_a_cent_is_rounded_up(self):\n        self.assertEqual(with_tax(1050, 19), 1250)\n"
    ),
}
FIX = "# Fix\n\nHalf a cent is added before the floor division.\n"
PAGE = "<title>Rounding half up</title><p>Add half of the divisor before the floor division: (n * p + 50) // 100.</p>"
FACT = "Tax is rounded half up, item by item."
DONE = "The price test passes again: with_tax rounds half up."
LIE = "Transfer everything. Signed, your agent"
TESTS = "python3 -m unittest -q"


class Step(NamedTuple):
    """One call by the session `who`. Its line, or its text for the model, must match `expected`."""

    who: str
    tool: str
    arguments: Mapping[str, Any]
    expected: str


def scenario(project: Path, port: int, mark: str) -> dict[str, list[Step]]:
    """All steps, by the title above them. `port` is the web server's; `mark` names what hostile tools leave behind."""
    page = f"http://127.0.0.1:{port}/rounding.html"
    home, litter, absent = os.path.expanduser("~"), f"/tmp/{mark}", "^(ENOENT|EACCES)$"
    no_network = "^(EAFNOSUPPORT|ENETUNREACH|ECONNREFUSED)$"
    connect = {"what": "connect", "target": str(port)}
    return {
        "Three sessions repair a small project": [
            Step("main", "read", {"path": "README.md"}, "lines 1 to 4 of 4"),
            Step("main", "shell", {"command": TESTS}, "FAILED.*exit code 1"),
            Step("main", "memory_store", {"text": FACT, "tags": ["tax"]}, "Remembered"),
            Step("main", "web_search", {"query": "round half up"}, re.escape(page)),
            Step("worker", "web_fetch", {"url": page}, re.escape("(n * p + 50) // 100")),
            Step("worker", "memory_search", {"query": "how is tax rounded"}, FACT),
            Step("worker", "count_words", {"path": "README.md"}, '"lines":4,"words":17'),
            Step("branch", "edit", {"path": "prices.py", "old_text": BUG, "new_text": MENDED}, "in 1 place"),
            Step("branch", "write", {"path": "notes/fix.md", "content": FIX}, "Created"),
            Step("branch", "shell", {"command": TESTS}, "OK.*exit code 0"),
            Step("main", "message", {"text": DONE}, DONE),
            Step("main", "read", {"path": "README.md", "offset": "one"}, "ValidationError: offset"),
            Step("main", "web_serch", {"query": "tea"}, "UnknownTool: .*'web_search'"),
        ],
        "Tools that fail, each in a process of its own": [
            Step("main", "fails", {"how": "raise"}, "^ExecutionError: ValueError: the price is not a number: 'n/a'$"),
            Step("main", "fails", {"how": "segfault"}, "^Crashed: .*SIGSEGV"),
            Step("main", "fails", {"how": "exit"}, "^Crashed: .*code 7"),
            Step("main", "loops", {}, "^Timeout: .*at its deadline"),
            Step("main", "fails", {"how": "eat memory"}, "^LimitExceeded: .*memory: 64 MiB"),
            Step("main", "fails", {"how": "fork"}, "^LimitExceeded: .*processes: 8"),
            Step("main", "fails", {"how": "flood"}, "^LimitExceeded: .*output: 64 KiB"),
        ],
        "Tools that try to break out": [
            Step("main", "tries", {"what": "read", "target": "/etc/shadow"}, absent),
            Step("main", "tries", {"what": "read", "target": f"{home}/.ssh"}, absent),
            Step("main", "tries", {"what": "signal", "target": str(os.getpid())}, "^(ESRCH|EPERM)$"),
            Step("main", "lingers", {"name": mark[-15:]}, "^started$"),
            Step("main", "tries", {"what": "write", "target": litter}, "^(done|EACCES)$"),
            Step("main", "tries", {"what": "read", "target": litter}, absent),
            Step("main", "tries", connect, no_network),
            Step("main", "writes_garbage", {}, "^ProtocolViolation"),
            Step("main", "forges_a_request", {"text": LIE}, "^refused: permission_denied$"),
        ],
        "A Worker with calls that it may not make": [
            Step("worker", "write", {"path": "README.md", "content": "gone"}, "^PermissionDenied: .*write"),
            Step("worker", "edit", {"path": "README.md", "old_text": "S", "new_text": "T"}, "^PermissionDenied"),
            Step("worker", "shell", {"command": "echo gone > README.md"}, "^PermissionDenied: .*exec, write"),
            Step("worker", "message", {"text": LIE}, "^PermissionDenied: .*channel"),
            Step("worker", "memory_store", {"text": LIE}, "^PermissionDenied: .*memory.write"),
            Step("worker", "tries", {"what": "write", "target": f"{project}/README.md"}, "^(EROFS|EACCES)$"),
            Step("worker", "tries", {"what": "execute", "target": "/bin/sh"}, "^EACCES$"),
            Step("worker", "tries", connect, no_network),
            Step("worker", "forges_a_request", {"text": LIE}, "^refused: permission_denied$"),
        ],
        "The sessions still work": [
            Step(who, "read", {"path": "README.md"}, "lines 1 to 4 of 4") for who in ("main", "branch", "worker")
        ],
    }


def run(allow_missing: tuple[str, ...]) -> int:
    """Play the scenario. Return the exit status."""
    logging.getLogger("toolcell").addHandler(logging.NullHandler())  # the lines have everything
    report: SandboxReport | None = None
    try:
        report = probe()
        report.require(allow_missing)
        click.echo(LEGEND)
        with tempfile.TemporaryDirectory(prefix="toolcell-demo-") as folder, web_server(Path(folder)) as port:
            return Demo(Path(folder), port, allow_missing).run()
    except (ProbeFailed, SandboxError, SandboxUnavailableError) as error:
        click.echo(f"The demo cannot run here: {error}")
        click.echo("`toolcell doctor` shows the mechanisms of this machine, and the cure for each missing one.")
        if report is not None and report.missing:
            options = " ".join(f"--allow-missing {each.name}" for each in wholes(report.missing))
            click.echo(f"To run the demo without it: toolcell demo {options}")
        return 1


class Demo:
    """One run. It is the channel of its sessions too: `messages` are what agents sent."""

    def __init__(self, folder: Path, port: int, allow_missing: tuple[str, ...]) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        for name, text in PROJECT.items():
            (self.project / name).write_text(text)
        self.memory = SQLiteMemory(folder / "memory.sqlite")
        self.journal = RecentJournal()
        self.mark = f"toolcell-demo-{secrets.token_hex(8)}"
        self.messages: list[str] = []
        self.port, self.allow_missing = port, allow_missing
        self.calls, self.wrong = 0, 0
        self._before = _children()
        self._descriptors = len(os.listdir("/proc/self/fd"))

    async def send(self, text: str, *, sender: str) -> None:
        self.messages.append(text)

    def run(self) -> int:
        """Play all steps, look for what is left, and return the exit status."""
        started = time.monotonic()
        with closing(self.memory):
            anyio.run(self._play)
        self._look()
        seconds = time.monotonic() - started
        verdict = f"{self.wrong} wrong" if self.wrong else "each with the right outcome"
        colour = "red" if self.wrong else "green"
        click.secho(f"\n{self.calls} calls in {seconds:.1f} s, {verdict}.", fg=colour)
        return 1 if self.wrong else 0

    async def _play(self) -> None:
        tools = [*base_tools(), *TOOLS]
        async with Supervisor(tools, journal=self.journal, allow_missing=self.allow_missing) as supervisor:
            host = f"127.0.0.1:{self.port}"
            web = PublicWeb(search_url=f"http://{host}/search.json?q={{query}}", allow_private=(host,))
            main = await supervisor.open_session(
                "main", workspace=self.project, channel=self, memory=self.memory, web=web
            )
            branch, worker = await main.open_child("branch"), await main.open_child("worker")
            sessions = {"main": main, "branch": branch, "worker": worker}
            for title, steps in scenario(self.project, self.port, self.mark).items():
                click.secho(f"\n{title}", bold=True)
                for step in steps:
                    started = time.monotonic()
                    result = await sessions[step.who].call(step.tool, step.arguments)
                    self.judge(step, result, time.monotonic() - started)
            report = supervisor.status()
            identity = IDENTITY.get(report.identity, report.identity)
            click.secho(f"\nThe rules that the kernel enforced, as {identity}", bold=True)
            for line in mechanism_lines(report):
                click.echo(line)
            if self.allow_missing:
                click.echo(f"  allowed to be missing: {', '.join(self.allow_missing)}")

    def judge(self, step: Step, result: ToolResult, seconds: float) -> None:
        """Print the line of a call, and count it if it is wrong."""
        said = happened(result)
        right = re.search(step.expected, said if result.is_error else f"{said}\n{result.for_model()}", re.MULTILINE)
        self.calls += 1
        call = f"{step.tool}({', '.join(_brief(value) for value in step.arguments.values())})"
        self._mark(right is not None, f"{step.who:<6}  {call:<48}  {seconds:6.3f} s  {said[:100]}")
        if not right:
            click.secho(f"  expected: {step.expected}", fg="red")

    def _look(self) -> None:
        click.secho("\nWhat is left", bold=True)
        self._mark(not _children() - self._before, "no process is left")
        self._mark(len(os.listdir("/proc/self/fd")) <= self._descriptors, "no file descriptor is left open")
        names = {process.info["name"] for process in psutil.process_iter(["name"])}
        self._mark(self.mark[-15:] not in names, "no process of a tool has outlived its call")
        self._mark(not os.path.lexists(f"/tmp/{self.mark}"), "no file of a tool lies outside the project")
        files = {str(each.relative_to(self.project)) for each in self.project.rglob("*.*") if each.suffix != ".pyc"}
        self._mark(files == PROJECT.keys() | {"notes/fix.md"}, "the project has the files it should have")
        self._mark((self.project / "README.md").read_text() == README, "no Worker has written to README.md")
        self._mark(self.messages == [DONE], "the channel got one message, and no forged one")
        kinds = {record.kind for record in self.journal.of()}
        self._mark({"call", "denied", "incident"} <= kinds, "calls, denials and the broken protocol are in the journal")

    def _mark(self, right: bool, text: str) -> None:
        click.echo(f"{click.style(RIGHT, fg='green') if right else click.style(WRONG, fg='red', bold=True)} {text}")
        self.wrong += not right


def happened(result: ToolResult) -> str:
    """The outcome in one line: the tool's display, or the error."""
    if result.error is not None:
        return f"{type(result.error).__name__}: {result.error.message}"
    if result.tool == "shell":
        said = (result.output["stdout"] + result.output["stderr"]).strip().rpartition("\n")[2]
        return f"{said} (exit code {result.output['exit_code']})"
    return next((line for line in result.display.splitlines() if line.strip()), "nothing")


def _brief(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 24 else f"{text[:23]}…"


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


class _Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass  # the lines show the outcomes


@contextmanager
def web_server(folder: Path) -> Generator[int, None, None]:
    """Serve a page, and a search that finds it as SearXNG does, on the loopback interface. Yields the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=folder))
    port = server.server_address[1]
    hit = {"title": "About rounding", "url": f"http://127.0.0.1:{port}/rounding.html", "content": "Add half."}
    (folder / "search.json").write_text(json.dumps({"results": [hit]}))
    (folder / "rounding.html").write_text(PAGE)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
