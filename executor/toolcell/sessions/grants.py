"""The grants of a call, computed by one function before anything is sent."""

from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from toolcell_tools.capability import CHANGING, Capability


@dataclass(frozen=True, slots=True)
class Grants:
    """`given` determines the cell, the kernel's rules and the broker's table. If anything is `missing`, the call does
    not run.
    """

    given: frozenset[Capability]
    missing: frozenset[Capability]


def grants_for(
    session: Set[Capability], needs: Set[Capability], uses: Set[Capability], *, mutates: bool = True
) -> Grants:
    """The session's grants ∩ the tool's needs and uses. A need that the session lacks is missing; a use is not.

    A call that must not change anything has no use that could.
    """
    if not mutates:
        uses -= CHANGING
    return _grants(frozenset(session), frozenset(needs), frozenset(uses))


@lru_cache(maxsize=1024)  # many sessions have few combinations, and share the results
def _grants(session: frozenset[Capability], needs: frozenset[Capability], uses: frozenset[Capability]) -> Grants:
    return Grants(given=session & (needs | uses), missing=needs - session)
