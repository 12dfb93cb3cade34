"""A supervisor with a state directory that is killed: each call has one intent and one end, and no result is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import pytest

from toolcell import Supervisor
from toolcell.journal.reading import JournalReader
from toolcell.state import StateDirectory
from toolcell.testing import misbehaving

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
KILLS = int(os.environ.get("TOOLCELL_KILLS", "4"))
"""How often it is killed. TOOLCELL_KILLS=200 takes some five minutes."""
PROGRAM = Path(__file__).with_name("load.py")


def killed(state: Path, workspace: Path, after_s: float) -> list[str]:
    """Run the program until it has returned a first call, and kill it so many seconds later. Returns the ids of the
    calls that had returned."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(state), str(workspace)], stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        time.sleep(after_s)
        program.send_signal(signal.SIGKILL)
        lines = [first, *program.stdout.read().splitlines(keepends=True)]
    return [line.decode().strip() for line in lines if line.endswith(b"\n")]


async def test_after_kills_under_load_each_call_has_one_intent_and_one_end(tmp_path: Path, workspace: Path) -> None:
    state = tmp_path / "state"
    returned: list[str] = []
    for _kill in range(KILLS):
        returned += await anyio.to_thread.run_sync(killed, state, workspace, random.uniform(0.0, 0.6))
    async with Supervisor([misbehaving.echo], state=state):
        pass
    directory = StateDirectory(state)
    reader = JournalReader(directory.log, directory.database)
    reader.verify()
    intents, ends, good = Counter[str](), Counter[str](), Counter[str]()
    for each in reader.entries():
        record = each.record
        if record.kind == "intent":
            intents[record.call_id] += 1
        elif record.kind == "call":
            ends[record.call_id] += 1
            good[record.call_id] += record.data["error"] is None
            if record.data["error"] == "interrupted":
                assert record.data["outcome"] in ("not started", "outcome unknown")
    assert intents == ends
    assert set(intents.values()) == {1}
    assert len(returned) > KILLS
    assert all(good[call_id] == 1 for call_id in returned)


async def test_what_was_never_given_to_a_process_is_told_apart(tmp_path: Path, workspace: Path) -> None:
    """Two calls of a session wait for each other: one runs, and the other is queued."""
    state = tmp_path / "state"
    program = (
        "import sys, anyio\n"
        "from toolcell import Supervisor\n"
        "from toolcell.testing import misbehaving\n"
        "async def main():\n"
        "    async with Supervisor([misbehaving.sleep_for_ever], state=sys.argv[1], max_cells=1) as supervisor:\n"
        "        session = await supervisor.open_session('worker', workspace=sys.argv[2])\n"
        "        async with anyio.create_task_group() as tasks:\n"
        "            for name in ('runs', 'waits'):\n"
        "                tasks.start_soon(lambda name=name: session.call('sleep_for_ever', call_id=name))\n"
        "                await anyio.sleep(0.5)\n"
        "            print('ready', flush=True)\n"
        "anyio.run(main)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(state), str(workspace)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stdout.readline() == b"ready\n"
        run.kill()
    async with Supervisor([misbehaving.echo], state=state):
        pass
    directory = StateDirectory(state)
    found = {
        each.record.call_id: each.record.data["outcome"]
        for each in JournalReader(directory.log, directory.database).entries()
        if each.record.kind == "call"
    }
    assert found == {"runs": "outcome unknown", "waits": "not started"}
