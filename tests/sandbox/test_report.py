"""The report of the mechanisms: what is required, and what this machine has."""

import json
import os
import subprocess
import sys

import pytest

from toolcell_sandbox import Mechanism, SandboxError, SandboxReport
from toolcell_sandbox.report import NAMES


def test_a_report_requires_what_is_not_allowed_to_be_missing() -> None:
    lost = Mechanism("landlock", "missing", "not built", 38, "Boot another kernel.")
    report = SandboxReport((Mechanism("seccomp", "on"), lost, Mechanism("cgroup", "substituted")), "root")
    assert report.on == {"seccomp"} and report.missing == (lost,)
    with pytest.raises(SandboxError) as caught:
        report.require(frozenset())
    assert (caught.value.mechanism, caught.value.errno) == ("landlock", 38)
    assert "Boot another kernel." in str(caught.value) and "allow_missing={'landlock'}" in str(caught.value)
    report.require({"landlock"})
    with pytest.raises(ValueError, match="names no mechanism: 'landlok'"):
        report.require({"landlok"})
    assert SandboxReport.from_wire(report.to_wire()) == report
    assert "landlock           missing      not built. Boot another kernel." in str(report)


def probed(mode: str) -> SandboxReport:
    """The probe, in a single-threaded process of its own."""
    code = f"import json; from toolcell_sandbox import probe; print(json.dumps(probe({mode}).to_wire()))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return SandboxReport.from_wire(json.loads(done.stdout))


def test_this_machine_has_every_mechanism() -> None:
    report = probed("")
    if os.geteuid() == 0:
        assert report.missing == () and report.on | {"user_namespace"} == set(NAMES), str(report)
        rootless = probed("'userns-root'")
        assert rootless.missing == () and rootless.on | {"idmapped_mounts"} == set(NAMES), str(rootless)
    else:
        assert report.missing == () and report.on >= set(NAMES) - {"idmapped_mounts", "cgroup"}, str(report)
