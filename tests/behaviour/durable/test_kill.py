"""A supervisor with a state directory that is killed: each call has one intent and one end, no result is lost, and no
call with an idempotency key is made twice.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests import misbehaving, programs

from toolcell import Supervisor
from toolcell.store.directory import StateDirectory
from toolcell.store.journal.entries import JournalEntry
from toolcell.store.journal.reading import JournalReader
from toolcell.store.journal.segments import KIND, closed_segments

from .load import JOURNAL_BYTES, append

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio, pytest.mark.usefixtures("warm")]
KILLS = int(os.environ.get("TOOLCELL_KILLS", "4"))
"""How often it is killed: `TOOLCELL_KILLS=200 pytest -n 0 -s tests/behaviour/durable/test_kill.py` takes some 13
minutes, and prints what it has counted."""
PROGRAM = Path(__file__).with_name("load.py")
TRIED_AGAIN = 3
"""Each run begins with so many of the last keys of the run before, so that those which were killed are tried again."""


def killed(state: Path, workspace: Path, first: int, after_s: float, *, at_once: bool) -> list[list[str]]:
    """Run the program, and kill it so many seconds after its start, or after it has printed a call and a key. Returns
    the words of each line that it has printed."""
    command = [sys.executable, "-I", str(PROGRAM), str(state), str(workspace), str(first)]
    with programs.start(command, fork_zygotes=True) as program:
        lines: list[str] = []
        while not at_once and not {"call", "key"} <= {line.split()[0] for line in lines}:
            lines.append(program.stdout.readline())
            assert lines[-1], "it ended by itself"
        time.sleep(after_s)
        assert program.poll() is None, "it ended by itself"
        program.send_signal(signal.SIGKILL)
        lines += program.stdout.read().splitlines(keepends=True)
    return [line.strip().split(maxsplit=2) for line in lines if line.endswith("\n")]


def read_on(reader: JournalReader, found: dict[int, JournalEntry]) -> None:
    """Add the entries that are there now. Those that were there before are the same."""
    for each in reader.entries():
        assert found.setdefault(each.head.number, each).head == each.head


async def test_what_was_never_given_to_a_process_is_told_apart(tmp_path: Path, workspace: Path) -> None:
    """Two calls of a session wait for each other: one runs, and the other is queued."""
    state = tmp_path / "state"
    program = (
        "import sys, anyio\n"
        "from toolcell import Supervisor\n"
        "def sleep_for_ever():\n"
        '    """Sleep without end."""\n'
        "    import time\n"
        "    time.sleep(10_000)\n"
        "async def main():\n"
        "    async with Supervisor([sleep_for_ever], state=sys.argv[1], max_cells=1) as supervisor:\n"
        "        session = await supervisor.open_session('worker', workspace=sys.argv[2])\n"
        "        async with anyio.create_task_group() as tasks:\n"
        "            for name in ('runs', 'waits'):\n"
        "                tasks.start_soon(lambda name=name: session.call('sleep_for_ever', call_id=name))\n"
        "                await anyio.sleep(0.5)\n"
        "            print('ready', flush=True)\n"
        "anyio.run(main)\n"
    )
    with programs.start([sys.executable, "-I", "-c", program, str(state), str(workspace)]) as run:
        assert run.stdout.readline() == "ready\n"
        run.kill()
    async with Supervisor([misbehaving.echo], state=state):
        pass
    directory = StateDirectory(state)
    found = {
        each.record.call_id: each.record.data["outcome"]
        for each in JournalReader(directory.log, directory.index).entries()
        if each.record.kind == "call"
    }
    assert found == {"runs": "finished", "waits": "not started"}, "it can have done nothing that lasts"


@pytest.mark.timeout(120 + 10 * KILLS)
async def test_after_kills_under_load_each_call_has_one_intent_and_one_end(tmp_path: Path, workspace: Path) -> None:
    state, first = tmp_path / "state", 0
    returned: list[str] = []
    outputs: dict[str, str] = {}
    found: dict[int, JournalEntry] = {}  # also those of segments that were removed since
    for number in range(KILLS):
        at_once = number % 4 == 3  # while it starts, and looks for what the last one has left
        after_s = random.uniform(0.1, 1.0) if at_once else random.uniform(0.0, 0.6)
        said = await anyio.to_thread.run_sync(partial(killed, state, workspace, first, after_s, at_once=at_once))
        returned += [words[1] for words in said if words[0] == "call"]
        outputs |= {words[1]: words[2] for words in said if words[0] == "key"}
        done = [int(key[1:]) for key in outputs]
        first = max(0, max(done, default=0) - TRIED_AGAIN)
        directory = StateDirectory(state)
        if directory.log.exists() or closed_segments(directory.log):
            read_on(JournalReader(directory.log, directory.index), found)
    async with Supervisor([misbehaving.echo, append], state=state, journal_bytes=JOURNAL_BYTES) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, session_id="writer")
        again = {key: (await session.call("append", {"key": key}, idempotency_key=key)).output for key in outputs}
    assert again == outputs, "a result that was returned is kept"
    lines = (workspace / "keys.txt").read_text().splitlines()
    assert max(Counter(lines).values()) == 1, "no call ran twice under its key"
    assert set(outputs) <= set(lines)
    directory = StateDirectory(state)
    reader = JournalReader(directory.log, directory.index)
    read_on(reader, found)
    for head in [each.head for each in found.values() if each.head.number > reader.first()[0].number][::1000]:
        reader.verify(head)
    assert sorted(found) == list(range(1, len(found) + 1)), "none was removed before it was read"
    intents, ends, good, outcomes = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    segments = sum(each.record.kind == KIND for each in found.values())
    for _number, each in sorted(found.items()):
        record = each.record
        if record.kind == "intent":
            intents[record.call_id] += 1
        elif record.kind == "call":
            ends[record.call_id] += 1
            good[record.call_id] += record.data["error"] is None
            if record.data["error"] == "interrupted":
                outcomes[record.data["outcome"]] += 1
    assert set(outcomes) <= {"not started", "finished", "outcome unknown"}
    assert intents == ends
    assert set(intents.values()) == {1}
    assert len(returned) > KILLS
    assert all(good[call_id] == 1 for call_id in returned)
    print(
        f"{KILLS} kills: {len(intents):,} calls, {len(returned):,} of them returned, {len(outputs):,} keys; {outcomes}"
        f"; {segments:,} changes of segments, {reader.first()[0].number:,} of {len(found):,} records removed"
    )
