"""What a model must not read: secrets that the supervisor knows, and the text of exceptions where a profile says so."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolcell import (
    BrokeredHttp,
    Credential,
    Profile,
    Session,
    Supervisor,
    ToolContext,
    ToolFailure,
    ToolResult,
    UsageError,
    agent_tool,
    artifacts_text,
    base_tools,
    host_tool,
    preload_memory,
)
from toolcell_tools import Artifact, Capability, TextBlock, ToolDefinitionError, tool

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
TOKEN, KEY, PASSWORD = "tok-54f2c9a1-in-the-environment", "key-of-the-broker-81c4", "p4ssw0rd-in-a-url"
OWN = "sk-of-the-supervisor-0c77"


def tell(how: str, ctx: ToolContext) -> object:
    """Tell the secret of the environment in one of several ways."""
    token = os.environ["SERVICE_TOKEN"]
    if how == "raise":
        raise RuntimeError(f"the request with {token} failed")
    if how == "fail":
        raise ToolFailure(f"{token} is not accepted", data={"sent": [token]})
    if how == "hang":
        ctx.progress(f"with {token}")
        print(token, file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    if how == "blocks":
        print(token)
        return ToolResult(output=1, display=f"used {token}", content=[TextBlock(text=f"it is {token}")])
    return {"token": token, token: [os.environ["DATABASE"]], "harmless": "a text", "number": 5}


def broken() -> None:
    """Raise an exception with a text."""
    raise LookupError("row 17 of the ledger")


@tool(exceptions="type")
def discreet() -> None:
    """Raise an exception with a text that no model reads."""
    raise LookupError("row 18 of the ledger")


def large() -> str:
    """Return a long text with the secret in its middle."""
    return "x" * 300_000 + os.environ["SERVICE_TOKEN"] + "y" * 300_000


@tool(needs={Capability.WRITE})
def noted() -> None:
    """Write the secret to a file of the workspace."""
    Path("notes.env").write_text("TOKEN=" + os.environ["SERVICE_TOKEN"])


@host_tool(harmless=True, description="Raise in the supervisor's process.")
def here() -> None:
    raise RuntimeError(f"the key is {KEY}")


@host_tool
def of_my_environment() -> str:
    """Raise with a secret of the supervisor's own environment."""
    raise RuntimeError(os.environ["TOOLCELL_TEST_API_KEY"])


@tool(needs={Capability.WRITE})
def named(name: str) -> ToolResult:
    """Make a file of this name, and report another."""
    Path(name).touch()
    return ToolResult(output="made", artifacts=[Artifact(f"{name}.png", "plot")])


async def telling(session: Session, request: str) -> str:
    """Tell a secret of the supervisor's environment."""
    return f"{request} {os.environ['TOOLCELL_TEST_API_KEY']}"


@host_tool(harmless=True, description="Raise in the supervisor's process.", exceptions="type")
def discreet_here() -> None:
    raise LookupError("row 19 of the ledger")


PROFILE = Profile(
    grants=frozenset({"read", "write"}),
    env={"SERVICE_TOKEN": TOKEN, "DATABASE": f"postgres://agent:{PASSWORD}@db.example.com/x", "TOKENS_MODE": "short"},
)


@pytest.fixture(scope="module")
async def supervisor(anyio_backend: str, nothing_is_left_of_the_module: None) -> AsyncIterator[Supervisor]:
    http = BrokeredHttp(credentials={"api.example.com": Credential(value=KEY)})
    hosts = [here, discreet_here, of_my_environment, agent_tool(telling, name="telling")]
    tools: list[Any] = [*base_tools(), *hosts, tell, broken, discreet, large, noted, named]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOOLCELL_TEST_API_KEY", OWN)
        async with Supervisor(tools, http=http) as made:
            yield made


@pytest.fixture
async def session(supervisor: Supervisor, tmp_path: Path) -> AsyncIterator[Session]:
    opened = await supervisor.open_session("main", workspace=tmp_path, profile=PROFILE)
    yield opened
    await opened.close()


@pytest.mark.parametrize("how", ["return", "raise", "fail", "hang", "blocks"])
async def test_no_part_of_a_result_shows_a_secret_of_the_environment(session: Session, how: str) -> None:
    heard: list[str] = []
    result = await session.call("tell", {"how": how}, on_progress=lambda message, _fraction: heard.append(message))
    shown = result.model_copy(update={"arguments": None}).model_dump_json() + "".join(heard)
    assert TOKEN not in shown
    assert PASSWORD not in shown
    assert "[credential]" in shown
    if how == "return":
        assert result.output["harmless"] == "a text"
        assert result.output["number"] == 5
        assert result.output["[credential]"] == ["postgres://agent:[credential]@db.example.com/x"]


