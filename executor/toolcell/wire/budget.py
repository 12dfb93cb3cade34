"""Byte budgets: bound the bytes that wait in the supervisor, for a call or for a session.

There is one `ByteBudget` for each kind of bytes, so that no kind waits for another: results on their way in, requests
that are served, replies on their way out, arguments of calls, requests for approval. Each call, or each session, has an
`Account` with each budget. An account has a reserve, which no other can use. What exceeds the reserve is drawn on the
budget, first come, first served. An account may draw no more than it leaves free. So greedy accounts leave a share to
every other, besides its reserve, which is enough for small frames and calls.

What a cell sends waits for room in its pipes. What a caller brings is refused if there is no room (`ByteBudget.hold`).

Pure bookkeeping: no descriptor, no clock, no task. A request for room has a callback for when there is room.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

MIB: Final = 1024 * 1024
REQUEST_COST: Final = 6 * 1024
"""Bytes that a request takes besides its arguments: the task that serves it, its scope, its queue entries."""
MOST_A_BYTE: Final = 4
"""Bytes of memory per byte of a request after decoding: a str with a character above U+FFFF has 4 bytes per character
(PEP 393). `wire.frames.WireLimits` bounds the other objects in a request."""

MOST_VALUES: Final = 25_000
"""The most values in the arguments of one call; larger data belongs in a file."""


def is_beyond(value: object, most_chars: float = math.inf) -> bool:
    """Whether a value has more than `MOST_VALUES` nested values, or more than `most_chars` characters. The search stops
    at these bounds, so its cost is bounded for any value."""
    values, chars, inside = MOST_VALUES, most_chars, [value]
    while inside and values >= 0 and chars >= 0:
        each = inside.pop()
        if isinstance(each, str):
            chars -= len(each)
        elif isinstance(each, (Mapping, list, tuple)):
            values -= len(each)  # pyright: ignore[reportUnknownArgumentType]
            if values >= 0:
                inside.extend(each)  # pyright: ignore[reportUnknownArgumentType]
            if values >= 0 and isinstance(each, Mapping):
                inside.extend(each.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return values < 0 or chars < 0


def memory_of(value: object) -> int:
    """The memory of JSON data with all nested values, in bytes. A shared value counts at each occurrence."""
    values: list[Any] = [value]
    total = 0
    while values:
        each = values.pop()
        total += sys.getsizeof(each)
        if isinstance(each, Mapping):
            values.extend(each)  # pyright: ignore[reportUnknownArgumentType]
            values.extend(each.values())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        elif isinstance(each, (list, tuple)):
            values.extend(each)  # pyright: ignore[reportUnknownArgumentType]
    return total


def oldest_beyond(sizes: Mapping[str, int], most: int, most_bytes: int) -> list[str]:
    """The oldest keys to drop, so that at most `most` keys of at most `most_bytes` are left. The newest is always left.
    `sizes` begins with the oldest."""
    found: list[str] = []
    total = sum(sizes.values())
    for key, size in list(sizes.items())[:-1]:
        if len(sizes) - len(found) <= most and total <= most_bytes:
            break
        found.append(key)
        total -= size
    return found


class ByteBudget:
    """At most `limit` bytes for all accounts, in addition to a reserve for each. One has at most `per_call` bytes."""

    def __init__(self, limit: int, *, per_call: int, reserve: int) -> None:
        self.limit = limit
        self.per_call = per_call
        self.reserve = reserve
        self.drawn = 0
        self.is_short = False  # a call waits for a share, so later requests queue behind it
        self._waiting: dict[Account, None] = {}  # in the order of arrival
        self._of: WeakValueDictionary[str, Account] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<Budget {self.drawn:,} of {self.limit:,} bytes drawn · {len(self._waiting)} calls wait>"

    def account(self) -> "Account":
        return Account(self)

    def hold(self, owner: str, bytes: int) -> "Charge | None":
        """Charge bytes to the account of an owner, such as a session. None if there is no room for them now."""
        account = self._of.get(owner)
        if account is None:
            account = self._of[owner] = Account(self)  # it lasts as long as its charges
        return account.charge(bytes) if account.has_room(bytes) else None

    def enqueue(self, account: "Account", bytes: int) -> None:
        """Queue an account's request for so many more bytes, for which there is no room."""
        self._waiting[account] = None
        self.is_short = self.is_short or account.may_have(bytes)

    def grant(self) -> None:
        """Grant the queued requests for which there is room now."""
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
        """Whether the account may draw `share` more bytes. If nothing else is drawn, it may draw any number."""
        left = self.limit - self.drawn - share
        return max(0, account.used - self.reserve) + share <= left or self.drawn == 0

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)


