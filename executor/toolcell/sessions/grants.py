"""What a call may do: the one function that computes it, before anything is sent."""

from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from toolcell_tools.capability import CHANGING, Capability


@dataclass(frozen=True, slots=True)
class Grants:
    """`given` goes to the cell, to the kernel's rules and to the broker's table; with anything `missing` nothing
    runs.
    """

    given: frozenset[Capability]
    missing: frozenset[Capability]


def grants_for(
    session: Set[Capability], needs: Set[Capability], uses: Set[Capability], *, mutates: bool = True
) -> Grants:
    """The session's grants ∩ what the tool needs and uses. A need that the session lacks is missing; a use is not.

    A call that is not to change anything has none of the uses that could.
    """
    if not mutates:
        uses -= CHANGING
    return _grants(frozenset(session), frozenset(needs), frozenset(uses))


@lru_cache(maxsize=1024)  # ten thousand sessions are of a few kinds, and share what is the same for them
def _grants(session: frozenset[Capability], needs: frozenset[Capability], uses: frozenset[Capability]) -> Grants:
    return Grants(given=session & (needs | uses), missing=needs - session)
