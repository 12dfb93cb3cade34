"""Slots: the uids and cgroups of cells, and when another cell gets them."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.helpers import PATIENCE_S

from toolcell.pool.cell import Cell
from toolcell.pool.deadlines import Deadlines
from toolcell.pool.maker import Slots
from toolcell.workplaces.record import RunRecord
from toolcell_sandbox import CgroupTree, Limits
from toolcell_sandbox.mechanisms.cgroups import Cgroup

from .fakes import FakeCell, spec


def cell_of(slot: int, cgroup: Cgroup | None = None) -> Cell:
    cell = FakeCell(1, slot, spec(), None, None, None, cgroup=None, standby=False)
    cast("Any", cell).cgroup = cgroup
    return cast("Cell", cell)


class Vacated:
    """Slots, with the deadlines that they wait for and the number of cells that they have vacated."""

    def __init__(self) -> None:
        self.count = 0
        self.deadlines = Deadlines(lambda when: None)
        self.slots = Slots(self.deadlines, RunRecord(), self._on_vacated)

    def _on_vacated(self) -> None:
        self.count += 1

    def wait(self) -> None:
        for action in self.deadlines.pop_due(self.deadlines.next_due()):
            action()


@pytest.fixture
def vacated() -> Vacated:
    return Vacated()


def test_two_cells_have_two_slots_and_a_slot_that_is_given_back_is_taken_next(vacated: Vacated) -> None:
    slots = vacated.slots
    (first, _), (second, _) = slots.take(Limits()), slots.take(Limits())
    assert second == first + 1 == slots.last
    slots.give_back(first, None)
    assert slots.take(Limits()) == (first, None)
    assert slots.take(Limits()) == (second + 1, None)


@pytest.mark.root
def test_two_supervisors_of_a_process_with_one_range_have_cgroups_of_their_own() -> None:
    """The range is random, and one whose cells have all ended has no visible process."""
    cgroups: list[Cgroup | None] = []
    for slots in (Vacated().slots, Vacated().slots):
        slots.tree, slots._first = CgroupTree.detect(), 0x10000
        cgroups.append(slots.take(Limits())[1])
    for cgroup in cgroups:
        assert cgroup is not None
        cgroup.remove()
    assert cgroups[0] is not cgroups[1]


def test_two_supervisors_have_ranges_of_their_own() -> None:
    firsts = {Vacated().slots.take(Limits())[0] for _ in range(20)}
    assert len(firsts) > 10, "random ranges, of which a few may be drawn twice"


def test_the_slot_of_a_dead_cell_without_a_cgroup_is_free_at_once(vacated: Vacated) -> None:
    slot, _ = vacated.slots.take(Limits())
    vacated.slots.vacate(cell_of(slot))
    assert vacated.count == 1 and not vacated.slots.vacating and len(vacated.deadlines) == 0
    assert vacated.slots.take(Limits())[0] == slot


@pytest.fixture
def with_cgroups(vacated: Vacated) -> Iterator[Vacated]:
    vacated.slots.tree = CgroupTree.detect()
    assert vacated.slots.tree is not None, "no writable memory and pids cgroups on this machine"
    yield vacated
    vacated.slots.remove([])


@pytest.mark.root
def test_a_slot_is_not_reused_while_a_process_is_left_in_its_cgroup(with_cgroups: Vacated) -> None:
    slots = with_cgroups.slots
    slot, cgroup = slots.take(Limits())
    assert cgroup is not None
    with subprocess.Popen(["sleep", "100"]) as left:
        for path in cgroup.paths:
            with open(os.path.join(path, "cgroup.procs"), "w") as members:
                members.write(str(left.pid))
        cell = cell_of(slot, cgroup)
        slots.vacate(cell)
        assert slots.vacating == {cell} and with_cgroups.count == 0
        another, other = slots.take(Limits())
        assert another != slot
        assert left.wait(PATIENCE_S) == -9, "it was killed by its cgroup"
    while slots.vacating:
        with_cgroups.wait()
    assert with_cgroups.count == 1
    assert slots.take(Limits()) == (slot, cgroup)
    slots.give_back(slot, cgroup)
    slots.give_back(another, other)


@pytest.mark.root
def test_a_cgroup_that_another_program_has_removed_is_not_given_to_a_cell(with_cgroups: Vacated) -> None:
    slots = with_cgroups.slots
    slot, cgroup = slots.take(Limits())
    assert cgroup is not None
    slots.give_back(slot, cgroup)
    for path in cgroup.paths:
        os.rmdir(path)
    again, other = slots.take(Limits())
    assert again == slot and other is not None and other is not cgroup and other.exists()
    slots.give_back(again, other)


@pytest.mark.root
def test_no_cgroup_is_left_after_the_end(with_cgroups: Vacated) -> None:
    slots = with_cgroups.slots
    slot, free = slots.take(Limits())
    _, used = slots.take(Limits())
    assert free is not None and used is not None
    slots.give_back(slot, free)
    slots.remove([cell_of(slot + 1, used)])
    assert not free.exists() and not used.exists() and slots.free_cgroups == []
