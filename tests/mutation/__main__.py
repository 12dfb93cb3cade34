"""`python -m tests.mutation`: change one line at a time, and see whether a test notices."""

import argparse
import hashlib
import json
import os
import queue
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from .modules import MODULES, Held
from .mutants import Mutant, chosen, mutants_of
from .worker import ROOT, Outcome, Worker

HERE = Path(__file__).parent
RESULTS = ROOT / ".mutation" / "results.jsonl"
COUNT = 250
SEED = "toolcell"
WANTED = 0.90
NOTICED = {"killed", "timeout"}


def picked(texts: dict[str, bytes], count: int, seed: str) -> list[Mutant]:
    """About `count` mutants: each module has a share by the root of how many it can have, and at least two."""
    every = {module: mutants_of(module, text) for module, text in texts.items()}
    weights = {module: len(mutants) ** 0.5 for module, mutants in every.items()}
    whole = sum(weights.values())
    return [
        mutant
        for module, mutants in every.items()
        for mutant in chosen(mutants, texts[module], max(2, round(count * weights[module] / whole)), seed)
    ]


def reasons() -> dict[str, str]:
    """Why a mutant need not be noticed, by its key: it changes no behaviour that anybody relies on."""
    rows: list[dict[str, str]] = tomllib.loads((HERE / "survivors.toml").read_text()).get("survivor", [])
    return {f"{row['module']}: {row['source']}: {row['edit']}": row["reason"] for row in rows}


