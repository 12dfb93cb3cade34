"""Protected names around a call: what is there before it, and what has become of it when no process of it is left.

Calls that write to the same paths share one watch. The state that they are held against is that from before the first
of them: what appears while any of them runs is laid at the door of all that run, for nobody can tell whose it is. A
process that is kept over calls runs all the time.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio.to_thread import run_sync

from toolcell.pool.run import Run
from toolcell_sandbox.audit import Finding, Found, ProtectedTrees
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.profile import Profile
from toolcell_sandbox.quarantine import Quarantine
from toolcell_sandbox.view import Bound

T = TypeVar("T")
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

    def __init__(self, profile: Profile, quarantine: Quarantine) -> None:
        self._trees = ProtectedTrees(profile.writable, profile.protected)
        self._quarantine = quarantine
        self._lock = anyio.Lock(fast_acquire=True)
        self._watches: set[Watch] = set()
        self._before: tuple[Found, ...] | None = None
        self._kept = False  # whether a kept process could write at the last look
        self._digest: tuple[tuple[Bound, ...], str] = ((), "")

    async def enter(self, *, kept: bool) -> Watch:
        """Look, before a call. `kept` says that a kept process may write there. SandboxError where that is too much."""
        async with self._lock:
            found = await self._carried_out(self._trees.refresh)
            if self._before is None or not (self._watches or (kept and self._kept)):
                self._before = found
            self._kept = kept
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
                assert self._before is not None
                before = self._before
                findings = await self._carried_out(lambda: self._trees.settle(before, self._quarantine))
                for each in self._watches:
                    if each.run is not None and each.run.cell is not None:
                        each.findings += findings
            except (SandboxError, OSError) as error:  # the tree may change under our hands in any way
                watch.failure = str(error)
            finally:
                self._watches.discard(watch)
            return True

    async def _carried_out(self, step: Callable[[], T]) -> T:
        if 0 < self._trees.directories < FEW_DIRECTORIES:
            return step()
        return await run_sync(step)

    @property
    def watches(self) -> list[Watch]:
        return list(self._watches)


class Protection:
    """All guarded paths of a supervisor, and its one quarantine."""

    def __init__(self, quarantine: str | None) -> None:
        self._quarantine = Quarantine(quarantine)
        self._guarded: WeakValueDictionary[tuple[tuple[str, ...], tuple[str, ...]], Guarded] = WeakValueDictionary()

    def of(self, profile: Profile) -> Guarded | None:
        """What guards the cells of this profile; None where there is nothing to guard."""
        if not profile.writable or not profile.protected:
            return None
        key = (profile.writable, profile.protected)
        guarded = self._guarded.get(key)
        if guarded is None:
            guarded = self._guarded[key] = Guarded(profile, self._quarantine)
        return guarded

    async def close(self) -> list[Watch]:
        """Audit the calls that nobody has waited for. All their processes are gone. Returns those with findings."""
        left: list[Watch] = []
        for guarded in list(self._guarded.values()):
            for watch in guarded.watches:
                if await guarded.leave(watch) and (watch.findings or watch.failure):
                    left.append(watch)
        return left
