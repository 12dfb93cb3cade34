"""The store of approvals: requests, their answers and standing approvals, in memory or in a state directory.

Each row is signed (`database`), also over whether its answer was used or withdrawn. So a row that was edited or moved
to another id is invalid. A row, or a whole database, that was put back from a copy is found if it was used, withdrawn
or revoked: the journal keeps the ids. Until the journal has them, a file beside the database keeps the ids of those
that were withdrawn or revoked (`ended`). The key guards against edited rows, not against the user who owns it.

An answer is taken before its call runs. If the call then does not begin, the answer is given back: the same call, made
again, takes it.
"""

import os
import sys
import threading
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from toolcell.errors import UsageError
from toolcell.rules.patterns import check_pattern
from toolcell.store.approvals.ended import EndedBy, EndedList
from toolcell.store.approvals.request import (
    ApprovalEntry,
    ApprovalRequest,
    Approved,
    Denied,
    StandingApproval,
    canonical,
)
from toolcell.store.approvals.table import COST, ApprovalTable, text_of
from toolcell.store.cures import told
from toolcell.store.database import BUSY_S, DAY_S, Database, Signer
from toolcell.store.directory import DATABASE, ENDED, StateDirectory
from toolcell.store.schema import STATE
from toolcell.wire import forks
from toolcell.wire.budget import MIB, ByteBudget
from toolcell_tools.encode import WIDE_BITS, encode_json
from toolcell_tools.failures import Unencodable
from toolcell_tools.schemas.untrusted import compiled

__all__ = ["Approvals", "Unusable"]

ENDING_BUSY_S: Final = 1.0
KEPT_S: Final = 7 * DAY_S
"""The time for which a state directory keeps a request after its expiry."""
OPEN_BYTES: Final = 64 * MIB
"""The bytes of all sessions' requests whose answers are not used, beyond `RESERVE` bytes for each session."""
RESERVE: Final = MIB
MAX_QUESTIONS: Final = 100
"""The most pending confirmations of one tool in one session: no call waits for them, so a model could fill the
store."""
_OVER: Final = ("used", "withdrawn", "expired")
COMPARED: Final = 100
"""How many earlier requests of a tool are compared with a new one, to report those that nearly fit. Longer ones than
`table.COMPARED_BYTES` are not."""


class Unusable(Exception):
    """An answer cannot be used. The text is the end of a sentence that begins with "the approval"."""


