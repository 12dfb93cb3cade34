"""A call's records as sentences for an operator: what was asked, who allowed it, what ran, and how it ended."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from toolcell.store.journal.journal import Record
from toolcell_tools.preview import printable


def line_of(number: int, record: Record) -> str:
    """One record in one line: its number, time, kind, session or call, and what it says."""
    where = record.call_id or record.session_id or "-"
    return f"{number:>8}  {time_of(record.at)}  {printable(record.kind):<11}  {printable(where)}  {_summary(record)}"


def story_of(records: Iterable[Record]) -> Iterator[str]:
    """What happened in a call, from its records in order. Calls may have one id, in several sessions or one after the
    other: the story of each begins with a line that says so. The last line of a story tells if it has no recorded end.
    """
    runs = runs_of(records)
    for number, run in enumerate(runs, 1):
        if len(runs) > 1:
            yield printable(f"Call {number} of {len(runs)} with this id, in the session {run[0].session_id}:")
        yield from _story_of_run(run)


def runs_of(records: Iterable[Record]) -> list[list[Record]]:
    """The records of calls with one id, a list for each call. If two calls run at the same time in one session, the
    first end is that of the older one, and every other record that of the newer one."""
    runs: list[_CallRecords] = []
    for record in records:
        own = [run for run in runs if run.records[0].session_id == record.session_id]
        open_ = [run for run in own if not run.has_ended]
        is_end = record.kind in ("call", "denied") and "operation" not in record.data
        is_refusal = is_end and not record.data.get("intended", True)
        if record.kind == "intent":
            run = open_[-1] if open_ and not open_[-1].has_intent else None
        elif is_refusal:  # of a call without an intent
            run = next((each for each in open_ if not each.has_intent), None)
        elif is_end:
            run = next(iter(open_), None) or (own[-1] if own else None)
        elif record.kind == "approval" and record.data.get("event") == "asked":
            run = open_[-1] if open_ else None
        else:
            run = next(reversed(open_ or own), None)
        if run is None:
            run = _CallRecords()
            runs.append(run)
        run.records.append(record)
        run.has_intent = run.has_intent or record.kind == "intent"
        run.has_ended = run.has_ended or is_end
    return [run.records for run in runs]


@dataclass(slots=True, eq=False)
class _CallRecords:
    """One call, as far as its records have been read."""

    records: list[Record] = field(default_factory=list[Record])
    has_intent: bool = False
    has_ended: bool = False


def _story_of_run(records: Iterable[Record]) -> Iterator[str]:
    asked: set[str] = set()
    open_end = ""
    for record in records:
        open_end = _open_end(record, open_end)
        try:
            lines = list(_lines(record, asked))
        except (LookupError, TypeError, ValueError, AttributeError):  # of another version, or written by somebody else
            lines = [f"A record of kind {record.kind!r} with unknown facts: {dict(record.data)!r}"]
        yield f"{time_of(record.at)}  {printable(lines[0])}"
        yield from (f"    {printable(line)}" for line in lines[1:])
    if open_end:
        yield open_end


def _open_end(record: Record, before: str) -> str:
    """What to say if this record is the call's last one, "" if the call has ended. `before` is the same of the records
    before it."""
    match record.kind:
        case "intent":
            return (
                "No end is recorded. If `toolcell status` shows a supervisor, the call is under way. Otherwise the "
                "next supervisor with this state directory records how the call was interrupted."
            )
        case "approval" if record.data.get("event") == "asked":
            return "No end is recorded. The call waits for an answer, or its supervisor ended before one came."
        case "call" | "denied" if "operation" not in record.data:
            return ""
        case _:
            return before


def _lines(record: Record, asked: set[str]) -> Iterator[str]:
    """The sentence of a record, and the facts that stand below it."""
    data: Any = record.data
    yield _approval(data, asked) if record.kind == "approval" else _sentence(record)
    if record.kind in ("intent", "approval") or not data.get("intended", True):
        for name, value in data.get("arguments", {}).items():
            yield f"{name}: {value!r}"
        if data.get("digest") and "arguments" in data:
            of = "the request" if record.kind == "approval" else "all arguments"
            yield f"the digest of {of}: {data['digest']}"
    if record.kind == "intent" and "allowed" in data:
        yield _allowed(data)
    for artifact in data.get("artifacts", ()):
        yield f"{artifact['kind']}: {artifact['path']}"
    if (left := data.get("artifact_count", 0) - len(data.get("artifacts", ()))) > 0:
        yield f"and {left:,} more"
    for notice in data.get("notices", ()):
        yield f"notice: {notice['message']}"
    yield from str(data.get("traceback") or "").splitlines()


def _allowed(data: Any) -> str:
    """Who has allowed a call, and what it may reach."""
    grants = ", ".join(data["grants"]) or "none"
    if data["placement"] == "host":
        where = "in the supervisor's own process, without a sandbox"
    else:
        network = "no network" if data["network"] == "none" else f"the network of the kind {data['network']!r}"
        where = f"in a sandbox on the workspace {data['workspace']} with {network}"
    return f"allowed by {data['allowed']}; capabilities: {grants}; {where}"


def time_of(at: float) -> str:
    """The time in UTC, to the millisecond."""
    try:
        found = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at!r} s"
    return found.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _summary(record: Record) -> str:
    data = record.data
    tool = f"{data['tool']} " if "tool" in data else ""
    match record.kind:
        case "call" | "denied":
            what = str(data.get("operation") or data.get("error") or "ok")
        case "claim":
            what = str(data.get("id"))
        case "approval":
            what = str(data.get("answer") or data.get("event"))
        case _:
            what = str(data.get("event") or data.get("what") or data.get("operation") or data.get("host") or "")
    return printable(tool + what)


def _sentence(record: Record) -> str:
    data: Any = record.data
    tool = data.get("tool", "")
    match record.kind:
        case "intent":
            attempt = f", attempt {data['attempt']}" if data["attempt"] > 1 else ""
            return (
                f"The agent {agent_in(data)} asked for {tool} {data['version']} (tier {data['tier']}{attempt}) in the "
                f"{data['session_kind']} session {record.session_id}, and the call was accepted:"
            )
        case "queued":
            return "The call waited for a process."
        case "sent":
            return "The call was given to a process."
        case "claim":
            return _claim(data)
        case "operation":
            given = ", ".join(f"{name}={value!r}" for name, value in data.get("arguments", {}).items())
            if data.get("error"):
                return f"{data['operation']} failed: {data['error']}"
            return f"It used {data['operation']}({given}){', which has an effect' if data.get('effect') else ''}."
        case "denied" if "operation" in data:
            return f"It was refused {data['operation']}, which its grants do not allow."
        case "egress" | "http":
            verb = "reached" if data.get("allowed") else "was refused"
            moved = f"{data.get('bytes_out', 0):,} bytes out, {data.get('bytes_in', 0):,} bytes in"
            return f"It {verb} {data.get('host')}:{data.get('port')} ({moved}). {data.get('reason') or ''}".strip()
        case "quarantined":
            return "It made or changed files under protected names; they were moved to the quarantine."
        case "incident":
            return f"Incident: {data.get('what')}."
        case "log":
            return f"The tool logged ({data.get('level')}): {data.get('message')}"
        case "call" | "denied" if not data.get("intended", True):
            asked = f"tier {data['tier']}, " if data.get("tier") else ""
            return (
                f"The agent {agent_in(data)} asked for {tool} ({asked}{data['session_kind']} session "
                f"{record.session_id}), and the call was refused before it ran. {_end(data)}"
            )
        case "call" | "denied":
            return _end(data)
        case _:
            return f"{record.kind}: {data}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1e3:.3g} ms"


def _memory(data: Any) -> str:
    """The memory that a call has used, as far as it was measured: of all its processes, and of its own process."""
    used = ""
    if data.get("memory_bytes"):
        used = f", {data['memory_bytes'] / 2**20:.3g} MiB of memory"
    if data.get("max_rss_bytes"):
        used += f", and {data['max_rss_bytes'] / 2**20:.3g} MiB resident in its own process"
    return used


def _approval(data: Any, asked: set[str]) -> str:
    """What a record of approval says. `asked` has the requests of earlier records of the call."""
    request, by = data["request"], data.get("by") or "the approver"
    if data.get("event") == "given back":
        return f"The request {request} was not used up, because the call did not begin. The same call may use it."
    if data.get("event") == "asked":
        again = request in asked
        asked.add(request)
        until = time_of(data["expires_at"])
        if again:
            return f"The call was made again. The request {request} is still open, until {until}."
        if "made_at" in data:
            return (
                f"The same call had asked for approval before, as {data['made_by']} at {time_of(data['made_at'])}. Its "
                f"request {request}, open until {until}, holds for this call too."
            )
        return f"Approval was asked for {data['tool']} ({data['reason']}): request {request}, until {until}."
    if data.get("event") in ("withdrawn", "revoked"):
        return f"The request {request} was {data['event']}."
    if data.get("event") == "refused":
        return f"An earlier answer does not hold for this call: {data['answer']}."
    if data.get("used"):
        at = f" at {time_of(data['answered_at'])}" if "answered_at" in data else ""
        made = f", which the call {data['made_by']} made at {time_of(data['made_at'])}," if "made_at" in data else ""
        return f"The request {request}{made} was {data['answer']} by {by}{at}."
    if request in asked:
        return f"The request {request} has ended: {data['answer']}."
    return f"Nobody was asked: {data['answer']}{_scope(data)}{f', given by {by}' if data.get('by') else ''}."


def agent_in(data: Any) -> str:
    """The agent of a record, after the agents above it (`dispatch.services.agent_facts`)."""
    return "/".join((*data.get("ancestors", ()), data["agent"]))


def _scope(data: Any) -> str:
    """For which calls a standing approval holds, and until when."""
    if "pattern" not in data:
        return ""
    where = f"in the session {data['session']}" if data["session"] else f"by the agent {agent_in(data)}"
    pattern = ", ".join(f"{name}={glob}" for name, glob in data["pattern"].items())
    which = f" with {pattern}" if pattern else ""
    return f" of calls of {data['tool']} {where}{which}, until {time_of(data['expires_at'])}"


def _claim(data: Any) -> str:
    what = f"the idempotency key {data['id']!r}" if data["of"] == "key" else f"the task {data['id']!r}"
    return f"The call gave {what} free again." if data.get("freed") else f"The call claimed {what}."


_OUTCOMES = {
    "not started": "It was never given to a process. ",
    "outcome unknown": "It may have done a part of its work, or all of it: its outcome is unknown. ",
}


def _end(data: Any) -> str:
    if data.get("error") == "interrupted":
        found = "Found at the next start: the supervisor ended"
        if data.get("outcome") == "not started":
            return f"{found} before the call was given to a process. It did not run."
        if data.get("outcome") == "finished":
            return f"{found} while the call ran. It cannot have changed anything that lasts, so it can be repeated."
        return f"{found} while the call ran. It may have run in part or in whole: its outcome is unknown."
    used = (
        f"It took {_seconds(data.get('wall_s', 0.0))} after {_seconds(data.get('queue_s', 0.0))} of waiting, "
        f"{_seconds(data.get('cpu_s', 0.0))} of CPU time{_memory(data)}."
    )
    match data.get("ran"):
        case "cell":
            new = "had served a call of this session before" if data.get("reused") else "was new"
            used = f"It ran in cell {data['cell']}, which {new}. {used}"
        case "host":
            used = f"It ran in the supervisor's own process. {used}"
        case _:
            pass
    if data.get("error") is None:
        return f"It ended with a result. {used} It shows: {data.get('display', '')!r}."
    what = _OUTCOMES.get(data.get("outcome", ""), "") + ("" if data.get("outcome") == "not started" else used)
    return f"It ended with the error {data['error']!r}: {data.get('message', '')!r}. {what}".rstrip()