async def test_the_diff_of_a_changed_file_shows_no_secret(session: Session) -> None:
    (artifact,) = (await session.call("noted")).artifacts
    assert artifact.path == "notes.env"
    assert artifact.diff is not None
    assert "+TOKEN=[credential]" in artifact.diff


async def test_a_large_output_is_redacted_too(session: Session) -> None:
    result = await session.call("large")
    assert TOKEN not in result.output
    assert result.output.startswith("x" * 300_000 + "[credential]y")


async def test_a_host_tool_does_not_show_a_credential_of_the_broker(session: Session) -> None:
    result = await session.call("here")
    assert result.error is not None
    assert result.error.message == "RuntimeError: the key is [credential]"
    assert KEY not in result.display


async def test_the_supervisors_own_environment_is_secret_wherever_a_model_may_read_it(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """The session itself has no secret: host tools know the environment, and files and memories repeat it."""
    session = await supervisor.open_session("main", workspace=tmp_path)
    result = await session.call("of_my_environment")
    assert result.error is not None and result.error.message == "RuntimeError: [credential]"
    (tmp_path / ".env").write_text(f"KEY={OWN}")
    assert "KEY=[credential]" in (await session.call("read", {"path": ".env"})).for_model()
    await session.call("memory_store", {"text": f"the key is {OWN}"})
    assert OWN not in (found := await preload_memory(session, "key")) and "the key is [credential]" in found
    assert (await session.call("telling", {"request": "it is"})).output == "it is [credential]"
    assert session.results[-1].summary == "it is [credential]"
    assert (await session.close(summary=f"used {OWN}")).summary == "used [credential]"


async def test_the_paths_of_files_show_no_secret(session: Session) -> None:
    result = await session.call("named", {"name": TOKEN})
    assert sorted(each.path for each in result.artifacts) == ["[credential]", "[credential].png"]
    assert TOKEN not in result.told_changes() + artifacts_text(session)


async def test_a_child_session_does_not_show_the_secrets_of_its_parent(session: Session) -> None:
    child = await session.open_child("branch")
    result = await child.call("here")
    assert KEY not in result.for_model()


async def test_a_profile_may_show_the_type_of_an_exception_only(supervisor: Supervisor, tmp_path: Path) -> None:
    quiet = PROFILE.replace(exceptions="type")
    assert quiet.is_narrower_than(PROFILE)
    assert not PROFILE.is_narrower_than(quiet)
    session = await supervisor.open_session("main", workspace=tmp_path, profile=quiet)
    raised, failed = await session.call("broken"), await session.call("tell", {"how": "fail"})
    here = await session.call("here")
    await session.close()
    assert raised.error is not None
    assert raised.error.message == "LookupError was raised. Its text is not shown."
    assert "row 17" not in raised.model_dump_json()
    assert "key" not in here.for_model()
    assert failed.error is not None
    assert failed.error.message == "[credential] is not accepted"  # a failure that the tool declares is for the model


async def test_a_tool_may_show_the_type_of_an_exception_only(session: Session) -> None:
    raised, other = await session.call("discreet"), await session.call("broken")
    assert raised.error is not None
    assert raised.error.message == "LookupError was raised. Its text is not shown."
    assert "row 18" not in raised.model_dump_json()
    assert other.error is not None
    assert other.error.message == "LookupError: row 17 of the ledger"


async def test_a_host_tool_may_show_the_type_of_an_exception_only(session: Session) -> None:
    raised = await session.call("discreet_here")
    assert raised.error is not None
    assert raised.error.message == "LookupError was raised. Its text is not shown."


def test_the_option_is_in_the_declaration_and_in_its_fingerprint() -> None:
    shown = discreet.replace(exceptions="text")
    assert (discreet.declaration.exceptions, shown.declaration.exceptions) == ("type", "text")
    assert discreet.declaration.fingerprint != shown.declaration.fingerprint
    with pytest.raises(ToolDefinitionError, match="Pass 'text' or 'type'"):
        tool(exceptions="none")(large)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_only_the_two_words_are_taken() -> None:
    with pytest.raises((ValueError, UsageError), match="exceptions is not one of text, type"):
        Profile(exceptions="none")
