"""Byte budgets: bound the bytes buffered in the supervisor for calls; the rest stays in the pipes.

There is one `ByteBudget` for each direction in which bytes wait, so that none waits for another: results on their way
in, requests that are served, replies on their way out. Each call has an `Account` with each. Of its account, a reserve
is the call's own; the rest is drawn on the budget, first come, first served, and no call may draw more than it leaves.
So calls that take what they can leave every other call its reserve, which small frames fit into, and a share.

Pure bookkeeping: no descriptor, no clock, no task. Whoever asks is called back when there is room.
"""

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MIB: Final = 1024 * 1024
REQUEST_COST: Final = 6 * 1024
"""What a request takes beside its arguments: the task that serves it, its scope, its place in queues."""
MOST_A_BYTE: Final = 4
"""Bytes of memory per byte of a request, once decoded: a text with one character beyond U+FFFF has 4 bytes for each
(PEP 393). Of other things a request has few (`wire.frames.WireLimits`)."""


class ByteBudget:
    """At most `limit` bytes for all calls, above a reserve for each; of one call at most `per_call`."""

    def __init__(self, limit: int, *, per_call: int, reserve: int) -> None:
        self.limit = limit
        self.per_call = per_call
        self.reserve = reserve
        self.drawn = 0
        self.is_short = False  # a call waits for a share, and whoever wants one is behind it
        self._waiting: dict[Account, None] = {}  # in the order of their arrival

    def __repr__(self) -> str:
        return f"<Budget {self.drawn:,} of {self.limit:,} bytes drawn · {len(self._waiting)} calls wait>"

    def account(self) -> "Account":
        return Account(self)

    def enqueue(self, account: "Account", bytes: int) -> None:
        """The account asks for so many more, and there is no room."""
        self._waiting[account] = None
        self.is_short = self.is_short or account.may_have(bytes)

    def grant(self) -> None:
        """Give those who wait what there is room for."""
        given: list[Ask] = []
        self.is_short = False
        for account in list(self._waiting):
            while account.asks and account.may_have(account.asks[0].bytes):
                share = account.share_of(account.asks[0].bytes)
                if share and (self.is_short or not self.has_room(account, share)):
                    self.is_short = True
                    break
                given.append(account.asks.popleft())
                given[-1].charge = account.charge(given[-1].bytes)
            if not account.asks:
                self._waiting.pop(account, None)
        for ask in given:
            ask.on_room()

    def has_room(self, account: "Account", share: int) -> bool:
        """Whether the account may draw so many more; with nothing else drawn, any number."""
        left = self.limit - self.drawn - share
        return max(0, account.used - self.reserve) + share <= left or self.drawn == 0

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)


class Account:
    """The bytes that wait for one call in one direction. They stay counted until they are released, whenever that is:
    also when the call is over by then."""

    __slots__ = ("asks", "budget", "used")

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.used = 0
        self.asks: deque[Ask] = deque()

    def __repr__(self) -> str:
        return f"<Account {self.used:,} bytes · {len(self.asks)} ask for more>"

    def may_have(self, bytes: int) -> bool:
        """Whether so many more are within what a call may have; with nothing else, it may have any number."""
        return self.used + bytes <= self.budget.per_call or self.used == 0

    def share_of(self, bytes: int) -> int:
        """How many of so many more would be drawn on the budget."""
        reserve = self.budget.reserve
        return max(0, self.used + bytes - reserve) - max(0, self.used - reserve)

    def has_room(self, bytes: int) -> bool:
        """Whether so many more could be had now."""
        if self.asks or not self.may_have(bytes):
            return False
        share = self.share_of(bytes)
        return not share or (not self.budget.is_short and self.budget.has_room(self, share))

    @property
    def room(self) -> int:
        """How many more there is room for."""
        reserved = self.budget.reserve - self.used
        shared = 0 if self.budget.is_short else (self.budget.limit - self.budget.drawn + min(0, reserved)) // 2
        return max(0, min(self.budget.per_call - self.used, max(0, reserved) + max(0, shared)))

    def charge(self, bytes: int) -> "Charge":
        """Count bytes that are here already."""
        charge = Charge(self)
        charge.change(bytes)
        return charge

    def ask(self, bytes: int, on_room: Callable[[], None]) -> "Ask":
        """Ask for room for so many bytes: there is some now, or later, when `on_room` is called. They count then."""
        ask = Ask(self, bytes, on_room)
        if self.has_room(bytes):
            ask.charge = self.charge(bytes)
        else:
            self.asks.append(ask)
            self.budget.enqueue(self, bytes)
        return ask

    def withdraw(self, ask: "Ask") -> None:
        """Whoever asked does not want it any more."""
        if ask in self.asks:
            self.asks.remove(ask)
            self.budget.grant()

    def add(self, bytes: int) -> None:
        """Count so many more bytes, or fewer."""
        self.budget.drawn += self.share_of(bytes)
        self.used += bytes
        if bytes < 0 and self.budget.is_waited_for:
            self.budget.grant()


class Charge:
    """Bytes on an account, until they are released."""

    __slots__ = ("account", "bytes", "is_released")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.bytes = 0
        self.is_released = False

    def change(self, bytes: int) -> None:
        """Set the charge to `bytes`."""
        more, self.bytes = bytes - self.bytes, bytes
        if more:
            self.account.add(more)

    def release(self) -> None:
        """Release the charge. Repeated calls have no effect."""
        self.change(0)
        self.is_released = True


@dataclass(slots=True, eq=False)
class Ask:
    """Room that somebody waits for, or has: then there is a `charge`."""

    account: Account
    bytes: int
    on_room: Callable[[], None]
    charge: Charge | None = field(default=None, init=False)

    def end(self) -> None:
        """Withdraw it, or release what it was given."""
        if self.charge is None:
            self.account.withdraw(self)
        else:
            self.charge.release()


class Budgets:
    """Of one supervisor. A call may have 24 MiB of requests and 20 MiB of replies beside its result, and all calls
    together 208 MiB beyond reserves of 768 KiB each.
    """

    def __init__(self) -> None:
        self.frames = ByteBudget(96 * MIB, per_call=sys.maxsize, reserve=256 * 1024)
        self.requests = ByteBudget(48 * MIB, per_call=24 * MIB, reserve=256 * 1024)
        self.replies = ByteBudget(64 * MIB, per_call=20 * MIB, reserve=256 * 1024)

    @property
    def all(self) -> tuple[ByteBudget, ...]:
        return self.frames, self.requests, self.replies

    def expect(self, frame_bytes: int) -> None:
        """There is a cell whose results may be so large: one of them has room, and leaves as much."""
        self.frames.limit = max(self.frames.limit, 2 * frame_bytes)
