"""An overview of a running supervisor: sessions, cells, calls, errors, and what is wrong now."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from toolcell.dispatch.services import Services, agent_facts
from toolcell.runtime.core import SessionCore
from toolcell_tools.preview import counted

MOST_CALLS: Final = 100
"""The most calls and sessions that are listed; all are counted."""
LONG_WAIT_S: Final = 5.0


def overview(services: Services, sessions: Iterable[SessionCore]) -> dict[str, Any]:
    """The overview, as JSON data. Times are in seconds."""
    pool, now = services.pool, time.monotonic()
    running = pool.running()
    waiting = list(pool.waiting)
    of_session = Counter(run.spec.key.session_id for run in (*running, *waiting))
    open_sessions = list(sessions)
    calls, errors = services.metrics.totals()
    pending = 0 if services.durable is None else services.approvals().pending_count()
    return {
        "sessions": [
            {
                "id": core.caller.id,
                "kind": core.caller.kind.value,
                "state": core.life.state.value,
                **agent_facts(core.caller.line),
                "parent": None if core.parent is None else core.parent.caller.id,
                "calls": of_session[core.caller.id],
            }
            for core in open_sessions[:MOST_CALLS]
        ],
        "session_count": len(open_sessions),
        "cells": pool.counts(),
        "max_cells": pool.most_cells,
        "nodes": pool.nodes(),
        "running": [
            {"call": run.call_id, "tool": run.tool, "session": run.spec.key.session_id, "s": now - run.started_at}
            for run in running[:MOST_CALLS]
        ],
        "waiting": [
            {"call": run.call_id, "tool": run.tool, "session": run.spec.key.session_id, "s": now - run.queued_at}
            for run in waiting[:MOST_CALLS]
        ],
        "running_count": len(running),
        "waiting_count": len(waiting),
        "calls": calls,
        "errors": errors,
        "pending_approvals": pending,
        "problems": problems_of(services),
    }


def problems_of(services: Services) -> list[str]:
    """What is wrong now with a supervisor, in sentences."""
    found: list[str] = []
    waits_s = [time.monotonic() - run.queued_at for run in services.pool.waiting]
    status = services.pool.status()
    if status.problem:
        found.append(status.problem)
    if not status.zygotes:
        again = "" if status.next_attempt_s is None else f" The next attempt is in {status.next_attempt_s:.2g} s."
        found.append(f"No zygote is alive, so no cell can be made.{again}")
    if services.durable is not None and services.durable.failure:
        found.append(services.durable.failure)
    if waits_s and (longest_s := max(waits_s)) >= LONG_WAIT_S:
        waiting = counted(len(waits_s), "call waits", "calls wait")
        found.append(f"{waiting} for a process; the oldest has waited {longest_s:.3g} s.")
    for node in services.pool.nodes():
        found += [f"Node {node['id']}: {problem}" for problem in node["problems"]]
    found += services.pool.losses()
    return found
