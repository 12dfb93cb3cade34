"""A cell that lacks one layer must be noticed: it refuses itself, or a hostile program gets another answer.

What nobody notices stands in `layers.TWINS`, with the layer that holds in its place. A row there that somebody does
notice is an error too, so the table stays true.
"""

import json
import os
import sys
from functools import cache
from typing import Any

import pytest
from tests.programs import run as run_program

from .batch import may_raise_limits
from .conftest import NewStage
from .layers import LAYERS, TWINS, Layer
from .machines import HERE, programs
from .mutant import LAYER_S
from .test_escape import fits

pytestmark = [
    pytest.mark.usefixtures("nothing_is_left_of_the_module"),
    pytest.mark.timeout(0),  # the first test waits for all layers, of which each has a limit of its own
]

# An ordinary user cannot contain a crippled cell in namespaces of its own, so only what needs no privilege is left out.
# Nor has it priorities that a cell could keep: those can be given with CAP_SYS_RESOURCE alone (getrlimit(2)), which not
# every root has; tests/sandbox/test_enter.py looks at what is set.
UNPRIVILEGED = ("seccomp", "Landlock ", "rlimit", "moves")
POSSIBLE = [
    layer
    for layer in LAYERS
    if (os.geteuid() == 0 or layer.name.startswith(UNPRIVILEGED))
    and (may_raise_limits() or layer.name not in ("rlimit RTPRIO", "rlimit NICE"))
]
REFUSED_BY_PLACE = ("mount namespace",)
"""Layers without which a cell is made where its user can reach the interpreter, and refused where it cannot."""
WATCHERS = ["fs_read_a_file_of_the_host", "fs_write_the_system", "net_tcp", "proc_kill_the_canary", "info_host_name"]
"""Programs that are run where nobody is expected to notice."""
WHOLE = 8
"""Whole cells among which the programs are divided, to see that nothing is noticed there."""


@pytest.fixture(scope="module")
def said(warm: None, nothing_is_left_of_the_module: None, new_stage: NewStage) -> dict[tuple[str, bool], Any]:
    """What each crippled cell came to, by the layer's name and whether the self-test was left out with it."""
    stage = new_stage()
    every = sorted({name for layer in POSSIBLE for name in layer.attacks})
    runs: list[tuple[str, bool, list[str]]] = [("", False, every[start::WHOLE]) for start in range(WHOLE)]
    for layer in POSSIBLE:
        runs.append((layer.name, False, list(layer.attacks) or WATCHERS))
        if layer.self_test and layer.attacks:
            runs.append((layer.name, True, list(layer.attacks)))
    order = stage / "order.json"
    order.write_text(json.dumps({"stage": str(stage), "runs": runs}))
    command = [sys.executable, "-I", str(HERE / "mutant.py"), str(order)]
    done = run_program(command, timeout=2 * LAYER_S, cwd="/")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(runs), done.stderr
    whole: dict[str, Any] = {}
    found: dict[tuple[str, bool], Any] = {("", False): whole}
    for line in lines:
        if line["layer"]:
            found[line["layer"], line["blind"]] = line
        else:
            whole.update(line["said"] if isinstance(line["said"], dict) else {line["said"]: line})
    return found


@cache
def as_wanted(program: str, answer: str) -> bool:
    """Whether a program's answer, in JSON, is what it expects of a whole cell."""
    return fits(programs()[program].EXPECT, {"output": json.loads(answer), "error": None})


def noticed(line: dict[str, Any], layer: Layer) -> list[str]:
    """The programs that got an answer that a whole cell does not give, or none."""
    answers = line["said"]
    assert isinstance(answers, dict), line
    return [
        name
        for name in layer.attacks or WATCHERS
        if name not in answers or not as_wanted(name, json.dumps(answers[name]))
    ]


def test_nobody_notices_anything_in_a_whole_cell(said: dict[tuple[str, bool], Any]) -> None:
    whole = said["", False]
    assert {name: answer for name, answer in whole.items() if not as_wanted(name, json.dumps(answer))} == {}
    assert whole.keys() == {name for layer in POSSIBLE for name in layer.attacks}


@pytest.mark.parametrize("layer", POSSIBLE, ids=lambda layer: layer.name)
def test_a_cell_that_lacks_a_layer_is_noticed(layer: Layer, said: dict[tuple[str, bool], Any]) -> None:
    line = said[layer.name, False]
    if layer.host:
        assert layer.host in line["host"]
    if layer.name in REFUSED_BY_PLACE:
        assert str(line["said"]).startswith("refused: ") or noticed(line, layer), line
    elif layer.self_test:
        assert str(line["said"]).startswith("refused: "), line
        if layer.attacks:
            assert noticed(said[layer.name, True], layer), "with the self-test left out too, an attack notices"
    elif layer.attacks:
        assert noticed(line, layer), line
    elif not layer.host:
        assert layer.twin, f"nobody notices that {layer.name} is left out, and no twin is named: {line}"
        assert noticed(line, layer) == [] and line["host"] == []


def test_twins_are_those_of_layers_that_nobody_notices() -> None:
    silent = {layer.name for layer in LAYERS if not (layer.self_test or layer.attacks or layer.host)}
    assert set(TWINS) == silent
