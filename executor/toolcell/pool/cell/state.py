"""A cell's life as a table: `(state, event) → (state, actions)`. The table is pure; `Cell` carries out the actions.

Theory of operation. A zygote makes the cell, and only the kernel says that it is gone. So between the decision that a
cell ends and its end there is time, in which it serves nobody and still exists. Four states are for that time. They
differ in what is still owed:

- DOOMED owes the kill. The init's pid is unknown until the zygote reports it.
- LOSING owes a call its outcome. The init is killed, but the answer may be in the pipe already, and then it counts.
- RETIRING owes a kept process its teardown. Nothing is killed yet.
- DYING owes nothing. The pidfd has not reported the death yet, so no other cell may have the uid and the cgroup.

Three rules hold, and tests walk the table to check them:

1. A call is under way in BUSY, JUDGED and LOSING, and in no other state. Each event that leads from one of these three
   to a state outside them concludes the call, once.
2. Every life ends in DEAD, and each row that leads there buries the cell as its last action. So the pool hears once of
   each end, and nothing is left open.
3. Blame or excuse. When a cell ends before its first call, the next cell of its kind would probably fail in the same
   way. So its failure, or else BLAME, ends the calls that wait for such a cell. When the reason is elsewhere, as for a
   dead zygote or a cell that has served calls, EXCUSE lets these calls have another cell. An excuse is final: whatever
   the cell reports before it or after it does not count.

Each line of the picture has a state, its events, and the state to which each leads. Events without effect are left out:

    SPAWNING ─ spawned → STARTING · killed → DOOMED · not spawned, orphaned → DEAD
    STARTING ─ prewarmed → UNBOUND · lacking → BINDING · ready → READY
    STARTING ─ killed, orphaned → DYING · died → DEAD
    UNBOUND ─ claimed → BINDING · exited, killed, orphaned → DYING · died → DEAD
    BINDING ─ bound → READY · killed, exited, orphaned → DYING · died → DEAD
    READY ─ assigned → BUSY · exited → SWEEPING · retired → RETIRING
    READY ─ killed, orphaned → DYING · died → DEAD
    BUSY ─ kept answer → READY · answered, exited, ended, timed out → SWEEPING · exceeded → JUDGED
    BUSY ─ violated, failed → DYING · killed, orphaned → LOSING · died → DEAD
    JUDGED ─ swept, exited, ended → SWEEPING · violated, failed → DYING · killed, orphaned → LOSING · died → DEAD
    SWEEPING ─ ready → READY · killed, orphaned → DYING · died → DEAD
    RETIRING ─ killed, orphaned → DYING · died → DEAD
    DOOMED ─ spawned → DYING · not spawned, orphaned → DEAD
    LOSING ─ answered, kept answer, exited, ended, timed out, violated, failed → DYING · died → DEAD
    DYING ─ died → DEAD
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final


class State(Enum):
    SPAWNING = "spawning"
    """A zygote was asked to make the cell, and has not reported the init's pid yet."""
    STARTING = "starting"
    """The init enters the sandbox and loads the tools."""
    UNBOUND = "unbound"
    """The cell is prewarmed and waits for a session."""
    BINDING = "binding"
    """The cell has a session, and waits for the session's paths."""
    READY = "ready"
    """A call can be assigned."""
    BUSY = "busy"
    """A call is under way."""
    JUDGED = "judged"
    """The call's outcome is decided. Its processes are swept first, so that all they used is counted."""
    SWEEPING = "sweeping"
    """The call is concluded. The init kills the processes that are left of it."""
    RETIRING = "retiring"
    """A kept process tears down."""
    DOOMED = "doomed"
    """The cell will be killed as soon as the zygote reports the init's pid."""
    LOSING = "losing"
    """The cell was killed during a call. The call ends with a terminal frame that is already in the pipe, or else with
    the cell's death."""
    DYING = "dying"
    """The cell was killed, and its pidfd has not reported the end yet."""
    DEAD = "dead"
    """No process and no descriptor of the cell is left."""

    __hash__ = object.__hash__  # Enum's own is a Python function, which is slower


