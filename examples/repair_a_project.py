"""An agent repairs an open-source project, stores what it learned, and finds that again after a restart.

The project is iniconfig 2.1.0, as it was published. Its README says that a comment may follow a value, but the parser
makes the comment a part of the value (pytest-dev/iniconfig, issue 55). iniconfig 2.3.0 cuts comments off as this agent
does, in a new constructor, `IniConfig.parse`.

The models are scripts here: generators that yield calls and get their results. What they find decides what they do
next. In your program, a model sees the tools and the results, and answers with calls.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio

from toolcell import (
    LocalEmbedder,
    Session,
    SQLiteMemory,
    Supervisor,
    ToolResult,
    UsageError,
    base_tools,
    coding_tools,
    delegate,
)

Calls = list[tuple[str, dict[str, Any]]]
Script = Generator[Calls, list[ToolResult], Any]
"""A model: it yields the calls of a turn, gets their results, and returns its answer."""

ARCHIVE = Path(__file__).parent / "projects" / "iniconfig-2.1.0.tar.gz"
SHA256 = "3abbd2e30b36733fee78f9c7f7308f2d0050e88f0087fd25c2645f63c773e1c7"
USED = {"read", "write", "edit", "shell", "memory_search", "memory_store"}

EXAMPLE = "Which file does the README take for its example, and what is in it?"
PARSER = "Which statement of the code makes a value of a line's text?"
DOCTEST = "PYTHONPATH=src python3 -m doctest README.rst"
UNITTEST = "PYTHONPATH=src python3 -m unittest -v test_comments"
OTHER_WORDS = "trailing remarks"
TESTS = """\
import unittest

from iniconfig import IniConfig


def value(line):
    return IniConfig("x.ini", "[section]\\nname = " + line)["section"]["name"]


class Comments(unittest.TestCase):
    def test_hash(self):
        self.assertEqual(value("1  # one"), "1")

    def test_semicolon(self):
        self.assertEqual(value("1 ; one"), "1")

    def test_continuation(self):
        self.assertEqual(value("1\\n  2 # two\\n"), "1\\n2")
"""
HELPER = """\
def _uncommented(text: str) -> str:
    for character in COMMENTCHARS:
        text = text.split(character)[0]
    return text.strip()