class Book:
    """What was found so far, one line a mutant. It holds as long as the module does, and for what lived, its tests."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._known: dict[str, dict[str, Any]] = {row["key"]: row for row in map(json.loads, lines)}

    def known(self, mutant: Mutant, text: bytes, held: Held) -> dict[str, Any] | None:
        row = self._known.get(mutant.key)
        if (
            row is None
            or row["text"] != digest(text)
            or row["word"] == "broken"
            or (row["word"] == "survived" and row["tests"] != tests_digest(held))
        ):
            return None
        return row

    def noticed_by(self, mutant: Mutant) -> str:
        """The test that noticed it when the module was another one, "" where none did."""
        row = self._known.get(mutant.key, {})
        return row["by"] if row.get("word") == "killed" and "::" in row["by"] else ""

    def write(self, mutant: Mutant, text: bytes, held: Held, word: str, outcome: Outcome) -> dict[str, Any]:
        row = {
            "key": mutant.key,
            "module": mutant.module,
            "line": mutant.line,
            "operator": mutant.operator,
            "source": mutant.source,
            "edit": mutant.edit,
            "word": word,
            "by": outcome.failed,
            "seconds": round(outcome.seconds, 1),
            "text": digest(text),
            "tests": tests_digest(held),
        }
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._known[mutant.key] = row
        return row


def digest(*texts: bytes) -> str:
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def files_of(held: Held) -> list[str]:
    return [name for name in (*held.near, *held.far) if name.endswith(".py")]


def tests_digest(held: Held) -> str:
    return digest(*((ROOT / name).read_bytes() for name in files_of(held)))


def judged(worker: Worker, mutant: Mutant, text: bytes, held: Held, before: str) -> tuple[str, Outcome]:
    """What the tests say: "killed", "timeout", "survived", or "broken" where pytest itself could not work, or a test
    fails without the mutant too. `before`, which noticed the mutant in an earlier run, is asked first.
    """
    if before and (outcome := worker.tested(mutant, text, [before])).word == "failed":
        return "killed", outcome
    for tests in (held.near, held.far):
        if tests:
            outcome = worker.tested(mutant, text, tests)
            if outcome.word != "passed":
                return ("killed" if outcome.word == "failed" else outcome.word), outcome
    return "survived", outcome


def main() -> int:
    arguments = parsed()
    texts = {module: (ROOT / module).read_bytes() for module in MODULES}
    mutants = picked(texts, arguments.count, arguments.seed)
    if arguments.only:
        mutants = [mutant for mutant in mutants if any(part in mutant.module for part in arguments.only)]
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.module}:{mutant.line}: {mutant.operator}: {mutant.source}: {mutant.edit}")
        print(f"{len(mutants)} mutants")
        return 0
    book = Book(arguments.results)
    rows = [row for mutant in mutants if (row := book.known(mutant, texts[mutant.module], MODULES[mutant.module]))]
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in sorted(mutants, key=lambda each: each.key in reasons()):  # what needs no test comes last
        if book.known(mutant, texts[mutant.module], MODULES[mutant.module]) is None:
            waiting.put(mutant)
    print(f"{len(mutants)} mutants; {len(rows)} are known from earlier runs", flush=True)
    if not waiting.empty():
        rows += tested(waiting, texts, book, arguments.jobs, len(mutants), len(rows))
    return report(rows, texts, stale=not arguments.only)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="MODULE", help="modules whose path has this in it; repeatable"
    )
    parser.add_argument("--count", type=int, default=COUNT, help=f"about so many mutants, over all modules ({COUNT})")
    parser.add_argument("--seed", default=SEED, help="another seed chooses other mutants")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="copies that work at once")
    parser.add_argument("--list", action="store_true", help="print the mutants and test none")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help=f"where the results are kept ({RESULTS.relative_to(ROOT)})"
    )
    return parser.parse_args()


def tested(
    waiting: "queue.SimpleQueue[Mutant]", texts: dict[str, bytes], book: Book, jobs: int, whole: int, done: int
) -> list[dict[str, Any]]:
    """Test all that wait, in `jobs` copies at once."""
    rows: list[dict[str, Any]] = []
    excuses, began = reasons(), time.monotonic()
    failures: list[BaseException] = []
    workers: list[Worker] = []

    def stop(number: int, _frame: object) -> None:
        failures.append(SystemExit(128 + number))
        for worker in workers:
            worker.stop()

    def work(place: Path) -> None:
        try:
            worker = Worker(place)
            workers.append(worker)
            if not worker.leads_here():
                raise RuntimeError(f"{worker.python} does not import the packages of {worker.tree}.")
            while not failures:
                mutant = waiting.get_nowait()
                text, held = texts[mutant.module], MODULES[mutant.module]
                word, outcome = judged(worker, mutant, text, held, book.noticed_by(mutant))
                if failures:
                    return  # what was stopped says nothing
                row = book.write(mutant, text, held, word, outcome)
                rows.append(row)
                if word == "survived" and mutant.key in excuses:
                    word = "equivalent"
                minutes = (time.monotonic() - began) / 60
                print(
                    f"[{done + len(rows)}/{whole} {minutes:.1f} min] {word:10} {outcome.seconds:5.1f} s "
                    f"{mutant.module}:{mutant.line}: {mutant.edit}  {outcome.failed.rpartition('::')[2]}",
                    flush=True,
                )
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)

    # Beside the checkout's own files: what a cell sees of the host depends on where the packages lie.
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="copies-", dir=RESULTS.parent) as folder:
        os.chmod(folder, 0o755)  # some tests look at it as an ordinary user
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, stop)
        threads = [threading.Thread(target=work, args=(Path(folder, str(number)),)) for number in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return rows


def report(rows: list[dict[str, Any]], texts: dict[str, bytes], *, stale: bool) -> int:
    """Print the score and who lived; 0 if the score is what the suite promises and no reason is out of date."""
    excuses = reasons()
    counts = Counter("equivalent" if r["word"] == "survived" and r["key"] in excuses else r["word"] for r in rows)
    survivors = [row for row in rows if row["word"] == "survived" and row["key"] not in excuses]
    for row in sorted(survivors, key=lambda row: (row["module"], row["line"])):
        print(f"SURVIVED {row['module']}:{row['line']}: {row['source']}\n         {row['operator']}: {row['edit']}")
    noticed = sum(counts[word] for word in NOTICED)
    judged_ = noticed + len(survivors)
    score = noticed / judged_ if judged_ else 1.0
    said = ", ".join(f"{counts[word]} {word}" for word in ("killed", "timeout", "broken", "survived", "equivalent"))
    print(f"{said}; score {score:.1%}")
    left: list[str] = []
    if stale:
        present = {mutant.key for module, text in texts.items() for mutant in mutants_of(module, text)}
        left = [key for key in excuses if key not in present]
        for key in left:
            print(f"STALE survivors.toml has a reason for what is not there any more: {key}")
    return 0 if score >= WANTED and not left and not counts["broken"] else 1


if __name__ == "__main__":
    sys.exit(main())
