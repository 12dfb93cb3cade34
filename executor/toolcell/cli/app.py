"""The commands and their options. The code of a command is imported when it runs, so --help is fast."""

import os
import sys
from typing import Any

import click

from toolcell_sandbox.report import NAMES


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="toolcell", message="%(prog)s %(version)s")
def toolcell() -> None:
    """Run the tool calls of LLM agents, each in a sandboxed process of its own.

    `toolcell doctor` checks this machine. `toolcell demo` shows the sandbox at work.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise click.UsageError("The current directory does not exist any more. Change to another one first.") from None


@toolcell.command(short_help="Report problems of this machine, and the rights of cells.")
@click.option("-v", "--verbose", is_flag=True, help="Print every mechanism, promise and profile in full.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, for programs and bug reports.")
@click.option(
    "--profile",
    type=click.Choice(["main", "branch", "worker"]),
    help="Explain the profile of this kind of session, in full.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="A further toolcell.toml, which overrides the user's and the one in this directory.",
)
def doctor(verbose: bool, as_json: bool, profile: str | None, config: str | None) -> None:
    """Check what this machine offers for a sandbox, and what cells may do in it.

    Tries each kernel mechanism in a separate process, and names the cure for each missing one. Counts the promises
    that two layers keep here. Says what the profiles of the settings allow. Problems come first. --verbose prints the
    details. Changes nothing.

    Exit status: 0 if everything required is there, 1 if something is missing, 2 if the probe failed or the settings are
    wrong.
    """
    from .doctor import run

    sys.exit(run(as_json=as_json, kind=profile, file=config, verbose=verbose))


@toolcell.command(short_help="Run three sessions, with tools that misbehave.")
@click.option(
    "--allow-missing",
    type=click.Choice(NAMES),
    metavar="MECHANISM",
    multiple=True,
    help="A mechanism of `toolcell doctor` that may be missing here. Repeat the option for several. The demo then "
    "shows what the mechanism would have prevented.",
)
def demo(allow_missing: tuple[str, ...]) -> None:
    """Run three agent sessions on a small project, with tools that misbehave.

    Starts one supervisor and a Main, a Branch and a Worker session on a project in a temporary folder. They use all
    nine base tools; then tools crash, hang, flood, fork, lie and try to break out. Each row of the table is compared
    with the one right outcome.

    Needs no network: its web is a server on the loopback interface. Takes some seconds, leaves nothing behind.

    Exit status: 0 if every outcome was the right one, 1 if not.
    """
    from .demo import run

    sys.exit(run(allow_missing))


@toolcell.command(short_help="List the tools of a session, those of MCP servers included.")
@click.option(
    "--kind",
    type=click.Choice(["main", "branch", "worker"]),
    default="main",
    show_default=True,
    help="The kind of session.",
)
@click.option("--config", metavar="FILE", help="A further toolcell.toml, which overrides the user's.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON, for programs.")
def tools(kind: str, config: str | None, as_json: bool) -> None:
    """List the tools that a session in this directory has: the base tools, and those of the MCP servers in the
    settings. Starts each server in a cell, and ends it again.

    Exit status: 0 for success, 1 if a server failed or has a tool that cannot be offered, 2 for wrong settings.
    """
    from .tools import run

    sys.exit(run(kind=kind, file=config, as_json=as_json))


def _state_of_group(context: click.Context, _option: click.Parameter, state: str | None) -> str | None:
    """The option of the command, or the one that its group was given: `toolcell audit --state DIRECTORY list`."""
    outer = context.parent
    return state if state is not None or outer is None else outer.params.get("state")


_state = click.option(
    "--state",
    metavar="DIRECTORY",
    callback=_state_of_group,
    help="The state directory. Default: `state` in the user's toolcell.toml.",
)


@toolcell.group(short_help="Read the journal of a durable supervisor.")
@_state
def audit(state: str | None) -> None:
    """Read the journal of Supervisor(state=DIRECTORY), even while it is written.

    Exit status: 0 for success, 1 if the journal is damaged, 2 for wrong use.
    """


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
_kind = click.option("--kind", metavar="KIND", help="Only records of this kind, such as call, intent or egress.")
_session = click.option("--session", metavar="ID", help="Only records of this session.")


@audit.command("list", short_help="Print the last records.")
@_state
@_kind
@_session
@click.option("--last", default=50, show_default=True, type=click.IntRange(1), help="The most records to print.")
@_json
def audit_list(state: str | None, kind: str | None, session: str | None, last: int, as_json: bool) -> None:
    """Print the last records, one in a line, the oldest first."""
    from . import audit as it

    sys.exit(it.guarded(lambda: it.show_list(state, kind=kind, session=session, last=last, as_json=as_json)))


@audit.command("show", short_help="Print what happened in a call.")
@click.argument("call")
@_state
@_json
def audit_show(call: str, state: str | None, as_json: bool) -> None:
    """Print what happened in the call with the id CALL, from its request to its end."""
    from . import audit as it

    sys.exit(it.guarded(lambda: it.show_call(state, call, as_json=as_json)))


@audit.command("follow", short_help="Print records as they are written.")
@_state
@_kind
@_session
@_json
def audit_follow(state: str | None, kind: str | None, session: str | None, as_json: bool) -> None:
    """Print each new record until Ctrl-C."""
    from . import audit as it

    sys.exit(it.guarded(lambda: it.follow(state, kind=kind, session=session, as_json=as_json)))


@audit.command("verify", short_help="Check that no record was changed.")
@_state
@click.option("--head", metavar="HEAD", help="A head that an earlier verify has printed, from a copy elsewhere.")
def audit_verify(state: str | None, head: str | None) -> None:
    """Check the digests of all records, and print the journal's head.

    Without --head, missing records at the end are not detected.
    """
    from . import audit as it

    sys.exit(it.guarded(lambda: it.verify(state, head)))


@audit.command("export", short_help="Print every record as JSON.")
@_state
def audit_export(state: str | None) -> None:
    """Print every record as one JSON object a line."""
    from . import audit as it

    sys.exit(it.guarded(lambda: it.export(state)))


@toolcell.command(short_help="Show what a running supervisor does, and what is wrong.")
@_state
@_json
def status(state: str | None, as_json: bool) -> None:
    """Show what Supervisor(state=DIRECTORY) does now: sessions, cells, calls, errors, and what is wrong.

    The supervisor writes it once a second.

    Exit status: 0 if it runs and nothing is wrong, 1 otherwise, 2 for wrong use.
    """
    from .status import run

    sys.exit(run(state, as_json=as_json))


@toolcell.group(short_help="List and answer requests for approval.")
@_state
def approvals(state: str | None) -> None:
    """List and answer the requests for approval of Supervisor(state=DIRECTORY), also while it runs.

    A request can be answered until it expires, even if its supervisor has ended: the answer waits for the same call.

    Exit status: 0 for success, 2 for wrong use.
    """


_request = click.argument("request")


@approvals.command("list", short_help="Print pending requests and standing approvals.")
@_state
@click.option("--all", "everything", is_flag=True, help="Print answered, used, withdrawn and expired requests too.")
@_json
def approvals_list(state: str | None, everything: bool, as_json: bool) -> None:
    """Print the requests that wait for an answer, one in a line, the oldest first, and the standing approvals."""
    from . import approvals as it

    sys.exit(it.guarded(lambda: it.show_list(state, everything=everything, as_json=as_json)))


@approvals.command("show", short_help="Print one request in full.")
@_request
@_state
@_json
def approvals_show(request: str, state: str | None, as_json: bool) -> None:
    """Print the request with the id REQUEST: who asks, the arguments, the preview, and the answer."""
    from . import approvals as it

    sys.exit(it.guarded(lambda: it.show(state, request, as_json=as_json)))


@approvals.command("approve", short_help="Approve a request.")
@_request
@_state
@click.option("--arguments", metavar="JSON", help="Run the call with these arguments instead.")
@click.option("--payload", metavar="JSON", help="Data for a tool that has asked for a confirmation.")
@click.option("--for-session", is_flag=True, help="Approve all later calls of the tool in this session too.")
@click.option(
    "--matching",
    multiple=True,
    metavar="NAME=GLOB",
    help="Approve later calls of the tool by this agent too, if the argument NAME matches. May be repeated.",
)
@click.option(
    "--hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="How long --for-session or --matching holds.",
)
def approvals_approve(
    request: str,
    state: str | None,
    arguments: str | None,
    payload: str | None,
    for_session: bool,
    matching: tuple[str, ...],
    hours: float,
) -> None:
    """Approve the request with the id REQUEST, or the only one whose id begins so."""
    from . import approvals as it

    sys.exit(
        it.guarded(
            lambda: it.approve(
                state,
                request,
                arguments=arguments,
                payload=payload,
                for_session=for_session,
                matching=matching,
                for_s=hours * 3600,
            )
        )
    )


@approvals.command("deny", short_help="Deny a request.")
@_request
@_state
@click.option("-m", "--message", default="", help="What the model is told.")
def approvals_deny(request: str, state: str | None, message: str) -> None:
    """Deny the request with the id REQUEST."""
    from . import approvals as it

    sys.exit(it.guarded(lambda: it.deny(state, request, message)))


@approvals.command("withdraw", short_help="End a request without an answer.")
@_request
@_state
def approvals_withdraw(request: str, state: str | None) -> None:
    """Withdraw the request with the id REQUEST, or an answer that no call has used."""
    from . import approvals as it

    sys.exit(it.guarded(lambda: it.withdraw(state, request)))


@approvals.command("revoke", short_help="End a standing approval.")
@click.argument("approval")
@_state
def approvals_revoke(approval: str, state: str | None) -> None:
    """End the standing approval with the id APPROVAL."""
    from . import approvals as it

    sys.exit(it.guarded(lambda: it.revoke(state, approval)))


@toolcell.command(short_help="Offer tools to MCP clients.")
@click.argument("tools", nargs=-1, metavar="[TOOLS]...")
@click.option("--stdio", "transport", flag_value="stdio", help="Serve one client, which starts this command itself.")
@click.option("--http", "transport", flag_value="http", help="Serve clients over HTTP, at the path /mcp.")
@click.option(
    "--base-tools", "base", is_flag=True, help="Offer the base tools too: read, write, edit, shell and others."
)
@click.option("--workspace", default=".", show_default=True, metavar="DIRECTORY", help="The workspace of each session. "
              "{principal} in it stands for the client's name in the tokens.")  # fmt: skip
@click.option("--kind", type=click.Choice(["main", "branch", "worker"]), default="main", show_default=True,
              help="The kind of the sessions. A worker reads only.")  # fmt: skip
@click.option("--profile", type=click.Choice(["main", "branch", "worker"]),
              help="The profile of this kind in the settings, instead of the profile of --kind.")  # fmt: skip
@click.option("--config", metavar="FILE", help="A further toolcell.toml, which overrides the user's and the one here.")
@click.option("--state", metavar="DIRECTORY", help="Keep the journal and requests for approval in this directory.")
@click.option("--approve-by-elicitation", is_flag=True,
              help="Ask the client itself for approval of its calls. Without it, they are denied, or wait for "
              "`toolcell approvals` if there is a state directory.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address for --http. Any other than loopback "
              "needs tokens.")  # fmt: skip
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port for --http. 0: any."
)
@click.option("--tokens", metavar="FILE", help="A file with `name token` on each line: the clients of --http.")
@click.option("--tokens-env", metavar="NAME", help="An environment variable with the same text.")
@click.option("--allow-host", "hosts", multiple=True, metavar="HOST", help="A name of this server, such as "
              "mcp.example.org. May be repeated.")  # fmt: skip
@click.option("--allow-origin", "origins", multiple=True, metavar="ORIGIN", help="An origin of web pages that may make "
              "requests, such as https://app.example.org. May be repeated.")  # fmt: skip
@click.option("--prompts", metavar="MODULE:OBJECT", help="An object with prompts, see toolcell.mcp.Prompts.")
@click.option("--resources", metavar="MODULE:OBJECT", help="An object with resources, see toolcell.mcp.Resources.")
@click.option(
    "--completions", metavar="MODULE:OBJECT", help="An object with completions, see toolcell.mcp.Completions."
)
@click.option("--name", default="toolcell", show_default=True, help="The name that clients see.")
def serve(transport: str | None, **options: Any) -> None:
    """Offer TOOLS to clients of the Model Context Protocol. Each call runs in a sandboxed process.

    TOOLS are MODULE:OBJECT, a tool, a function, a toolset or a list of them; the module is imported here. MODULE alone
    offers every tool of a module that is imported in the sandbox only.

    \b
    toolcell serve --stdio my_tools:TOOLS
    toolcell serve --http --base-tools --kind worker --workspace ./project
    toolcell serve --http my_tools --tokens tokens.txt --workspace 'work/{principal}'

    Needs pip install 'toolcell[mcp]'. Exit status: 0 at the end, 2 for wrong use.
    """
    if transport is None:
        raise click.UsageError("Say how to serve: --stdio or --http.")
    from .serve import ServeOptions, run

    sys.exit(run(ServeOptions(over_http=transport == "http", **options)))