class Event(Enum):
    """Something that has happened to a cell."""

    SPAWNED = "spawned"
    """The zygote has reported the init's pid."""
    NOT_SPAWNED = "not spawned"
    """The zygote could not make the cell, or was not asked."""
    PREWARMED = "prewarmed"
    """The tools are loaded, a call process waits, and no session has claimed it."""
    CLAIMED = "claimed"
    """A session has claimed the prewarmed cell."""
    LACKING = "lacking"
    """The tools are loaded, a call process waits, and the session's paths are not in place yet."""
    BOUND = "bound"
    """The session's paths are in place."""
    READY = "ready"
    """The init has reported that the next call may come."""
    ASSIGNED = "assigned"
    """A call is assigned to the cell."""
    ANSWERED = "answered"
    """The call's result or error has arrived."""
    KEPT_ANSWER = "kept answer"
    """As ANSWERED, and the process stays for the next call."""
    EXITED = "exited"
    """The call process has ended by itself."""
    EXCEEDED = "exceeded"
    """The call has exceeded a limit."""
    TIMED_OUT = "timed out"
    """The call's deadline has come."""
    ENDED = "ended"
    """The supervisor ends the call."""
    VIOLATED = "violated"
    """The call, or the init during the call, has broken the protocol."""
    SWEPT = "swept"
    """The init has reported that no process of the call is left."""
    FAILED = "failed"
    """An exception that is a bug in toolcell was raised."""
    RETIRED = "retired"
    """The pool needs the cell's room. Its kept process may tear down first."""
    KILLED = "killed"
    """The pool needs the cell's room, or has no use for the cell any more."""
    ORPHANED = "orphaned"
    """The cell's zygote is gone, or cannot put the session's paths in place."""
    DIED = "died"
    """The pidfd has reported that the init is gone, and every process of the cell with it."""

    __hash__ = object.__hash__


class Action(Enum):
    """A step that an event requires of the cell."""

    MEET_INIT = "watch the init"
    BLAME = "note that the cell ended while it started, unless it has reported another failure"
    EXCUSE = "report no failure, so that no waiting call is ended because of this cell's end"
    ASK_FOR_PATHS = "have the zygote put the session's paths in place"
    INTRODUCE = "send the cell its session"
    OFFER = "tell the pool that a call may come"
    MEASURE = "note what the call has used, while its processes exist"
    KILL_PROCESS = "kill the call process without waiting for the init"
    SWEEP = "have the init sweep, and make the next call process"
    SWEEP_AND_COUNT = "the same, with the init's account of the call process"
    JUDGE_LATENESS = "decide whether the call was only late, or has exceeded a limit"
    JUDGE_DEATH = "decide what the cell's death means for its call"
    CONCLUDE = "give the call its outcome"
    KEEP = "reset for the next call of the kept process"
    RELEASE = "report that no process of the concluded call is left"
    TEAR_DOWN = "close the pipe of calls, and give the kept process time to tear down"
    STOP_WATCHDOG = "cancel the deadline for the start, or for the teardown"
    KILL_INIT = "kill the init"
    BURY = "close what is open, and tell the pool"

    __hash__ = object.__hash__


S, E, A = State, Event, Action  # short names keep the table readable