"""


# The models


def find_example() -> Script:
    """A researcher reads the README."""
    (found,) = yield [("grep", {"pattern": r"content of (\S+)", "include": "README*"})]
    (match,) = found.unwrap()["matches"]
    (page,) = yield [("read", {"path": match["path"], "offset": match["line"]})]
    lines = [line.partition("\t")[2] for line in page.unwrap().splitlines()]
    indented = [line for line in lines[: lines.index("then you can do:")] if line.strip()]
    return {"file": match["text"].split()[-1], "content": "".join(line[4:] + "\n" for line in indented)}


def find_parser() -> Script:
    """Another one reads the code. It tries to repair that too, and has no right to."""
    listed, found = yield [("list", {}), ("grep", {"pattern": r"value\.strip\(\)", "include": "src/**/*.py"})]
    listed.unwrap()
    (match,) = found.unwrap()["matches"]
    (refused,) = yield [("edit", {"path": match["path"], "old_text": "value", "new_text": "eulav"})]
    if refused.error is None:
        raise RuntimeError("a researcher has changed a file")
    return {"path": match["path"], "statement": match["text"].strip(), "refused": refused.error.message}


def repair() -> Script:
    """The repairer lets researchers read, reproduces the error, and edits until all tests pass."""
    example, parser = [
        result.unwrap() for result in (yield [("delegate", {"task": EXAMPLE}), ("delegate", {"task": PARSER})])
    ]
    print("a researcher was refused:", parser["refused"])
    (written,) = yield [("write", {"path": example["file"], "content": example["content"]})]
    written.unwrap()
    if not (failures := failed(*(yield [("shell", {"command": DOCTEST})]))):
        return "The README is right. There is nothing to repair."
    print("before the repair:", *failures)

    path, statement = parser["path"], parser["statement"]
    first_try = statement.replace("value.strip()", 'value.split("#")[0].strip()')
    edited, written = yield [
        ("edit", {"path": path, "old_text": statement, "new_text": first_try}),
        ("write", {"path": "test_comments.py", "content": TESTS}),
    ]
    print(edited.unwrap() and edited.display, written.unwrap() and written.display, sep="\n")
    doctest, tests = yield [("shell", {"command": DOCTEST}), ("shell", {"command": UNITTEST})]
    print("after the first try:", *failed(doctest), *(failures := failed(tests)))
    if failures:
        (patched,) = yield [("apply_patch", {"patch": second_try(path, first_try)})]
        print(patched.unwrap() and patched.display)
        doctest, tests = yield [("shell", {"command": DOCTEST}), ("shell", {"command": UNITTEST})]
    if failed(doctest) or failed(tests):
        return "The tests still fail."
    learned = f"In iniconfig, an inline comment after a value ends it, at # or ;. See _uncommented in {path}."
    (stored,) = yield [("memory_store", {"text": learned, "kind": "decision", "tags": ["iniconfig"]})]
    stored.unwrap()
    return "Repaired: a comment is no part of a value."


def second_try(path: str, statement: str) -> str:
    """All comment characters, and lines that continue a value too."""
    return (
        f"*** Begin Patch\n*** Update File: {path}\n@@\n"
        + "".join(f"+{line}\n" for line in HELPER.splitlines())
        + " def _parseline(path: str, line: str, lineno: int) -> tuple[str | None, str | None]:\n@@\n"
        + f"-        {statement}\n+        return name.strip(), _uncommented(value)\n"
        + "     # continuation\n     else:\n"
        + "-        return None, line.strip()\n+        return None, _uncommented(line)\n"
        + "*** End Patch"
    )


def failed(result: ToolResult) -> list[str]:
    """The failed tests, by the output of doctest or unittest."""
    ran = result.unwrap()
    if ran["exit_code"] == 0:
        return []
    return re.findall(r"^(File .*, line \d+|FAIL: \w+)", ran["stdout"] + ran["stderr"], re.MULTILINE)


def recall() -> Script:
    """Another day, another process: search by words that the record does not have."""
    (found,) = yield [("memory_search", {"query": OTHER_WORDS})]
    if found.unwrap()["records"]:
        return f"By {OTHER_WORDS!r}: {found.unwrap()['records'][0]['text']}"
    (found,) = yield [("memory_search", {"query": "comments in iniconfig"})]
    (record, *_) = found.unwrap()["records"]
    return f"Found by its own words, because the extra [embed] is not installed: {record['text']}"


# The loop


async def converse(session: Session, script: Script) -> Any:
    """Run the calls of a model until it answers."""
    try:
        calls = next(script)
        while True:
            calls = script.send(list(await session.call_many(calls)))
    except StopIteration as end:
        return end.value


async def research(session: Session, task: str) -> Any:
    """Answer one question in a Worker session, which holds no handle to write with."""
    print("a Worker with", *sorted(tool.name for tool in await session.tools()))
    return await converse(session, {EXAMPLE: find_example, PARSER: find_parser}[task]())


def supervisor(home: Path) -> Supervisor:
    """The same state directory in each process; the search is by meaning if the extra `[embed]` is installed."""
    state = home / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    tools = [tool for tool in base_tools() if tool.name in USED]
    return Supervisor(
        [*tools, *coding_tools(), delegate(research)],
        state=state,
        memory=SQLiteMemory(state / "memory.sqlite", embedder=embedder()),
    )


def embedder() -> LocalEmbedder | None:
    try:
        return LocalEmbedder()
    except UsageError:
        return None


async def work(home: Path, script: Script, summary: str) -> None:
    async with supervisor(home) as runtime:
        project = home / "iniconfig-2.1.0"
        session = await runtime.open_session("main", workspace=project, agent_id="repairer")
        answer = await converse(session, script)
        result = await session.close(summary=summary)
        print(answer)
        print(f"{result.outcome}: {result.usage.calls} calls, {len(result.artifacts)} artifacts")


def ran(*words: str) -> str:
    """What another Python process prints."""
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True).stdout.rstrip()


def audit(home: Path, *words: str) -> str:
    return ran("-m", "toolcell.cli", "audit", *words, "--state", str(home / "state"))


def story(home: Path) -> None:
    """What the journal has: the calls of both processes, and how the decision was stored."""
    calls = audit(home, "list", "--kind", "call", "--last", "6")
    print(calls)
    stored = next(line.split() for line in calls.splitlines() if "memory_store" in line)
    print(audit(home, "show", stored[stored.index("memory_store") - 1]))


def main() -> None:
    if sys.argv[1:2] == ["recall"]:
        anyio.run(work, Path(sys.argv[2]), recall(), "remembered")
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if hashlib.sha256(ARCHIVE.read_bytes()).hexdigest() != SHA256:
            raise SystemExit(f"{ARCHIVE.name} is not the published file.")
        with tarfile.open(ARCHIVE) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)  # since 3.11.4
            archive.extractall(home)
        anyio.run(work, home, repair(), "repaired")
        print(ran(__file__, "recall", folder))
        story(home)


if __name__ == "__main__":
    main()
