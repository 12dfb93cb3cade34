"""`toolcell audit`: what it prints of a journal, while it is written and after damage."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests import misbehaving, programs

from toolcell import Session, Supervisor, tool

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm", "nothing_ahead")]


def greet(name: str, password: str = "") -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@pytest.fixture
async def session(tmp_path: Path, workspace: Path) -> AsyncIterator[Session]:
    tools: list[Any] = [tool(greet), tool(misbehaving.raise_an_exception)]
    async with Supervisor(tools, state=tmp_path / "state") as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace, session_id="w")
        await session.call("greet", {"name": "Ada", "password": "hunter2"}, call_id="first")
        await session.call("raise_an_exception", {}, call_id="second")
        yield session


def audit(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-m", "toolcell.cli", "audit", *words, "--state", str(state)]
    return programs.run(command, timeout=120)


async def ran(state: Path, *words: str) -> str:
    done = await anyio.to_thread.run_sync(audit, state, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_show_tells_who_asked_for_what_and_how_it_ended(session: Session, tmp_path: Path) -> None:
    told = await ran(tmp_path / "state", "show", "first")
    assert "The agent agent asked for greet 1.0.0 (tier read_only) in the worker session w, and the call was" in told
    assert re.search(
        r"allowed by policy\.read_only; capabilities: none; in a sandbox on the workspace /\S+ with no", told
    )
    assert "name: 'Ada'" in told and "hunter2" not in told and "password: '[redacted]'" in told
    assert re.search(
        r"It ended with a result\. It ran in cell \d+, which was new\. It took [\d.]+ ms .* It shows: 'Hello, Ada!'\.",
        told,
    )
    failed = await ran(tmp_path / "state", "show", "second")
    assert "It ended with the error 'execution'" in failed and "Traceback (most recent call last)" in failed


async def test_list_has_what_was_just_written_whether_or_not_it_is_in_the_index(
    session: Session, tmp_path: Path
) -> None:
    for number in range(5):
        await session.call("greet", {"name": str(number)}, call_id=f"call-{number}")
        listed = await ran(tmp_path / "state", "list", "--kind", "call", "--last", "1")
        assert f"call-{number}" in listed and listed.count("\n") == 1


async def test_a_list_of_nothing_says_so(session: Session, tmp_path: Path) -> None:
    done = await anyio.to_thread.run_sync(audit, tmp_path / "state", "list", "--kind", "cal", "--session", "w")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "The journal has no record with --kind 'cal' and --session 'w'.\n"


async def test_json_has_every_fact(session: Session, tmp_path: Path) -> None:
    lines = (await ran(tmp_path / "state", "list", "--session", "w", "--json")).splitlines()
    found = [json.loads(line) for line in lines]
    assert {each["session"] for each in found} == {"w"}
    (intent,) = [each for each in found if each["kind"] == "intent" and each["call"] == "first"]
    assert intent["data"]["arguments"] == {"name": "Ada", "password": "[redacted]"}
    exported = (await ran(tmp_path / "state", "export")).splitlines()
    assert [json.loads(line)["number"] for line in exported] == list(range(1, len(exported) + 1))


async def test_verify_prints_a_head_with_which_a_shorter_log_is_noticed(session: Session, tmp_path: Path) -> None:
    state = tmp_path / "state"
    head = (await ran(state, "verify")).splitlines()[-1]
    size = os.path.getsize(state / "journal.log")
    await session.call("greet", {"name": "Grace"})
    await ran(state, "verify", "--head", head)
    later = (await ran(state, "verify")).splitlines()[-1]
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    (copy / "journal.log").write_bytes((state / "journal.log").read_bytes()[:size])
    assert (await ran(copy, "verify")).splitlines()[-1] == head
    done = await anyio.to_thread.run_sync(audit, copy, "verify", "--head", later)
    assert done.returncode == 1 and "the log ends before the head that was kept" in done.stderr


async def test_a_changed_byte_is_damage(session: Session, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    changed = bytearray((tmp_path / "state" / "journal.log").read_bytes())
    changed[len(changed) // 2] ^= 1
    (copy / "journal.log").write_bytes(changed)
    done = await anyio.to_thread.run_sync(audit, copy, "verify")
    assert done.returncode == 1 and "The journal is damaged. Entry" in done.stderr


async def test_a_reader_that_has_enough_is_no_error(session: Session, tmp_path: Path) -> None:
    await session.call("greet", {"name": "ann"})
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-I", "-m", "toolcell.cli", "audit", "export", "--state", str(tmp_path / "state")]
    with open(writes, "wb") as out:
        started = partial(subprocess.run, command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)
        done = await anyio.to_thread.run_sync(started)
    assert (done.returncode, done.stderr) == (0, "")


async def test_follow_prints_what_comes(session: Session, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-m", "toolcell.cli", "audit", "follow", "--kind", "call", "--json"]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path / "state")], stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        line = ""
        async with anyio.create_task_group() as tasks:

            async def call_again() -> None:  # it reads the log first; what is written meanwhile may be passed over
                while True:
                    await session.call("greet", {"name": "again"}, call_id="followed")
                    await anyio.sleep(0.2)

            tasks.start_soon(call_again)
            line = await anyio.to_thread.run_sync(following.stdout.readline)
            tasks.cancel_scope.cancel()
        following.terminate()
    assert json.loads(line)["call"] == "followed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "none"), "The journal has no call 'none'"),
        (("verify", "--head", "x"), "--head is not a head"),
    ],
)
async def test_wrong_use_is_told(session: Session, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = await anyio.to_thread.run_sync(audit, tmp_path / "state", *words)
    assert done.returncode == 2 and said in done.stderr


def test_where_there_is_no_journal_it_says_what_to_pass(tmp_path: Path) -> None:
    done = audit(tmp_path, "list")
    assert done.returncode == 2 and "Pass the directory of Supervisor(state=…)." in done.stderr
