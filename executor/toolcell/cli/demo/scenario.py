"""The demo's steps in order: the calling session, the call, and the right outcome."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcell_tools.capability import Capability

from . import tools
from .expect import (
    Expectation,
    broke_the_protocol,
    crashed,
    denied,
    exceeded,
    gives,
    gone,
    has,
    holds_text,
    invalid,
    mentions,
    no_connection,
    not_on_the_host,
    on_record,
    said,
    sees_only_what_is_bound,
    tells_the_model,
    timed_out,
    unchanged,
    unknown,
    unsaid,
    works,
)
from .stage import BUG, MENDED, PROJECT, DemoStage

TESTS = "python3 -m unittest -q"
FACT = "Tax is rounded half up, item by item."
DONE = "The price test passes again: with_tax rounds half up."
LIE = "Transfer everything. Signed, your agent"
README = PROJECT["README.md"]


@dataclass(frozen=True, slots=True)
class Step:
    """One call: of `tool`, by the session named `who`. All of `expected` must hold afterwards."""

    who: str
    tool: str
    arguments: Mapping[str, Any]
    expected: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True)
class Act:
    title: str
    steps: tuple[Step, ...]


def step(who: str, tool: str, arguments: Mapping[str, Any], *expected: Expectation) -> Step:
    return Step(who, tool, arguments, expected)


def scenario(stage: DemoStage) -> tuple[Act, ...]:
    """All steps."""
    return (
        Act("Three sessions repair a small project", project(stage)),
        Act("Tools that fail, each in a process of its own", failures()),
        Act("Tools that try to break out", escapes(stage)),
        Act("A Worker with calls that it may not make", worker(stage)),
        Act("The sessions still work", afterwards()),
    )


def project(stage: DemoStage) -> tuple[Step, ...]:
    return (
        step("main", "read", {"path": "README.md"}, mentions("4\t")),
        step("main", "shell", {"command": TESTS}, has(exit_code=1)),
        step("main", "memory_store", {"text": FACT, "tags": ["tax"]}, works()),
        step("main", "web_search", {"query": "round half up"}, mentions(f"{stage.origin}/rounding")),
        step("worker", "web_fetch", {"url": f"{stage.origin}/rounding"}, mentions("(n * p + 50) // 100")),
        step("worker", "memory_search", {"query": "how is tax rounded"}, mentions(FACT)),
        step("worker", "read", {"path": "prices.py"}, mentions("net_cents * percent // 100")),
        step("worker", "count_words", {"path": "notes/decisions.md"}, gives({"lines": 4, "words": 13})),
        step(
            "branch",
            "edit",
            {"path": "prices.py", "old_text": BUG, "new_text": MENDED},
            has(replacements=1),
            holds_text("prices.py", MENDED),
        ),
        step(
            "branch",
            "write",
            {"path": "notes/fix.md", "content": "# Fix\n\nHalf a cent is added before the floor division.\n"},
            has(action="created", lines=3),
            holds_text("notes/fix.md", "Half a cent"),
        ),
        step("branch", "shell", {"command": TESTS}, has(exit_code=0)),
        step("main", "message", {"text": DONE}, works(), said(DONE)),
        step("main", "read", {"path": "README.md", "offset": "one"}, invalid("offset")),
        step("main", "web_serch", {"query": "tea"}, unknown("web_search")),
    )


def failures() -> tuple[Step, ...]:
    return (
        step("main", "raises", {}, tells_the_model("the price is not a number"), on_record("call", error="execution")),
        step("main", "segfaults", {}, crashed(signal=signal.SIGSEGV)),
        step("main", "exits", {"code": 7}, crashed(exit_code=7)),
        step("main", "loops", {}, timed_out(tools.LOOP_S)),
        step("main", "eats_memory", {}, exceeded("memory", tools.MEMORY_BYTES)),
        step("main", "forks", {}, exceeded("processes", tools.PROCESSES)),
        step("main", "floods", {}, exceeded("output", tools.OUTPUT_BYTES)),
    )


def escapes(stage: DemoStage) -> tuple[Step, ...]:
    littered = f"/tmp/{stage.mark}"
    closed = list(dict.fromkeys([os.path.expanduser("~"), "/root", "/home", "/etc/shadow"]))
    return (
        step("main", "looks_around", {"paths": closed}, sees_only_what_is_bound(closed)),
        step("main", "signals", {"pid": os.getpid()}, gives("ESRCH", "EPERM")),
        step("main", "lingers", {"name": stage.mark[-15:]}, gives("started"), gone(stage.mark[-15:])),
        step(
            "main", "litters", {"name": stage.mark}, gives("done", "EACCES"), not_on_the_host(Path("/tmp", stage.mark))
        ),
        step("main", "looks_around", {"paths": [littered]}, gives({littered: "ENOENT"}, {littered: "EACCES"})),
        step(
            "main",
            "calls_out",
            {"host": "127.0.0.1", "port": stage.listener.port},
            gives("EAFNOSUPPORT", "ENETUNREACH", "ECONNREFUSED"),
            no_connection(),
        ),
        step("main", "writes_garbage", {}, broke_the_protocol(), on_record("incident")),
        step(
            "main",
            "forges_a_request",
            {"text": LIE},
            gives("refused: permission_denied"),
            unsaid(LIE),
            on_record("denied", operation="channel.send", by="broker"),
        ),
    )


def worker(stage: DemoStage) -> tuple[Step, ...]:
    readme = str(stage.project / "README.md")
    untouched = unchanged("README.md", README)
    return (
        step("worker", "write", {"path": "README.md", "content": "gone"}, denied(Capability.WRITE), untouched),
        step(
            "worker",
            "edit",
            {"path": "README.md", "old_text": "Shop", "new_text": "gone"},
            denied(Capability.WRITE),
            untouched,
        ),
        step(
            "worker",
            "shell",
            {"command": "echo gone > README.md"},
            denied(Capability.EXEC, Capability.WRITE),
            untouched,
        ),
        step("worker", "message", {"text": LIE}, denied(Capability.CHANNEL), unsaid(LIE)),
        step("worker", "memory_store", {"text": LIE}, denied(Capability.MEMORY_WRITE)),
        step("worker", "overwrites", {"path": readme, "text": "gone"}, gives("EROFS", "EACCES"), untouched),
        step("worker", "executes", {"program": "/bin/sh"}, gives("EACCES")),
        step(
            "worker",
            "calls_out",
            {"host": "127.0.0.1", "port": stage.listener.port},
            gives("EAFNOSUPPORT", "ENETUNREACH", "ECONNREFUSED"),
            no_connection(),
        ),
        step(
            "worker",
            "forges_a_request",
            {"text": LIE},
            gives("refused: permission_denied"),
            unsaid(LIE),
            on_record("denied"),
        ),
    )


def afterwards() -> tuple[Step, ...]:
    return tuple(step(who, "read", {"path": "README.md"}, mentions("4\t")) for who in ("main", "branch", "worker"))
