"""Play the scenario with one supervisor and three sessions, and compare each step with the right outcome."""

import logging
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio
import click

from toolcell.cli.doctor import ProbeFailed, probe
from toolcell.cli.mechanisms import IDENTITY, lines
from toolcell.errors import SandboxUnavailableError
from toolcell.supervisor import Supervisor
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.report import SandboxReport, wholes
from toolcell_tools.base import base_tools
from toolcell_tools.capability import SessionKind

from . import leftovers
from .expect import happened
from .scenario import Step, scenario
from .stage import DemoStage, stage
from .tools import TOOLS
from .view import LEGEND, DemoView, Row, view


def run(allow_missing: tuple[str, ...]) -> int:
    """Play the scenario and show it. Return the exit status."""
    logging.getLogger("toolcell").addHandler(logging.NullHandler())  # the table has everything
    report: SandboxReport | None = None
    with view() as shown:
        try:
            report = probe()
            report.require(allow_missing)
            shown.say(LEGEND)
            return _play(shown, allow_missing)
        except (ProbeFailed, SandboxError, SandboxUnavailableError) as error:
            shown.say(f"The demo cannot run here: {error}")
            shown.say("`toolcell doctor` shows the mechanisms of this machine, and the cure for each missing one.")
            if report is not None and report.missing:
                options = " ".join(f"--allow-missing {each.name}" for each in wholes(report.missing))
                shown.say(f"To run the demo without it: toolcell demo {options}")
            return 1


def _play(shown: DemoView, allow_missing: tuple[str, ...]) -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="toolcell-demo-") as folder, stage(Path(folder)) as around:
        before = leftovers.Before.now()
        play = Play(around, shown, before, allow_missing)
        anyio.run(play.run)
        shown.title("What is left")
        play.look(leftovers.afterwards(before, around))
        return play.verdict(time.monotonic() - started)


class Play:
    """One run of the scenario. `wrong` has a line for each wrong outcome."""

    def __init__(
        self, around: DemoStage, shown: DemoView, before: leftovers.Before, allow_missing: tuple[str, ...]
    ) -> None:
        self._stage = around
        self._view = shown
        self._before = before
        self._allow_missing = allow_missing
        self._calls = 0
        self.wrong: list[str] = []

    async def run(self) -> None:
        """Run all steps, from the supervisor's start to its end."""
        tools = [*base_tools(), *TOOLS]
        journal = self._stage.journal
        async with Supervisor(tools, journal=journal, allow_missing=self._allow_missing) as supervisor:
            await self.open_sessions(supervisor)
            for act in scenario(self._stage):
                self._view.title(act.title)
                for step in act.steps:
                    await self.perform(step)
            self._report(supervisor.status())
            self._view.title("While it runs")
            self.look(leftovers.while_running(self._before))

    async def open_sessions(self, supervisor: Supervisor) -> None:
        """Open a Main session, and below it a Branch and a Worker."""
        main = await supervisor.open_session(
            SessionKind.MAIN,
            workspace=self._stage.project,
            channel=self._stage.inbox,
            memory=self._stage.memory,
            web=self._stage.web(),
        )
        branch = await main.open_child(SessionKind.BRANCH)
        worker = await main.open_child(SessionKind.WORKER)
        self._stage.sessions.update(main=main, branch=branch, worker=worker)

    async def perform(self, step: Step) -> None:
        """Make the step's call, show its outcome, and note what was wrong."""
        call = call_text(step.tool, step.arguments)
        self._view.begins(step.who, call)
        started = time.monotonic()
        result = await self._stage.sessions[step.who].call(step.tool, step.arguments)
        seconds = time.monotonic() - started
        self._calls += 1
        failed = [one.words for one in step.expected if not one.holds(result, self._stage)]
        row = Row(step.who, call, happened(result), seconds, "; ".join(failed))
        self._view.ended(row)
        if failed:
            self.wrong.append(f"{step.who} {call}: {row.happened}. Expected: {row.expected}.")

    def _report(self, report: SandboxReport) -> None:
        self._view.title(f"The rules that the kernel enforced, as {IDENTITY.get(report.identity, report.identity)}")
        for line in lines(report):
            self._view.say(line)
        if self._allow_missing:
            self._view.say(f"  allowed to be missing: {', '.join(self._allow_missing)}")

    def look(self, findings: Iterable[leftovers.Leftover]) -> None:
        """Show findings, and count those that are wrong."""
        for finding in findings:
            self._view.checked(finding.what, finding.wrong)
            if finding.wrong:
                self.wrong.append(f"{finding.what}: {finding.wrong}")

    def verdict(self, seconds: float) -> int:
        """Print the verdict. Return the exit status."""
        if not self.wrong:
            self._view.say(
                click.style(f"\n{self._calls} calls in {seconds:.1f} s, each with the right outcome.", fg="green")
            )
            return 0
        self._view.say(click.style(f"\n{len(self.wrong)} wrong, of {self._calls} calls in {seconds:.1f} s:", fg="red"))
        for line in self.wrong:
            self._view.say(f"  {line}")
        return 1


def call_text(tool: str, arguments: Mapping[str, Any]) -> str:
    """The call in short: the tool and the values of its arguments."""
    limit = max(12, 32 // max(1, len(arguments)))
    values = ", ".join(_brief(value, limit) for value in arguments.values())
    return f"{tool}({values})"


def _brief(value: object, limit: int) -> str:
    text = " ".join(str(value).split()) if isinstance(value, str) else repr(value)
    if len(text) <= limit:
        return text
    return f"…{text[1 - limit :]}" if text.startswith(("/", "http")) else f"{text[: limit - 1]}…"