Row = tuple[State, tuple[Action, ...]]
TABLE: Final[Mapping[tuple[State, Event], Row]] = {
    (S.SPAWNING, E.SPAWNED): (S.STARTING, (A.MEET_INIT,)),
    (S.SPAWNING, E.NOT_SPAWNED): (S.DEAD, (A.BURY,)),
    (S.SPAWNING, E.CLAIMED): (S.SPAWNING, ()),
    (S.SPAWNING, E.KILLED): (S.DOOMED, (A.BLAME, A.STOP_WATCHDOG)),
    (S.SPAWNING, E.ORPHANED): (S.DEAD, (A.EXCUSE, A.BURY)),
    #
    (S.STARTING, E.CLAIMED): (S.STARTING, ()),
    (S.STARTING, E.SWEPT): (S.STARTING, ()),
    (S.STARTING, E.PREWARMED): (S.UNBOUND, (A.OFFER,)),
    (S.STARTING, E.LACKING): (S.BINDING, (A.ASK_FOR_PATHS,)),
    (S.STARTING, E.READY): (S.READY, (A.OFFER,)),
    (S.STARTING, E.EXITED): (S.STARTING, ()),  # the init reports the reason, or ends
    (S.STARTING, E.KILLED): (S.DYING, (A.BLAME, A.KILL_INIT)),
    (S.STARTING, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.STARTING, E.DIED): (S.DEAD, (A.BLAME, A.BURY)),
    #
    (S.UNBOUND, E.CLAIMED): (S.BINDING, (A.ASK_FOR_PATHS,)),
    (S.UNBOUND, E.EXITED): (S.DYING, (A.KILL_INIT,)),  # no session has claimed it, so no call needs it
    (S.UNBOUND, E.KILLED): (S.DYING, (A.KILL_INIT,)),
    (S.UNBOUND, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.UNBOUND, E.DIED): (S.DEAD, (A.BURY,)),
    #
    (S.BINDING, E.BOUND): (S.READY, (A.INTRODUCE, A.OFFER)),
    (S.BINDING, E.EXITED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),  # a call would be written into a pipe without a reader
    (S.BINDING, E.KILLED): (S.DYING, (A.KILL_INIT,)),
    (S.BINDING, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.BINDING, E.DIED): (S.DEAD, (A.BURY,)),
    #
    (S.READY, E.ASSIGNED): (S.BUSY, ()),
    (S.READY, E.EXITED): (S.SWEEPING, (A.RELEASE, A.SWEEP)),
    (S.READY, E.RETIRED): (S.RETIRING, (A.TEAR_DOWN,)),
    (S.READY, E.KILLED): (S.DYING, (A.KILL_INIT,)),
    (S.READY, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.READY, E.DIED): (S.DEAD, (A.BURY,)),
    #
    (S.BUSY, E.ANSWERED): (S.SWEEPING, (A.SWEEP, A.CONCLUDE)),  # SWEEP first: the init works while we conclude
    (S.BUSY, E.KEPT_ANSWER): (S.READY, (A.CONCLUDE, A.KEEP, A.OFFER)),
    (S.BUSY, E.EXITED): (S.SWEEPING, (A.SWEEP, A.CONCLUDE, A.RELEASE)),
    (S.BUSY, E.ENDED): (S.SWEEPING, (A.MEASURE, A.SWEEP, A.CONCLUDE)),
    (S.BUSY, E.TIMED_OUT): (
        S.SWEEPING,
        (A.MEASURE, A.KILL_PROCESS, A.SWEEP, A.JUDGE_LATENESS, A.CONCLUDE),
    ),  # the process dies while we find the limit that the call exceeded
    (S.BUSY, E.EXCEEDED): (S.JUDGED, (A.MEASURE, A.SWEEP_AND_COUNT)),
    (S.BUSY, E.VIOLATED): (S.DYING, (A.MEASURE, A.CONCLUDE, A.KILL_INIT)),
    (S.BUSY, E.FAILED): (S.DYING, (A.KILL_INIT, A.CONCLUDE)),
    (S.BUSY, E.KILLED): (S.LOSING, (A.KILL_INIT,)),
    (S.BUSY, E.ORPHANED): (S.LOSING, (A.KILL_INIT,)),
    (S.BUSY, E.DIED): (S.DEAD, (A.JUDGE_DEATH, A.CONCLUDE, A.BURY)),
    #
    (S.JUDGED, E.SWEPT): (S.SWEEPING, (A.CONCLUDE, A.RELEASE)),
    (S.JUDGED, E.EXITED): (S.SWEEPING, (A.CONCLUDE, A.RELEASE)),
    (S.JUDGED, E.ENDED): (S.SWEEPING, (A.MEASURE, A.CONCLUDE)),
    (S.JUDGED, E.VIOLATED): (S.DYING, (A.MEASURE, A.CONCLUDE, A.KILL_INIT)),
    (S.JUDGED, E.FAILED): (S.DYING, (A.KILL_INIT, A.CONCLUDE)),
    (S.JUDGED, E.KILLED): (S.LOSING, (A.KILL_INIT,)),
    (S.JUDGED, E.ORPHANED): (S.LOSING, (A.KILL_INIT,)),
    (S.JUDGED, E.DIED): (S.DEAD, (A.JUDGE_DEATH, A.CONCLUDE, A.BURY)),
    #
    (S.SWEEPING, E.SWEPT): (S.SWEEPING, (A.RELEASE,)),
    (S.SWEEPING, E.READY): (S.READY, (A.OFFER,)),
    (S.SWEEPING, E.EXITED): (S.SWEEPING, (A.RELEASE,)),
    (S.SWEEPING, E.KILLED): (S.DYING, (A.KILL_INIT,)),
    (S.SWEEPING, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.SWEEPING, E.DIED): (S.DEAD, (A.EXCUSE, A.BURY)),  # a new cell can probably start; if not, it reports why
    #
    (S.RETIRING, E.EXITED): (S.RETIRING, (A.KILL_INIT,)),  # it takes up room until all its processes are gone
    (S.RETIRING, E.KILLED): (S.DYING, (A.KILL_INIT,)),
    (S.RETIRING, E.ORPHANED): (S.DYING, (A.EXCUSE, A.KILL_INIT)),
    (S.RETIRING, E.DIED): (S.DEAD, (A.BURY,)),
    #
    (S.DOOMED, E.SPAWNED): (S.DYING, (A.MEET_INIT, A.KILL_INIT)),
    (S.DOOMED, E.NOT_SPAWNED): (S.DEAD, (A.BURY,)),
    (S.DOOMED, E.KILLED): (S.DOOMED, ()),
    (S.DOOMED, E.ORPHANED): (S.DEAD, (A.EXCUSE, A.BURY)),
    #
    (S.LOSING, E.ANSWERED): (S.DYING, (A.CONCLUDE,)),
    (S.LOSING, E.KEPT_ANSWER): (S.DYING, (A.CONCLUDE,)),
    (S.LOSING, E.SWEPT): (S.LOSING, ()),
    (S.LOSING, E.EXITED): (S.DYING, (A.CONCLUDE, A.RELEASE)),
    (S.LOSING, E.ENDED): (S.DYING, (A.MEASURE, A.CONCLUDE)),
    (S.LOSING, E.TIMED_OUT): (S.DYING, (A.MEASURE, A.JUDGE_LATENESS, A.CONCLUDE)),
    (S.LOSING, E.VIOLATED): (S.DYING, (A.MEASURE, A.CONCLUDE)),
    (S.LOSING, E.FAILED): (S.DYING, (A.KILL_INIT, A.CONCLUDE)),
    (S.LOSING, E.KILLED): (S.LOSING, ()),
    (S.LOSING, E.ORPHANED): (S.LOSING, ()),
    (S.LOSING, E.DIED): (S.DEAD, (A.JUDGE_DEATH, A.CONCLUDE, A.EXCUSE, A.BURY)),
    #
    (S.DYING, E.BOUND): (S.DYING, ()),  # the zygote sent it before the cell was killed
    (S.DYING, E.SWEPT): (S.DYING, (A.RELEASE,)),
    (S.DYING, E.EXITED): (S.DYING, (A.RELEASE,)),
    (S.DYING, E.KILLED): (S.DYING, ()),
    (S.DYING, E.ORPHANED): (S.DYING, (A.EXCUSE,)),
    (S.DYING, E.DIED): (S.DEAD, (A.BURY,)),
    #
    (S.DEAD, E.NOT_SPAWNED): (S.DEAD, ()),
    (S.DEAD, E.BOUND): (S.DEAD, ()),
    (S.DEAD, E.KILLED): (S.DEAD, ()),
    (S.DEAD, E.ORPHANED): (S.DEAD, ()),
}

