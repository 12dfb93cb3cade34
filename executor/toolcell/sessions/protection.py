"""Guard protected names around calls: look at the tree before a call, audit it after the call's last process has ended.

Each writable directory has one guard, whatever profiles write there. Overlapping calls are compared with the state
before the first of them. A change is attributed to every call that ran then and protects the name, because their
changes cannot be told apart. A kept process counts as always running.

An audit has a time limit. What it could not check by then is reported as unknown, and a longer check, called a sweep
here, continues in the background. A file system that does not answer holds a look or an audit for `ANSWER_S`. Then the
sessions that can have written there fail, and nothing else may write there until the audit was made.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio

from toolcell.backends.threads import FILES, SWEEPS, NoThread
from toolcell.pool.run import Run
from toolcell.sessions.changes import CallChanges, TrackedRoot
from toolcell.sessions.hung_filesystem import ANSWER_S, HungFileSystem, WorkInThread
from toolcell.workplaces.record import RunRecord, moment_ns
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.profile import CellProfile, is_below
from toolcell_sandbox.trees.audit import Finding, ProtectedTree, Settled
from toolcell_sandbox.trees.changes import Feed
from toolcell_sandbox.trees.facts import Look, Seen, as_before, tick_of
from toolcell_sandbox.trees.git_settings_copy import Drafts
from toolcell_sandbox.trees.quarantine import Quarantine
from toolcell_sandbox.trees.walker import Budget
from toolcell_sandbox.view import Bound

T = TypeVar("T")
_log = logging.getLogger("toolcell")
SWEEP_S, SWEEP_DIRECTORIES, SWEEP_ENTRIES = 600.0, 500_000, 20_000_000
SWEEP_BUSY = 0.5  # the share of its time in which a sweep works
MAX_WINDOWS = 64
CLOSE_S = 2.0  # how long the end of a supervisor waits for sweeps


@dataclass(eq=False, slots=True)
class Watch:
    """One call, from before it is sent until it is audited."""

    bound: tuple[Bound, ...] = ()
    digest: str = ""
    run: Run | None = None
    changed: CallChanges | None = None  # its changed files, which the same walks find
    findings: list[Finding] = field(default_factory=list[Finding])
    session_id: str = ""
    since_ns: int = 0
    sole: bool = True  # no call of another session can have made the findings
    unknown: str = ""  # what the audit could not check, in words
    looked_for: bool = False  # whether a sweep follows
    stuck: str = ""  # what it could not move away
    hung: HungFileSystem | None = None  # the audit was not made

    @property
    def tells(self) -> bool:
        """Whether there is anything to report about the call."""
        return bool(self.findings or self.unknown or self.stuck)


@dataclass(frozen=True, slots=True)
class _Window:
    """A period, in ns, in which a file may have been made without being seen: from one look to a later moment."""

    before: Look
    until_ns: int
    active: frozenset[int]

    def holds(self, path: str, seen: Seen) -> bool:
        """Whether this file may have been made in the period, by its change time, which no program can set."""
        was = self.before.found.get(path)
        if was is not None and as_before(seen, was):
            return False
        return self.before.is_before(seen.changed_ns) and seen.changed_ns <= self.until_ns


def _came_since(watch: Watch, finding: Finding) -> bool:
    """Whether the finding is newer than the start of the call, by its change time."""
    return finding.changed_ns + tick_of(finding.changed_ns) >= watch.since_ns


def _may_have_made(watch: Watch, finding: Finding, running: Sequence[Watch]) -> bool:
    """Whether the finding is newer than the start of the call, or older than all running calls."""
    return _came_since(watch, finding) or not any(_came_since(each, finding) for each in running)


def _hold(windows: Sequence[_Window], path: str, seen: Seen) -> bool:
    return any(window.holds(path, seen) for window in windows)


def _log_late(finding: Finding) -> None:
    if finding.place:
        _log.warning("%a was %s by an earlier call, and is now at %a", finding.path, finding.what, finding.place)


class _GuardedRoot:
    """One writable directory, and the calls that may write there now."""

    def __init__(
        self, root: str, quarantine: Quarantine, record: RunRecord, on_hung: Callable[[str, str], None]
    ) -> None:
        """`on_hung` fails a session, by its id, for a reason."""
        self.root = root
        self._record = record
        self._on_hung = on_hung
        self._hanging: WorkInThread | None = None
        self._tree = ProtectedTree(root, drafts=Drafts(record.drafts))
        self._quarantine = quarantine
        self._lock = anyio.Lock(fast_acquire=True)
        self._watches: dict[Watch, int] = {}  # each with the names that it protects, as a vocabulary's number
        self._kept: set[int] = set()  # vocabularies of the calls since a kept process could write here
        self._before: Look | None = None
        self._kept_by: set[str] = set()  # sessions of such processes; "" for one that is not known
        self._stuck: frozenset[int] = frozenset()  # vocabularies of the last audit, if it could not move a finding
        self._stuck_by: frozenset[str] = frozenset()  # sessions that can have made that finding
        self._windows: list[_Window] = []
        self._sweep_lock = anyio.Lock()
        self._sweep: Budget | None = None

    async def enter(
        self, watch: Watch, names: tuple[str, ...], apart: Sequence[str], *, kept: bool, keeps: bool
    ) -> tuple[Bound, ...]:
        """Look before a call. Returns the paths that mounts in its cell must hold."""
        async with self._lock:
            self._require_answers()
            vocabulary = self._tree.learn(names, apart)  # no look is under way
            if self._stuck:
                await self._move_what_is_stuck(watch.session_id)
            held = self._before if self._watches or self._kept or self._stuck else None
            walk = partial(self._look, vocabulary, held)
            if (tracked := self._tracked(watch)) is None:
                look, bound = await self._in_time(partial(walk, None))
            else:
                look, bound = await tracked.fed(self._in_time, walk, entering=watch.changed)
            if self._before is None or held is None:
                self._before = look
            else:
                self._before.learn(look)
            if kept:
                self._kept.add(vocabulary)
                if keeps or not self._kept_by:
                    self._kept_by.add(watch.session_id if keeps else "")
            elif not self._watches:
                self._forget_kept()
            self._watches[watch] = vocabulary
            return bound

    def _tracked(self, watch: Watch | None) -> TrackedRoot | None:
        """This directory, if the changed files of the call are looked for here."""
        changed = None if watch is None else watch.changed
        tracked = None if changed is None else changed.tracked
        return tracked if tracked is not None and tracked.root == self.root else None

    async def _in_time(self, work: Callable[[], T]) -> T:
        """Return `work()`, run in a thread. Raises HungFileSystem after `ANSWER_S`. Then the thread keeps the tree."""
        self._require_answers()
        done: list[T] = []
        running = WorkInThread(lambda: done.append(work()), done)
        # A cancelled caller still waits, so that no thread works in the tree alone.
        with anyio.move_on_after(ANSWER_S, shield=True):
            await FILES.run(running, abandon=True)
            return done[0]
        if running.give_up():
            self._hanging = running
        _log.warning("a file system below %a has not answered for %g s", self.root, ANSWER_S)
        raise HungFileSystem

    def _require_answers(self) -> None:
        """Raise HungFileSystem if a thread hangs in this tree. Log the moves of a thread that hung and has ended."""
        hanging = self._hanging
        if hanging is not None and not hanging.is_over:
            raise HungFileSystem
        self._hanging = None
        for settled in hanging.done if hanging is not None else ():
            for finding in settled.findings if isinstance(settled, Settled) else ():
                _log_late(finding)

    def _look(self, vocabulary: int, before: Look | None, feed: Feed | None) -> tuple[Look, tuple[Bound, ...]]:
        """Look, and return the paths to hold in a cell. What running calls have made is left out: it is moved soon."""
        look = self._tree.look(held=before, audience=feed)
        return look, self._tree.bound(look if before is None else look.as_in(before), vocabulary)

    async def leave(self, watch: Watch) -> bool:
        """Audit after a call without a process left. Returns whether the audit was made now: once is enough."""
        async with self._lock:
            if watch not in self._watches:
                return False
            try:
                await self._settle(None, self._tracked(watch), watch.changed)
            finally:
                del self._watches[watch]
            return True

    async def leave_kept(self, watch: Watch, *, still: bool) -> None:
        """Audit after the end of a kept process. `still`: another kept process that may write here is alive."""
        async with self._lock:
            if self._kept:
                await self._settle(watch)
                if not still:
                    self._forget_kept()

    def _forget_kept(self) -> None:
        self._kept.clear()
        self._kept_by.clear()

    def forget(self, watch: Watch) -> None:
        """Forget a call that is not sent after all."""
        self._watches.pop(watch, None)

    async def sweep(self) -> Settled | None:
        """Look longer, in the background, for what audits could not check. None if nothing is left to check."""
        async with self._sweep_lock:
            windows, self._windows = self._windows, []
            if not windows:
                return None
            active = frozenset[int]().union(*(window.active for window in windows))
            self._sweep = Budget(
                directories=SWEEP_DIRECTORIES,
                entries=SWEEP_ENTRIES,
                names=SWEEP_ENTRIES,
                path_bytes=SWEEP_ENTRIES * 1024,  # the paths are not kept
                content_bytes=0,
                seconds=SWEEP_S,
                busy=SWEEP_BUSY,
            )
            try:
                since = partial(_hold, windows)
                sweep = partial(self._tree.copy().sweep, since, self._quarantine, self._sweep, active)
                return await SWEEPS.run(sweep)
            except NoThread as error:
                self._windows += windows  # for the next sweep
                return Settled((), str(error))
            finally:
                self._sweep = None

    def _add_window(self, new: _Window) -> None:
        """Add a period. If it overlaps the last one, or there are too many, the last one is extended."""
        last = self._windows[-1] if self._windows else None
        if last is not None and (new.before.taken_ns <= last.until_ns or len(self._windows) >= MAX_WINDOWS):
            new = _Window(last.before, new.until_ns, last.active | new.active)
            self._windows.pop()
        self._windows.append(new)

    def close_drafts(self) -> None:
        """Remove the copies of git's settings, when no cell is left."""
        if self._tree.drafts is not None:
            self._tree.drafts.close()

    def stop_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.end()

    async def _settle(
        self, leaving: Watch | None, tracked: TrackedRoot | None = None, changed: CallChanges | None = None
    ) -> None:
        """Audit, and add the findings to the watch of every running call."""
        assert self._before is not None
        active = frozenset(self._watches.values()) | (frozenset[int]() if leaving is None else self._kept)
        try:
            others = len(self._watches) > 1 or bool(self._kept)
            settle = partial(self._tree.settle, self._before, self._quarantine, active, others)
            if tracked is None:
                settled = await self._in_time(settle)
            else:
                settled = await tracked.fed(self._in_time, settle, leaving=changed)
        except NoThread as error:
            settled = Settled((), str(error))
        except HungFileSystem as error:
            self._fail(error, active)
            return
        running, sessions = self._running()
        self._stuck = active if settled.stuck else frozenset()
        self._stuck_by = frozenset(sessions) if settled.stuck else frozenset()
        if settled.unknown and not settled.replaced:
            self._add_window(_Window(self._before, time.time_ns(), active))
        for each in running:
            mine = [finding for finding in settled.findings if _may_have_made(each, finding, running)]
            self._tell(each, mine, sessions)
        told = [*running, leaving] if leaving is not None else running
        for each in told:
            if settled.unknown and not each.unknown:
                each.unknown, each.looked_for = settled.unknown, not settled.replaced
            each.stuck = each.stuck or settled.stuck
        if leaving is not None:
            leaving.findings += settled.findings

    def _fail(self, error: HungFileSystem, active: frozenset[int]) -> None:
        """Fail the calls that were not audited, and their sessions. The audit is made before anything writes here
        again."""
        running, sessions = self._running()
        self._stuck, self._stuck_by = self._stuck | active, self._stuck_by | sessions
        for each in running:
            each.hung = error
        for session_id in sessions - {""}:
            self._on_hung(session_id, str(error))

    def _running(self) -> tuple[list[Watch], set[str]]:
        """The calls that run here, and the sessions that can have made the present findings."""
        running = [each for each in self._watches if each.run is not None and each.run.cell is not None]
        return running, {*(each.session_id for each in running), *self._kept_by}

    def _tell(self, watch: Watch, findings: Sequence[Finding], sessions: set[str]) -> bool:
        """Attribute to a call the findings that its profile protects. Returns whether there were any."""
        mine = [finding for finding in findings if finding.names[self._watches[watch]]]
        again = {finding.path for finding in mine}  # findings that could not be moved before
        watch.findings = [*(finding for finding in watch.findings if finding.path not in again), *mine]
        watch.sole = watch.sole and (not mine or sessions <= {watch.session_id})
        return bool(mine)

    async def _move_what_is_stuck(self, session_id: str) -> None:
        """Try again to move what could not be moved, while calls run. Raises SandboxError if it stays and this session
        can have made it. Other sessions get a notice after a call."""
        assert self._before is not None
        others = bool(self._watches or self._kept)
        settle = partial(self._tree.settle, self._before, self._quarantine, self._stuck, others)
        settled = await self._in_time(settle)
        running, sessions = self._running()
        for finding in settled.findings:
            told = [self._tell(each, [finding], sessions) for each in running if _came_since(each, finding)]
            if not any(told):
                _log_late(finding)
        if (settled.stuck or settled.unknown) and session_id not in self._stuck_by:
            return
        if settled.stuck or settled.unknown:
            raise SandboxError(
                f"A protected name that an earlier call made is still there: {settled.stuck or settled.unknown}",
                step="quarantine",
                mechanism="protected_names",
                cure="Inspect the file and remove it.",
            )
        self._stuck, self._stuck_by = frozenset(), frozenset()

    @property
    def watches(self) -> list[Watch]:
        return list(self._watches)

    @property
    def is_stuck(self) -> bool:
        """Whether a finding that an audit could not move is still there."""
        return bool(self._stuck)

    @property
    def is_unchecked(self) -> bool:
        """Whether a sweep runs or is planned."""
        return bool(self._windows or self._sweep)


