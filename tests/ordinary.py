"""An ordinary user for tests that root runs, by as_user.py: a uid of each pytest process's own, under which nobody runs
anything, for limits on processes count all processes of a user."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

AS_USER = Path(__file__).parent / "as_user.py"
_RANGE = range(20_000, 60_000)  # of accounts that people have on no usual machine, below "nobody"


def _taken() -> Iterator[int]:
    """The uids of accounts and of processes."""
    yield from (account.pw_uid for account in pwd.getpwall())
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            yield os.stat(f"/proc/{pid}").st_uid
        except FileNotFoundError:
            continue  # it has ended


USER = SystemRandom().choice(sorted(set(_RANGE) - set(_taken())))
