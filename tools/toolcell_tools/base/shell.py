"""`shell`: run a command in the workspace."""

from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.options import Annotations
from toolcell_tools.preview import DETAILS_CHARS, SUMMARY_CHARS, Preview, fitted, printable, shortened, transcript
from toolcell_tools.returned import Answer
from toolcell_tools.shell import shell_program
from toolcell_tools.signature import LazyField

__all__ = ["shell"]

_SHELL = shell_program().replace("/bin/sh", "/bin/sh, which is not bash")


def preview_shell(command: str, cwd: str | None, timeout_s: float | None) -> Preview:
    """The command unchanged, its directory and its timeout."""
    details = [command, "", f"in {cwd or 'the root of the workspace'}"]
    if timeout_s is not None:
        details.append(f"for at most {timeout_s:g} s")
    return Preview(f"Run {fitted(command, SUMMARY_CHARS)}", fitted("\n".join(details), DETAILS_CHARS))


@tool(
    preview=preview_shell,
    needs={Capability.WRITE, Capability.EXEC},
    uses={Capability.NET},
    annotations=Annotations(title="Run a command", destructive=True, open_world=True, sequential=True),
)
def shell(
    ctx: ToolContext,
    command: Annotated[str, LazyField(f"The command, for {_SHELL}.", min_length=1)],
    cwd: Annotated[str | None, LazyField("Where to run it, relative to the workspace.")] = None,
    timeout_s: Annotated[float | None, LazyField("Stop it after so many seconds.", gt=0)] = None,
) -> Answer:
    """Run a shell command in the workspace, without input. Gives its exit code and the start and end of its output.

    Nothing it starts in the background outlives it.
    """
    done = require(ctx.shell, Capability.EXEC).run(command, cwd, timeout_s)
    output: dict[str, object] = {
        "exit_code": done.exit_code,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "timed_out": done.timed_out,
    }
    if done.stdout_omitted_bytes:
        output["stdout_omitted_bytes"] = done.stdout_omitted_bytes
    if done.stderr_omitted_bytes:
        output["stderr_omitted_bytes"] = done.stderr_omitted_bytes
    how = f"timed out after {done.elapsed_s:.1f} s" if done.timed_out else f"exit code {done.exit_code}"
    heading = printable(shortened(f"$ {command}"), keep="\n\t")
    return Answer(output=output, display=transcript(heading, done.stdout, done.stderr, how))