class Guarded:
    """The writable paths of a kind of cell, and the names that are protected there."""

    def __init__(self, profile: CellProfile, protection: "Protection") -> None:
        self.writable = profile.writable
        self._protection = protection
        roots = list(dict.fromkeys(map(os.path.realpath, profile.writable)))
        self._places = [protection.place(root) for root in roots]
        self._digest: tuple[tuple[Bound, ...], str] = ((), "")
        self._recorded = tuple(roots), profile.protected
        self._running: set[Watch] = set()

    async def enter(
        self, session_id: str, *, kept: bool, keeps: bool = False, changed: CallChanges | None = None
    ) -> Watch:
        """Look before a call. `kept`: a kept process may write there. `keeps`: the call's own process will be kept.
        `changed`: its changed files, for which the same walk looks.

        Raises SandboxError if the look fails, or if what an earlier call left cannot be moved. If a file system does
        not answer, the session has failed.
        """
        since_ns = moment_ns()
        watch = Watch(session_id=session_id, since_ns=since_ns, changed=changed)
        try:
            bound = tuple(
                [
                    each
                    for place in self._places
                    for each in await place.enter(watch, self._recorded[1], self._recorded[0], kept=kept, keeps=keeps)
                ]
            )
            if changed is not None and changed.tracked is not None:
                await changed.tracked.enter(changed)  # if its directory is none of the places
        except BaseException as error:
            if changed is not None and changed.tracked is not None:
                changed.tracked.forget(changed)
            for place in self._places:
                place.forget(watch)
            if isinstance(error, HungFileSystem):
                self._protection.on_hung(session_id, str(error))
            raise
        if kept:
            self._protection.held.add(self)
        if bound != self._digest[0]:
            text = "\0".join(
                f"{os.fsencode(each.path)!r} {each.pin} {each.inode} {each.born_ns} {each.source}" for each in bound
            )
            self._digest = (bound, hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
        watch.bound, watch.digest = self._digest
        if not self._running:
            self._protection.record.enter(self._recorded, since_ns, watch.bound)
        self._running.add(watch)
        return watch

    async def leave(self, watch: Watch) -> bool:
        """Audit after a call without a process left. The findings are in the watch. Returns whether the audit was made
        now: once is enough.
        """
        audited = any([await place.leave(watch) for place in self._places])
        self._running.discard(watch)
        self._leave_record()
        return audited

    async def leave_kept(self, watch: Watch, *, still: bool) -> None:
        """Audit after the end of a kept process, which may have written since its last call. `still`: another kept
        process that may write here is alive.
        """
        for place in self._places:
            await place.leave_kept(watch, still=still)
        if not still:
            self._protection.held.discard(self)
        self._leave_record()

    def _leave_record(self) -> None:
        """Note in the supervisor's record that nothing can write here any more and nothing is left to be moved."""
        busy = self._running or self in self._protection.held or any(place.is_stuck for place in self._places)
        if not busy:
            self._protection.record.leave(self._recorded)

    async def look_on(self) -> Settled:
        """Look longer, in the background, for what an audit could not check in its time."""
        found: list[Finding] = []
        unknown = stuck = ""
        for place in self._places:
            settled = await place.sweep()
            if settled is not None:
                found += settled.findings
                unknown, stuck = unknown or settled.unknown, stuck or settled.stuck
        return Settled(tuple(found), unknown, stuck)

    @property
    def watches(self) -> list[Watch]:
        return list(dict.fromkeys(watch for place in self._places for watch in place.watches))


class Protection:
    """All guarded paths of a supervisor, and its one quarantine."""

    def __init__(
        self,
        quarantine: str | None,
        record: RunRecord | None = None,
        *,
        elsewhere: bool = False,
        on_hung: Callable[[str, str], None] = lambda _session_id, _why: None,
    ) -> None:
        """`elsewhere`: the nodes of a cluster guard the paths, and nothing is guarded here. `on_hung` fails a session,
        by its id, for a reason."""
        self.quarantine = Quarantine(quarantine)
        self.on_hung = on_hung
        self._elsewhere = elsewhere
        self.record = record or RunRecord()
        self._places: WeakValueDictionary[str, _GuardedRoot] = WeakValueDictionary()
        self._guarded: WeakValueDictionary[tuple[tuple[str, ...], tuple[str, ...]], Guarded] = WeakValueDictionary()
        self.held: set[Guarded] = set()
        """The guards with a kept process. They outlive the sessions that made them."""

    def of(self, profile: CellProfile) -> Guarded | None:
        """The guard for cells of this profile, or None if there is nothing to guard."""
        if not profile.writable or not profile.protected or self._elsewhere:
            return None
        key = (profile.writable, profile.protected)
        guarded = self._guarded.get(key)
        if guarded is None:
            guarded = self._guarded[key] = Guarded(profile, self)
        return guarded

    def place(self, root: str) -> _GuardedRoot:
        """The guard of one writable directory."""
        place = self._places.get(root)
        if place is None:
            place = self._places[root] = _GuardedRoot(root, self.quarantine, self.record, self.on_hung)
        return place

    @property
    def awaits_kept(self) -> bool:
        """Whether a kept process is alive, or has ended and is not audited yet."""
        return bool(self.held)

    async def leave_kept(
        self, writable: tuple[str, ...], living: Sequence[tuple[str, ...]]
    ) -> tuple[Watch, list[Guarded]]:
        """Audit after the end of a kept process that could write to `writable`. The live kept processes may write to
        `living`. Returns what it left, and the guards of those paths.
        """
        watch, guards = Watch(), [each for each in self.held if overlap(each.writable, writable)]
        for guarded in guards:
            await guarded.leave_kept(watch, still=any(overlap(guarded.writable, each) for each in living))
        return watch, guards

    async def close(self) -> list[Watch]:
        """Audit the calls that were not audited. All their processes are gone. Returns those with findings."""
        left: list[Watch] = []
        for guarded in list(self._guarded.values()):
            for watch in guarded.watches:
                if await guarded.leave(watch) and watch.tells:
                    left.append(watch)
        return left

    async def end_looks(self) -> list[str]:
        """End the sweeps after a short time. Returns the directories that stay unchecked."""
        places = list(self._places.values())
        with anyio.move_on_after(CLOSE_S):
            while any(place.is_unchecked for place in places):
                await anyio.sleep(0.02)
        left = [place.root for place in places if place.is_unchecked]
        for place in places:
            place.stop_sweep()
            place.close_drafts()
        return left


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether a path of the one set equals, contains or is below a path of the other."""
    return any(is_below(path, others) for path in some) or any(is_below(path, some) for path in others)