WITH_CALL: Final = frozenset({S.BUSY, S.JUDGED, S.LOSING})
"""States in which a call is under way."""
IDLE: Final = frozenset({S.READY, S.UNBOUND})
"""States in which the cell waits for a call or for a session."""
AT_WORK: Final = WITH_CALL | {S.SWEEPING}
"""States with a call under way or a sweep after it. The pool inspects such a cell periodically."""
NOT_READY: Final = frozenset({S.SPAWNING, S.STARTING, S.BINDING})
"""States from which a cell becomes ready for its first call."""
KILLED: Final = frozenset({S.LOSING, S.DYING})
"""States in which the init was killed, and its death was not reported yet."""
UNKNOWN: Final = frozenset({S.SPAWNING, S.DOOMED})
"""States in which the init's pid is unknown."""
ENDING: Final = frozenset({S.RETIRING, S.DOOMED, S.LOSING, S.DYING, S.DEAD})
"""States in and after which the cell gets no further call."""


class Impossible(Exception):
    """An event came that has no row in the table. This is a bug in toolcell: please report it."""


class Stateful:
    """A cell's state, and the questions that the pool asks about it. Only `on` changes the state: a test checks that no
    other module sets one."""

    def __init__(self) -> None:
        self.state = State.SPAWNING
        self._do: Mapping[Action, Callable[[], object]] = {}
        """How each action is carried out."""

    def on(self, event: Event) -> None:
        """Change to the next state, and carry out its actions. An action that raises ends the cell; the rest are left
        out, except BURY, because no later event buries a dead cell. Raises Impossible."""
        try:
            self.state, actions = TABLE[self.state, event]
        except KeyError:
            raise Impossible(f"{event.value!r} cannot happen to a cell that is {self.state.value}") from None
        left = iter(actions)
        try:
            for action in left:
                self._do[action]()
        except Exception as error:
            self.fail(error)
            if Action.BURY in tuple(left):
                self._do[Action.BURY]()

    def takes(self, event: Event) -> bool:
        """Whether the table has a row for the event. A message of the cell without a row is a protocol violation."""
        return (self.state, event) in TABLE

    def fail(self, error: Exception) -> None:
        """End the cell, because one of its steps has raised this."""
        raise error

    @property
    def free(self) -> bool:
        """Whether a call can be assigned now."""
        return self.state is State.READY

    @property
    def idle(self) -> bool:
        """Whether the cell waits for a call or, if it is prewarmed, for a session."""
        return self.state in IDLE

    @property
    def starting(self) -> bool:
        """Whether the cell is not ready for its first call yet."""
        return self.state in NOT_READY

    @property
    def sweeping(self) -> bool:
        """Whether the init sweeps up after a call."""
        return self.state in (State.JUDGED, State.SWEEPING)

    @property
    def doomed(self) -> bool:
        """Whether the cell is ending or has ended."""
        return self.state in ENDING

    @property
    def at_work(self) -> bool:
        """Whether the cell runs a call, or sweeps up after one."""
        return self.state in AT_WORK
