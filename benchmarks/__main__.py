"""`python -m benchmarks`: runs the suite, prints the figures and the verdicts, writes JSON and draws plots."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from .plots import draw
from .publish import publish as fill
from .report import Figure

HERE = Path(__file__).parent
PLOTS = HERE / "plots"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-k", "only", metavar="EXPRESSION", help="Only the figures that pytest's -k selects.")
@click.option("--json", "file", type=click.Path(path_type=Path), default=Path("benchmarks.json"), show_default=True)
@click.option("--plots", "directory", type=click.Path(path_type=Path), default=PLOTS, show_default="benchmarks/plots")
@click.option("--rollout-sessions", type=int, help="Agents of the simulated rollout.")
@click.option("--rollout-turns", type=int, help="Turns of each of them.")
@click.pass_context
def main(
    context: click.Context,
    only: str | None,
    file: Path,
    directory: Path,
    rollout_sessions: int | None,
    rollout_turns: int | None,
) -> None:
    """Take every figure, in about seven minutes, and judge it. Close what else runs before.

    Fails where a reply was wrong, never because something was slow. A figure that was taken while something else was at
    work has no verdict.
    """
    if context.invoked_subcommand is not None:
        return
    options = [f"-k={only}"] if only else []
    for name, value in (("sessions", rollout_sessions), ("turns", rollout_turns)):
        options += [f"--rollout-{name}={value}"] if value is not None else []
    code = _measure(file, options)
    _draw(file, directory)
    sys.exit(code)


@main.command()
@click.option("--json", "file", type=click.Path(path_type=Path), default=Path("budget.json"), show_default=True)
def budget(file: Path) -> None:
    """Say where each microsecond of a warm call goes, and each millisecond of a cell's start."""
    sys.exit(_measure(file, ["-k=budget"]))


@main.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--plots", "directory", type=click.Path(path_type=Path), default=PLOTS, show_default="benchmarks/plots")
def plots(file: Path, directory: Path) -> None:
    """Draw the plots of a run that was written to FILE."""
    _draw(file, directory)


@main.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
def publish(file: Path) -> None:
    """Put the verdicts and budgets of a run that was written to FILE into benchmarks/RESULTS.md, and draw its plots."""
    click.echo(f"filled in RESULTS.md: {', '.join(fill(json.loads(file.read_text())))}")
    _draw(file, PLOTS)


def _measure(file: Path, options: list[str]) -> int:
    """Run pytest in a process of its own: pools start workers that import the main module anew."""
    command = [sys.executable, "-m", "pytest", str(HERE), "-q", f"--benchmark-json={file.absolute()}", *options]
    return subprocess.run(command, cwd=HERE.parent, check=False).returncode


def _draw(file: Path, directory: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        click.echo("No plots: matplotlib is not installed. pip install 'toolcell[bench]' has it.")
        return
    taken: dict[str, Any] = json.loads(file.read_text())
    figures = [Figure.from_json(each["extra_info"]["figure"]) for each in taken["benchmarks"]]
    for drawn in draw(figures, directory):
        click.echo(f"drew {drawn}")


if __name__ == "__main__":
    main()