class Account:
    """The bytes of one kind that wait for one call or session. They are counted until they are released, even if the
    call is over by then."""

    __slots__ = ("__weakref__", "asks", "budget", "used")

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.used = 0
        self.asks: deque[Ask] = deque()

    def __repr__(self) -> str:
        return f"<Account {self.used:,} bytes · {len(self.asks)} ask for more>"

    def may_have(self, bytes: int) -> bool:
        """Whether so many more bytes are within the bound for one call. A call without others may have any number."""
        return self.used + bytes <= self.budget.per_call or self.used == 0

    def share_of(self, bytes: int) -> int:
        """How many of `bytes` more bytes would be drawn on the budget, beyond the reserve."""
        reserve = self.budget.reserve
        return max(0, self.used + bytes - reserve) - max(0, self.used - reserve)

    def has_room(self, bytes: int) -> bool:
        """Whether there is room for so many more bytes now."""
        if self.asks or not self.may_have(bytes):
            return False
        share = self.share_of(bytes)
        return not share or (not self.budget.is_short and self.budget.has_room(self, share))

    @property
    def room(self) -> int:
        """The number of bytes for which there is room now."""
        reserved = self.budget.reserve - self.used
        shared = 0 if self.budget.is_short else (self.budget.limit - self.budget.drawn + min(0, reserved)) // 2
        return max(0, min(self.budget.per_call - self.used, max(0, reserved) + max(0, shared)))

    def charge(self, bytes: int) -> "Charge":
        """Count bytes that are already buffered."""
        charge = Charge(self)
        charge.change(bytes)
        return charge

    def ask(self, bytes: int, on_room: Callable[[], None]) -> "Ask":
        """Ask for room for so many bytes. If it is granted later, `on_room` is called. Granted bytes count as used."""
        ask = Ask(self, bytes, on_room)
        if self.has_room(bytes):
            ask.charge = self.charge(bytes)
        else:
            self.asks.append(ask)
            self.budget.enqueue(self, bytes)
        return ask

    def withdraw(self, ask: "Ask") -> None:
        """Withdraw a request for room."""
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
    """A request for room. Once it is granted, it has a `charge`."""

    account: Account
    bytes: int
    on_room: Callable[[], None]
    charge: Charge | None = field(default=None, init=False)

    def end(self) -> None:
        """Withdraw the request, or release its charge."""
        if self.charge is None:
            self.account.withdraw(self)
        else:
            self.charge.release()


class Budgets:
    """The budgets of one supervisor. A call may have 24 MiB of requests and 20 MiB of replies besides its result. All
    calls together may have 208 MiB in addition to reserves of 768 KiB each. The arguments of all calls that have begun
    may have 128 MiB in addition to reserves of 1 MiB for each session.
    """

    def __init__(self) -> None:
        self.frames = ByteBudget(96 * MIB, per_call=sys.maxsize, reserve=256 * 1024)
        self.requests = ByteBudget(48 * MIB, per_call=24 * MIB, reserve=256 * 1024)
        self.replies = ByteBudget(64 * MIB, per_call=20 * MIB, reserve=256 * 1024)
        self.arguments = ByteBudget(128 * MIB, per_call=sys.maxsize, reserve=MIB)

    @property
    def all(self) -> tuple[ByteBudget, ...]:
        return self.frames, self.requests, self.replies

    def expect(self, frame_bytes: int) -> None:
        """Enlarge the budget for a cell whose results may be so large: one result must fit and leave as much free."""
        self.frames.limit = max(self.frames.limit, 2 * frame_bytes)