class Approvals:
    """The requests for approval, their answers, and standing approvals: `Supervisor.approvals`, or `Approvals.open` in
    another process of the same user. The methods may be called from any thread. Each raises UsageError if its files
    cannot be read or written.

    A request is pending until it is answered, withdrawn or expired. The end of its call, or of its supervisor, does not
    end it: the same call, made again (session, tool, version and arguments), takes the answer. An answer is used once.
    """

    def __init__(
        self,
        path: Path | None = None,
        key: bytes | None = None,
        *,
        used: Iterable[str] = (),
        ended: Iterable[str] = (),
        given_back: Iterable[str] = (),
    ) -> None:
        """`path` is the database, None to keep everything in memory. As the journal knows them, `used` has the ids of
        requests whose answers were used, `ended` those that were withdrawn, and revoked standing approvals, and
        `given_back` those whose answers were taken for calls that did not begin. Raises sqlite3.Error or OSError."""
        key = key or os.urandom(32)
        self._lock = threading.Lock()
        self._database = Database(path, key, STATE, wait_s=BUSY_S)
        self._table = ApprovalTable(self._database, 0.0 if path is None else KEPT_S)
        self._file = None if path is None else EndedList(path.with_name(ENDED), Signer(key))
        self._used = set(used)
        self._ended = set(ended)
        self._told = set(self._ended)  # those of `_ended` that the journal has
        if self._file is not None:
            self._file.remove(self._told)
            self._ended.update(self._file.read())
        self._looked_at: tuple[int, int] | None = None  # `changes` at the last look for ended ones
        self._pending = 0  # as last counted
        self._waited: dict[str, int] = {}  # requests with a waiting call in this process: their changes by it
        self._closed: deque[str] = deque()  # requests of closed sessions, which `catch_up` withdraws
        self._unused = deque(set(given_back).intersection(self._table.used()))  # taken for calls that did not begin
        self._changes = 0
        self._is_ending = False
        if self._unused:
            with self._changing():
                pass
        forks.register(self)

    @classmethod
    def open(cls, state: str | Path) -> Self:
        """The approvals of a state directory, also while its supervisor runs. Raises UsageError, OSError or
        sqlite3.Error."""
        directory = StateDirectory(state)
        directory.require_private()
        directory.require_files()
        directory.require_version()
        return cls(directory.database, directory.key())

    def __repr__(self) -> str:
        return f"<Approvals {'in memory' if self._database.path is None else self._database.path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. Requests stay as they are."""
        if self._unused:
            with suppress(UsageError), self._changing():  # otherwise the next supervisor finds them in the journal
                pass
        with self._lock:
            self._database.close()

    def let_go(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork

    # -- for people and programs ---------------------------------------------------------------------------------------

    def pending(self) -> list[ApprovalEntry]:
        """The requests that wait for an answer, oldest first."""
        with self._reading():
            return [entry for entry in self._table.unanswered() if entry.state == "pending"]

    def pending_count(self) -> int:
        """The number of requests that wait for an answer, without looking at them. It never waits: while another
        process keeps a thread of this one from writing, it is the number before."""
        if self._lock.acquire(blocking=False):
            try:
                with told(DATABASE):
                    self._pending = self._table.pending()
            finally:
                self._lock.release()
        return self._pending

    def all(self) -> list[ApprovalEntry]:
        """Every request that is kept, oldest first."""
        with self._reading():
            return self._table.all()

    def get(self, id: str) -> ApprovalEntry:
        """The request with this id, or the only one whose id begins with it. Raises UsageError."""
        with self._reading():
            return self._found(id)

    def approve(
        self,
        id: str,
        *,
        arguments: Mapping[str, Any] | None = None,
        payload: Any = None,
        for_session: bool = False,
        pattern: Mapping[str, str] | None = None,
        for_s: float = DAY_S,
        by: str = "",
    ) -> StandingApproval | None:
        """Approve a pending request, with `arguments` in place of its own if they are given. `payload`, JSON data, is
        for a tool that asked for a confirmation; such an answer holds for this question and these arguments only.

        `for_session` also approves every later call of the tool in the request's session. `pattern` also approves later
        calls of the tool by the same agent: a shell glob for each argument that it names, such as `{"path": "src/*"}`.
        Either holds for `for_s` seconds and is returned. `by` names who approves, for the journal.

        Raises UsageError if there is no such request, it is not pending, `arguments` do not fit the tool's schema, or
        `pattern` does not match the request.
        """
        if for_session and pattern is not None:
            raise UsageError("for_session and pattern exclude each other. Pass one of them.")
        with self._changing():
            entry, request = self._answerable(id)
            if request.asks == "confirmation" and (arguments is not None or for_session or pattern is not None):
                raise UsageError("A confirmation holds for one call with its own arguments. Pass the id and a payload.")
            if request.asks == "approval" and payload is not None:
                raise UsageError("payload is for a tool that asked for a confirmation. This request is for approval.")
            if arguments is not None:
                _check(request, self._table.schema(entry.id), arguments)
            standing = None
            if for_session or pattern is not None:
                standing = _standing(request, pattern, now=self._database.now(), for_s=for_s, by=by)
                self._table.add_standing(standing)
            self._answer(entry.id, Approved(arguments, payload), by)
            return standing

    def deny(self, id: str, message: str = "", *, by: str = "") -> None:
        """Deny a pending request. The model reads `message`. Raises UsageError."""
        with self._changing():
            entry, _request = self._answerable(id)
            self._answer(entry.id, Denied(message), by)

    def withdraw(self, id: str) -> None:
        """End a request whose answer was not used. The call that waits for it is denied. Raises UsageError."""
        with self._changing():
            entry = self._found(id)
            if entry.state in _OVER:
                raise UsageError(f"The request {entry.id} is {entry.state}, so it cannot be withdrawn.")
            self._withdraw(entry.id)

    def standing(self) -> list[StandingApproval]:
        """The standing approvals that hold now."""
        with self._reading():
            return [each for each in self._table.standing() if each.id not in self._ended]

    def revoke(self, id: str) -> None:
        """End the standing approval with this id, or the only one whose id begins so. Raises UsageError."""
        with self._changing():
            found = [each.id for each in self._table.standing() if id and each.id.startswith(id)]
            if len(found) != 1:
                raise UsageError(f"There is no standing approval {id!r}. `toolcell approvals list` lists them.")
            self._end(found[0], "revoked")
            self._table.revoke_standing(found[0])

    # -- for the supervisor --------------------------------------------------------------------------------------------

    def submit(self, request: ApprovalRequest, schema: Mapping[str, Any]) -> ApprovalRequest:
        """Keep a request. If the same call has asked before, and no call waits for that request now, return the earlier
        request instead. `schema` is that of the tool's arguments. Raises UsageError if too many are open."""
        text = text_of(request, schema)  # not while others wait for the database: it may have megabytes
        with self._reading():
            with self._writing():
                kept = self._kept(request, text)
            self._waited[kept.id] = 0  # not before: no call waits if the disk is full
            return kept

    def now(self) -> float:
        """The time in Unix seconds, which does not go back (`Database.now`)."""
        return self._database.now()

    @property
    def is_ending(self) -> bool:
        """Whether the supervisor ends, so that calls which still wait leave their requests pending. Then nothing waits
        long for another process."""
        return self._is_ending

    @is_ending.setter
    def is_ending(self, is_ending: bool) -> None:
        self._is_ending = is_ending
        if self._lock.acquire(blocking=False):  # otherwise another thread waits, for `BUSY_S` at most
            try:
                self._database.wait_at_most(ENDING_BUSY_S if is_ending else BUSY_S)
            finally:
                self._lock.release()

    def note_unused(self, id: str) -> None:
        """Note that the call which has taken the approval of a request did not begin. The same call, made again, takes
        it. It never waits."""
        self._used.discard(id)
        self._unused.append(id)

    def note_closed(self, ids: Iterable[str]) -> None:
        """Note requests of a session that was closed, for `catch_up`. It never waits."""
        self._closed.extend(ids)

    def catch_up(self) -> None:
        """Give unused approvals back, and withdraw the requests of closed sessions, unless their answers were used.
        When this returns, no other thread is still doing so. Raises UsageError."""
        if not (self._closed or self._unused):
            with self._lock:  # which another thread has until it is done
                return
        with self._changing():
            while self._closed:
                entry = self._table.entry(self._closed[0])
                if entry is not None and entry.state not in _OVER:
                    self._withdraw(entry.id)
                self._closed.popleft()  # only now: after an error, the end of the supervisor tries again

    def leave(self, id: str) -> None:
        """Note that no call waits for the request any more."""
        self._waited.pop(id, None)

    def answer(self, id: str, answer: Approved | Denied, by: str) -> None:
        """Keep an approver's answer, unless the request has got another one or was withdrawn."""
        with self._changing():
            entry = self._table.entry(id)
            if entry is not None and entry.state == "pending":
                self._answer(id, answer, by)

    def take(self, id: str) -> tuple[Approved | Denied, str] | None:
        """The answer and who gave it; the answer is used by this. None if there is none yet. Raises Unusable."""
        with self._reading():
            entry = self._table.entry(id)
        if entry is not None and entry.state == "pending":
            return None
        with self._changing():
            self._note_ended()
            entry = self._table.entry(id)
            if entry is None:
                raise Unusable("was removed from the store")
            if entry.state == "invalid":
                raise Unusable("does not fit its signature")
            if id in self._used:
                raise Unusable("was used before")
            if id in self._ended and entry.state != "withdrawn":
                raise Unusable("was withdrawn")
            if entry.state not in ("approved", "denied"):
                raise Unusable(f"is {entry.state}")
            self._table.mark_used(id)
        self._used.add(id)
        return _answer_in(entry), entry.answered_by

    def confirmation(
        self, request: ApprovalRequest
    ) -> tuple[ApprovalRequest, Approved | Denied | None, str, float | None] | None:
        """The latest confirmation of this call that nothing has used: the question, the answer, which is used by this,
        who gave it and when (time.time()). The answer is None while the question is pending. None if there is no such
        confirmation."""
        with self._changing():
            self._note_ended()
            for id in reversed(self._table.unused(request)):
                entry = None if self._is_over(id) else self._table.entry(id)
                asked = None if entry is None else entry.request
                if entry is None or asked is None or asked.asks != "confirmation" or _of_another_call(asked, request):
                    continue
                if entry.state == "pending":
                    return asked, None, "", None
                self._table.mark_used(entry.id)
                break
            else:
                return None
        self._used.add(entry.id)
        return asked, _answer_in(entry), entry.answered_by, entry.answered_at

    def covering(self, request: ApprovalRequest) -> StandingApproval | None:
        """A standing approval of this call, if there is one."""
        with self._changing() if self._unused else self._reading():
            self._note_ended()
            living = (each for each in self._table.standing(request.tool) if each.id not in self._ended)
            return next((each for each in living if each.covers(request)), None)

    def refused(self, request: ApprovalRequest) -> list[tuple[str, str]]:
        """The answered requests that nearly fit this call, and do not hold for it: the id, and why not."""
        with self._reading():
            entries = self._table.last(request.tool, COMPARED)
        found: list[tuple[str, str]] = []
        for entry in entries:
            if entry.id == request.id or (entry.request is not None and entry.request.asks != request.asks):
                continue
            if entry.state == "invalid":
                found.append((entry.id, "does not fit its signature"))
            elif entry.approved or entry.state == "denied":
                reasons = differences(entry.request, request)
                if not reasons and (entry.state == "used" or entry.id in self._used):
                    reasons = ["was used before"]
                elif not reasons and entry.id in self._ended and entry.state != "withdrawn":
                    reasons = ["was withdrawn"]
                if len(reasons) == 1:
                    found.append((entry.id, reasons[0]))
        return found

    def end_answers(self) -> int:
        """Withdraw every approval that was not used, and revoke the standing ones, because nothing tells any more
        whether their rows were put back. Requests that wait for an answer stay. Returns how many there were."""
        with self._changing():
            found = [entry.id for entry in self._table.all() if entry.state == "approved"]
            standing = [each.id for each in self._table.standing()]
            for id in found:
                self._table.mark_withdrawn(id)
            for id in standing:
                self._table.revoke_standing(id)
            self._ended.update(found, standing)
            return len(found) + len(standing)

    def newly_ended(self) -> list[tuple[str, EndedBy, tuple[str, str, str]]]:
        """The requests and standing approvals that were withdrawn or revoked, by this process or another, since the
        last time: the id, "withdrawn" or "revoked", and a request's session, call and tool. From now on they are over,
        even if their rows are put back. It never waits; what it cannot see now is in the next answer."""
        changes = self.changes()
        if changes is None or changes == self._looked_at or not self._lock.acquire(blocking=False):
            return []
        try:
            with told(DATABASE):
                noted = dict[str, EndedBy]() if self._file is None else self._file.read()
                known: dict[str, EndedBy] = dict(noted)
                known.update(self._table.ended())
                found: list[tuple[str, EndedBy, tuple[str, str, str]]] = [
                    (id, known[id], self._table.about(id)) for id in known if id not in self._told
                ]
        finally:
            self._lock.release()
        self._looked_at = changes
        self._ended.update(id for id, _how, _about in found)
        self._told |= self._ended
        return found

    def changes(self, id: str | None = None) -> tuple[int, int] | None:
        """A value that differs after each change by another process, and after each change by this one. With the `id`
        of a request for which a call waits, changes of other requests by this process do not count. Never waits: None
        if the value cannot be read at this moment."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with told(DATABASE):
                return self._database.version(), self._changes if id is None else self._waited.get(id, 0)
        finally:
            self._lock.release()

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._lock, told(DATABASE):
            yield

    @contextmanager
    def _changing(self) -> Generator[None]:
        with self._reading(), self._writing():
            yield

    @contextmanager
    def _writing(self) -> Generator[None]:
        """A transaction. It begins with the approvals that were taken for calls which did not begin: they can be used
        again. They are forgotten here when that is kept, not before."""
        unused = list(self._unused)  # the event loop may note more meanwhile
        with self._database.transaction():
            for id in unused:
                entry = self._table.entry(id)
                if entry is not None and entry.state == "used" and entry.approved and not self._is_over(id):
                    self._table.mark_unused(id)
            yield
            self._changes += 1
        for _id in unused:
            self._unused.popleft()

    def _kept(self, request: ApprovalRequest, text: str) -> ApprovalRequest:
        """The earlier request of the same call, or this one."""
        self._table.prune()
        for id in self._table.unused(request):
            if id not in self._waited and not self._is_over(id):
                entry = self._table.entry(id)
                if entry is not None and entry.request is not None and not differences(entry.request, request):
                    return entry.request
        if request.asks == "confirmation" and self._questions(request) >= MAX_QUESTIONS:
            raise UsageError(f"{MAX_QUESTIONS} questions of the tool {request.tool!r} are open in its session.")
        if not self._has_room(request.session_id, COST + len(text)):
            raise UsageError(
                f"The open requests for approval leave no room in the session for one more of {len(text):,} bytes. "
                "Answer or withdraw some of them."
            )
        return self._table.add(request, text)

    def _answer(self, id: str, answer: Approved | Denied, by: str) -> None:
        self._table.answer(id, answer, by)
        self._note_change(id)

    def _withdraw(self, id: str) -> None:
        self._end(id, "withdrawn")
        self._table.mark_withdrawn(id)
        self._note_change(id)

    def _note_change(self, id: str) -> None:
        if id in self._waited:
            self._waited[id] += 1

    def _end(self, id: str, how: EndedBy) -> None:
        """Note an end in the file, before the database has it. Raises OSError."""
        if self._file is not None:
            self._file.add(id, how)
        self._ended.add(id)

    def _note_ended(self) -> None:
        """Note what was withdrawn or revoked by another process, also if its row was put back since."""
        if self._file is not None:
            self._ended.update(self._file.read())

    def _is_over(self, id: str) -> bool:
        """Whether a request is used or withdrawn, whatever its row says."""
        return id in self._used or id in self._ended

    def _questions(self, like: ApprovalRequest) -> int:
        """How many confirmations of this tool are pending in this session."""
        return self._table.questions(like.session_id, like.tool)

    def _has_room(self, session_id: str, bytes: int) -> bool:
        """Whether the session may have another open request of so many bytes."""
        budget = ByteBudget(OPEN_BYTES, per_call=sys.maxsize, reserve=RESERVE)
        own = budget.account()
        for session, used in self._table.bytes_by_session():
            (own if session == session_id else budget.account()).charge(used)
        return own.has_room(bytes)

    def _found(self, id: str) -> ApprovalEntry:
        ids = self._table.named(id) if id and id.isascii() else []
        found = self._table.entry(id if id in ids else ids[0]) if len(ids) == 1 or id in ids else None
        if found is None:
            which = f"{len(ids)} requests begin with {id!r}" if ids else f"There is no request {id!r}"
            raise UsageError(f"{which}. `toolcell approvals list` lists the ids.")
        return found

    def _answerable(self, id: str) -> tuple[ApprovalEntry, ApprovalRequest]:
        entry = self._found(id)
        if entry.state == "invalid" or entry.request is None:
            raise UsageError(f"The request {entry.id} does not fit its signature: its row was edited. Withdraw it.")
        self._note_ended()
        if entry.id in self._ended and entry.state != "withdrawn":
            raise UsageError(f"The request {entry.id} was withdrawn, and its row was put back. It takes no answer.")
        if entry.state != "pending":
            raise UsageError(f"The request {entry.id} is {entry.state} already. Each request takes one answer.")
        return entry, entry.request


def differences(approved: ApprovalRequest | None, request: ApprovalRequest) -> list[str]:
    """Why an approval of the one request does not hold for the other: nothing if it does."""
    if approved is None:
        return ["does not fit its signature"]
    found = _of_another_call(approved, request)
    if (approved.asks, approved.hint, canonical(approved.payload)) != (
        request.asks,
        request.hint,
        canonical(request.payload),
    ):
        found.append("is the answer to another question")
    return found


def _of_another_call(approved: ApprovalRequest, request: ApprovalRequest) -> list[str]:
    found: list[str] = []
    if approved.session_id != request.session_id:
        found.append(f"is for the session {approved.session_id}")
    elif approved.line != request.line:
        found.append(f"is for the agent {'/'.join(approved.line)}")
    if (approved.version, approved.fingerprint) != (request.version, request.fingerprint):
        found.append(f"is for another version of the tool ({approved.version})")
    if canonical(approved.arguments) != canonical(request.arguments):
        found.append("is for other arguments")
    return found


def _answer_in(entry: ApprovalEntry) -> Approved | Denied:
    return Approved(entry.arguments, entry.payload) if entry.approved else Denied(entry.message)


def _check(request: ApprovalRequest, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    problem = next(compiled(dict(schema)).iter_errors(dict(arguments)), None)
    if problem is not None:
        where = "".join(f"[{step!r}]" for step in problem.instance_path)
        raise UsageError(f"The arguments do not fit the tool {request.tool!r}: {where} {problem.message}".rstrip())
    try:
        encode_json(dict(arguments), bits=WIDE_BITS)
    except Unencodable as error:
        raise UsageError(f"The arguments cannot be sent to the tool {request.tool!r}: {error}") from None


def _standing(
    request: ApprovalRequest, pattern: Mapping[str, str] | None, *, now: float, for_s: float, by: str
) -> StandingApproval:
    """A standing approval for the request's session, or with a pattern for its agent."""
    if not 0 < for_s < float("inf"):
        raise UsageError(f"for_s is not a number of seconds: {for_s!r}. Pass how long the approval holds.")
    check_pattern("approve", pattern or {})
    approval = StandingApproval(
        id=uuid.uuid4().hex,
        tool=request.tool,
        fingerprint=request.fingerprint,
        agent_id=request.agent_id,
        ancestors=request.ancestors,
        session_id=request.session_id if pattern is None else "",
        pattern=dict(pattern or {}),
        expires_at=now + for_s,
        approved_by=by,
    )
    if not approval.covers(request):
        raise UsageError(f"The pattern {dict(approval.pattern)!r} does not match the request's arguments.")
    return approval
