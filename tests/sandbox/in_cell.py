"""Run a piece of Python in a fresh cell: `python -I in_cell.py ORDER`, ORDER a JSON file; see conftest.py.

The code sees `entered` and `arguments`, and may print. "before" runs in the process that makes the cell.
"""

import json
import os
import posix
import sys
from dataclasses import asdict

from toolcell_sandbox import CellProfile, Identity, Mechanism, SandboxError, SandboxReport, probe, run
from toolcell_sandbox.identity import detect_mode, unused_slots
from toolcell_sandbox.order import NotEntered

os.execv = posix.execv  # tests/warm.py has another, for programs that go on as Python programs
with open(sys.argv[1]) as file:
    order = json.load(file)
names: dict[str, object] = {"arguments": order["arguments"]}
exec(order["before"], names)
identity = Identity.for_slot(unused_slots(), order["mode"]) if order["mode"] else None  # None: what `run` chooses
report: SandboxReport = probe(order["mode"] or detect_mode())
report = report.changed(*(Mechanism(name, "missing", "for a test", 38) for name in order["missing"]))
answer: dict[str, object] = {}


def body(entered: object) -> int:
    names["entered"] = entered
    exec(order["code"], names)
    return int(str(names.get("exit_status", 0)))


try:
    outcome = run(
        body,
        CellProfile.from_wire(order["profile"]),
        identity=identity,
        report=report,
        cgroups=order["cgroups"],
        allow_missing=frozenset(order["missing"]),
        quarantine=order["quarantine"],
    )
    answer = {
        "status": outcome.status,
        "timed_out": outcome.timed_out,
        "findings": [asdict(finding) for finding in outcome.findings],
        "in_force": outcome.report.to_wire(),
    }
except SandboxError as error:
    answer = {"error": asdict(NotEntered.of(error)) | {"message": str(error)}}
with open(order["answer"], "w") as file:
    json.dump(answer, file)
