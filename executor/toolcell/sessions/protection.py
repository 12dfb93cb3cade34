"""Protected names around a call: what is there before it, and what has become of it when no process of it is left.

Calls that write to the same paths share one watch. The state that they are held against is that from before the first
of them: what appears while any of them runs is laid at the door of all that run, for nobody can tell whose it is. A
process that is kept over calls runs all the time.
"""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import anyio

from toolcell.backends.threads import NoThread, in_thread
from toolcell.pool.run import Run
from toolcell_sandbox.audit import Finding, Found, ProtectedTrees
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.profile import Profile, is_below
from toolcell_sandbox.quarantine import Quarantine
from toolcell_sandbox.view import Bound

_log = logging.getLogger("toolcell")
FEW_DIRECTORIES = 300  # looked at in less than a millisecond; more are looked at in a thread


@dataclass(eq=False, slots=True)
class Watch:
    """One call, from before it is sent until it has been audited."""

    bound: tuple[Bound, ...]
    digest: str
    run: Run | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    failure: str = ""  # why the audit could not be carried through


class Guarded:
    """The writable paths of a kind of cell, and the calls that may write there now."""

    def __init__(self, profile: Profile, quarantine: Quarantine, held: "set[Guarded]") -> None:
        self.writable = profile.writable
        self._trees = ProtectedTrees(profile.writable, profile.protected)
        self._quarantine = quarantine
        self._held = held  # those with a kept process; they outlive the sessions that made them
        self._lock = anyio.Lock(fast_acquire=True)
        self._watches: set[Watch] = set()
        self._before: tuple[Found, ...] | None = None
        self._kept = False  # whether a kept process could write since the last look
        self._unsettled = False  # whether the last audit failed, so that what it was to move is still there
        self._digest: tuple[tuple[Bound, ...], str] = ((), "")

    async def enter(self, *, kept: bool) -> Watch:
        """Look, before a call. `kept` says that a kept process may write there, or that the call's own will be kept.

        SandboxError where that is too much, and where what an earlier call left cannot be moved away.
        """
        async with self._lock:
            if self._unsettled:
                for each in await self._settle():
                    _log.warning("%a was %s by an earlier call, and is now at %a", each.path, each.what, each.place)
            found = await self._look()
            if self._before is None or not (self._watches or self._kept):
                self._before = found
            self._kept = kept
            if kept:
                self._held.add(self)
            bound = self._trees.bound(found)
            if bound != self._digest[0]:
                text = "\0".join(f"{os.fsencode(each.path)!r} {each.pin} {each.inode} {each.born_ns}" for each in bound)
                self._digest = (bound, hashlib.blake2b(text.encode(), digest_size=16).hexdigest())
            watch = Watch(*self._digest)
            self._watches.add(watch)
            return watch

    async def leave(self, watch: Watch) -> bool:
        """Audit, after a call of which no process is left: its findings, or the failure, are in the watch. Says whether
        it was audited now; once is enough.
        """
        async with self._lock:
            if watch not in self._watches:
                return False
            try:
                await self._settle()
            except (SandboxError, OSError, NoThread) as error:  # the tree may change under our hands in any way
                watch.failure = str(error)
            finally:
                self._watches.discard(watch)
            return True

    async def leave_kept(self, watch: Watch, *, still: bool) -> None:
        """Audit, after a process that was kept over calls, of which nothing is left: it may have written since the last
        call. `still` says that another such process lives.
        """
        async with self._lock:
            if self._kept:
                try:
                    watch.findings += await self._settle()
                except (SandboxError, OSError, NoThread) as error:
                    watch.failure = str(error)
                self._kept = still
            if not still:
                self._held.discard(self)

    async def _look(self) -> tuple[Found, ...]:
        if 0 < self._trees.directories < FEW_DIRECTORIES and not self._kept:
            return self._trees.refresh()
        return await in_thread(self._trees.refresh)

    async def _settle(self) -> list[Finding]:
        """Audit, in a thread: a call can have made more than can be looked at in a moment. All that run are told."""
        assert self._before is not None
        self._unsettled = True
        findings = await in_thread(partial(self._trees.settle, self._before, self._quarantine))
        self._unsettled = False
        for each in self._watches:
            if each.run is not None and each.run.cell is not None:
                each.findings += findings
        return findings

    @property
    def watches(self) -> list[Watch]:
        return list(self._watches)


class Protection:
    """All guarded paths of a supervisor, and its one quarantine."""

    def __init__(self, quarantine: str | None) -> None:
        self._quarantine = Quarantine(quarantine)
        self._guarded: WeakValueDictionary[tuple[tuple[str, ...], tuple[str, ...]], Guarded] = WeakValueDictionary()
        self._kept: set[Guarded] = set()

    def of(self, profile: Profile) -> Guarded | None:
        """What guards the cells of this profile; None where there is nothing to guard."""
        if not profile.writable or not profile.protected:
            return None
        key = (profile.writable, profile.protected)
        guarded = self._guarded.get(key)
        if guarded is None:
            guarded = self._guarded[key] = Guarded(profile, self._quarantine, self._kept)
        return guarded

    @property
    def awaits_kept(self) -> bool:
        """Whether a process that is kept over calls lives, or what it left has not been audited."""
        return bool(self._kept)

    async def leave_kept(self, writable: tuple[str, ...], living: Sequence[tuple[str, ...]]) -> Watch:
        """A kept process that could write there is gone, and those that live may write to `living`: what it left."""
        watch = Watch((), "")
        for guarded in [each for each in self._kept if overlap(each.writable, writable)]:
            await guarded.leave_kept(watch, still=any(overlap(guarded.writable, each) for each in living))
        return watch

    async def close(self) -> list[Watch]:
        """Audit the calls that nobody has waited for. All their processes are gone. Returns those with findings."""
        left: list[Watch] = []
        for guarded in list(self._guarded.values()):
            for watch in guarded.watches:
                if await guarded.leave(watch) and (watch.findings or watch.failure):
                    left.append(watch)
        return left


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether a path of the one is, holds or is below one of the other."""
    return any(is_below(path, others) for path in some) or any(is_below(path, some) for path in others)
