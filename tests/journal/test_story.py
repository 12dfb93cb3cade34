"""A call's records as sentences. `tests/behaviour/durable/test_audit.py` has the stories of real calls."""

import math
from typing import Any

import pytest

from toolcell import Record
from toolcell.store.journal.narrative import line_of, runs_of, story_of, time_of

from .records import HOSTILE

INTENT: dict[str, Any] = {
    "agent": "a1",
    "tool": "save",
    "version": "1.0.0",
    "tier": "workspace",
    "attempt": 1,
    "session_kind": "main",
    "arguments": {"path": "a.txt"},
}
ASKED: dict[str, Any] = {"event": "asked", "request": "r1", "tool": "save", "reason": "tier", "expires_at": 60.0}


def test_nothing_in_a_journal_reaches_the_terminal_as_a_command() -> None:
    """Names, arguments, displays and messages come from models and tools; a journal may come from somebody else."""
    texts: dict[str, Any] = dict.fromkeys(("tool", "version", "tier", "agent", "session_kind", "message"), HOSTILE)
    facts: dict[str, Any] = {
        **texts,
        "arguments": {HOSTILE: HOSTILE, "nested": [{HOSTILE: HOSTILE}]},
        "grants": [HOSTILE],
        "allowed": HOSTILE,
        "placement": "cell",
        "network": HOSTILE,
        "workspace": HOSTILE,
        "attempt": 1,
        "digest": HOSTILE,
        "error": HOSTILE,
        "display": HOSTILE,
        "traceback": HOSTILE,
        "operation": HOSTILE,
        "what": HOSTILE,
        "level": HOSTILE,
        "event": HOSTILE,
        "host": HOSTILE,
        "notices": [{"kind": "a", "message": HOSTILE}],
        "artifacts": [{"kind": HOSTILE, "path": HOSTILE}],
        "request": HOSTILE,
        "answer": HOSTILE,
        "reason": HOSTILE,
        "by": HOSTILE,
        "expires_at": 0.0,
    }
    kinds = [
        "intent",
        "call",
        "denied",
        "approval",
        "operation",
        "egress",
        "http",
        "log",
        "incident",
        "queued",
        HOSTILE,
    ]
    wrong: list[dict[str, Any]] = [
        {},
        {"arguments": 1},
        {"notices": 5},
        {"artifacts": [3]},
        {"wall_s": "x", "error": None},
    ]
    for kind in kinds:
        for data in (facts, {**facts, "error": None}, {**facts, "intended": False}, *wrong):
            for at in (0.0, 1e300, float("nan")):
                record = Record(kind, HOSTILE, HOSTILE, data, at)
                for line in (line_of(1, record), *story_of([record])):
                    assert line.isprintable(), ascii(line)


def test_records_of_calls_of_one_id_at_the_same_time_are_all_told() -> None:
    def of(kind: str, session: str = "s", **data: Any) -> Record:
        return Record(kind, session, "c", data)

    first, second, sent, ended, ended_too = of("intent"), of("intent"), of("sent"), of("call"), of("call")
    late, refused = of("incident"), of("denied", intended=False)
    runs = runs_of([first, second, sent, ended, ended_too, late, refused, of("call", "t")])
    assert [[record.kind for record in run] for run in runs] == [
        ["intent", "call"],
        ["intent", "sent", "call", "incident"],
        ["denied"],
        ["call"],
    ]
    waits, again, given = (of("approval", event=event) for event in ("asked", "asked", "answered"))
    assert len(runs_of([waits, again, given, of("intent"), of("call"), of("approval", event="asked")])) == 2


def of(kind: str, **data: Any) -> Record:
    return Record(kind, "s", "c", data, 0.0)


def told(*records: Record) -> list[str]:
    """The story, without the time that begins each sentence."""
    return [line.partition("Z  ")[2] for line in story_of(records)]


def test_a_time_is_in_utc_to_the_millisecond_and_nonsense_is_shown() -> None:
    assert time_of(0.1234) == "1970-01-01 00:00:00.123Z"
    assert time_of(1e300) == "1e+300 s" and time_of(math.nan) == "nan s"


def test_who_asked_is_told_with_the_arguments_and_the_attempt_if_it_is_not_the_first() -> None:
    first, argument, _open = story_of([of("intent", **INTENT)])
    assert "The agent a1 asked for save 1.0.0 (tier workspace) in the main session s" in first
    assert argument == "    path: 'a.txt'"
    again, *_rest = story_of([of("intent", **{**INTENT, "attempt": 2})])
    assert "(tier workspace, attempt 2)" in again


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("not started", "before the call was given to a process. It did not run."),
        ("finished", "It cannot have changed anything that lasts, so it can be repeated."),
        ("outcome unknown", "It may have run in part or in whole: its outcome is unknown."),
    ],
)
def test_an_interrupted_call_is_told_by_what_it_may_have_done(outcome: str, words: str) -> None:
    [line] = told(of("call", error="interrupted", outcome=outcome))
    assert line.startswith("Found at the next start: the supervisor ended") and line.endswith(words)


@pytest.mark.parametrize(
    "records",
    [
        [of("intent", **INTENT)],
        [of("approval", **ASKED)],
        [of("intent", **INTENT), of("denied", operation="memory.store")],
    ],
    ids=["accepted", "asked", "refused an operation"],
)
def test_the_last_line_says_that_no_end_is_recorded_until_one_is(records: list[Record]) -> None:
    assert list(story_of(records))[-1].startswith("No end is recorded.")
    assert "No end" not in "".join(story_of([*records, of("call", error=None)]))


def test_a_request_for_approval_is_told_once_and_its_answer_with_who_gave_it() -> None:
    asked = of("approval", **ASKED)
    used = of("approval", event="answered", request="r1", answer="approved", used=True, by="ann")
    first, again, answer, _end = told(asked, asked, used, of("call", error=None))
    assert first == "Approval was asked for save (tier): request r1, until 1970-01-01 00:01:00.000Z."
    assert again.startswith("The call was made again. The request r1 is still open")
    assert answer == "The request r1 was approved by ann."


def test_what_a_call_used_is_told_in_units() -> None:
    used = {"wall_s": 0.0123, "queue_s": 2.0, "cpu_s": 0.0, "memory_bytes": 3 << 20, "max_rss_bytes": 1 << 20}
    [line] = told(of("call", error=None, display="done", ran="cell", cell=7, reused=False, **used))
    assert line == (
        "It ended with a result. It ran in cell 7, which was new. It took 12.3 ms after 2 s of waiting, 0 s of CPU "
        "time, 3 MiB of memory, and 1 MiB resident in its own process. It shows: 'done'."
    )


def test_a_record_of_another_version_is_shown_as_it_is() -> None:
    line, _open = story_of([of("intent", strange=1)])
    assert line.endswith("A record of kind 'intent' with unknown facts: {'strange': 1}")
