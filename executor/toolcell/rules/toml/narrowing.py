"""Check that a project's file only narrows the settings. The file comes with a repository that nobody has checked.

Each key has a rule, and a key without a rule is refused. `env` has none, because PATH, LD_PRELOAD or GIT_SSH_COMMAND
decide which program a command runs. [supervisor] has none, because it serves other projects too.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields

from toolcell.rules import pages
from toolcell.rules.hosts import rules_of
from toolcell.rules.profile import CHANGES, EXCEPTIONS, Profile
from toolcell.rules.toml.complaints import Complaint
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import is_narrower
from toolcell_sandbox.profile import QUARANTINED, UNCHECKED, is_below

Rule = Callable[[Profile, Profile], Iterator[Complaint]]
"""The ways in which the second profile is wider than the first: the key below the field, and a description."""


def widenings(old: Profile, new: Profile, names: Iterable[str]) -> Iterator[Complaint]:
    """Everything in which `new`, which sets these fields, allows more than `old`."""
    for name in names:
        for key, what in _RULES.get(name, _refused)(old, new):
            yield (name, *key), what


def _limits(old: Profile, new: Profile) -> Iterator[Complaint]:
    for name in (field.name for field in fields(Limits)):
        before, after = getattr(old.limits, name), getattr(new.limits, name)
        if after > before:
            yield (name,), f"raises the limit from {before:g} to {after:g}"


def _grants(old: Profile, new: Profile) -> Iterator[Complaint]:
    for name in sorted(new.grants - old.grants):
        yield (), f"grants {name!r}, which the settings below it do not"


def _readable(old: Profile, new: Profile) -> Iterator[Complaint]:
    yield from _paths(new.readable, (*old.readable, *old.writable, *old.system), "readable")


def _writable(old: Profile, new: Profile) -> Iterator[Complaint]:
    yield from _paths(new.writable, old.writable, "writable")


def _system(old: Profile, new: Profile) -> Iterator[Complaint]:
    yield from _paths(new.system, old.system, "readable")


def _paths(new: Iterable[str], old: Iterable[str], what: str) -> Iterator[Complaint]:
    """Compare real paths, because the project may have links."""
    roots = [os.path.realpath(path) for path in old]
    for path in new:
        if not is_below(os.path.realpath(path), roots):
            yield (), f"makes {path} {what}"


def _pass_env(old: Profile, new: Profile) -> Iterator[Complaint]:
    for name in new.pass_env:
        if name not in old.pass_env:
            yield (), f"passes the environment variable {name}"


def _network(old: Profile, new: Profile) -> Iterator[Complaint]:
    if not is_narrower(new.network, old.network):
        yield (), "reaches hosts, or moves more, than the settings below it allow"


def _http(old: Profile, new: Profile) -> Iterator[Complaint]:
    allowed = rules_of(old.http)
    for index, rule in enumerate(rules_of(new.http)):
        if not rule.is_within(allowed):
            yield (index,), f"allows requests that the settings below it do not: {str(rule)!r}"


def _web(old: Profile, new: Profile) -> Iterator[Complaint]:
    allowed = pages.rules_of(old.web)
    for index, rule in enumerate(pages.rules_of(new.web)):
        if not rule.is_within(allowed):
            yield (index,), f"allows pages that the settings below it do not: {str(rule)!r}"


def _channel(old: Profile, new: Profile) -> Iterator[Complaint]:
    for name in ("level", "burst", "per_s"):
        before, after = getattr(old.channel, name), getattr(new.channel, name)
        if getattr(old.channel.narrowed(new.channel), name) != after:
            yield (name,), f"raises the channel's {name} from {before!r} to {after!r}"


def _protected(old: Profile, new: Profile) -> Iterator[Complaint]:
    missing = [name for name in old.protected if name not in new.protected]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield (), f"no longer protects {missing[0]}{more}"


def _unchecked(old: Profile, new: Profile) -> Iterator[Complaint]:
    if UNCHECKED.index(new.unchecked) < UNCHECKED.index(old.unchecked):
        yield (), "accepts calls that could not be audited in full"


def _quarantined(old: Profile, new: Profile) -> Iterator[Complaint]:
    if QUARANTINED.index(new.quarantined) < QUARANTINED.index(old.quarantined):
        yield (), "accepts calls that made or changed a protected name"


def _exceptions(old: Profile, new: Profile) -> Iterator[Complaint]:
    if EXCEPTIONS.index(new.exceptions) < EXCEPTIONS.index(old.exceptions):
        yield (), "shows the text of exceptions"


def _changes(old: Profile, new: Profile) -> Iterator[Complaint]:
    if CHANGES.index(new.changes) < CHANGES.index(old.changes):
        yield (), "says less of the files that calls change"


def _changed_files(old: Profile, new: Profile) -> Iterator[Complaint]:
    if new.changed_files < old.changed_files:
        yield (), "lists fewer of the files that calls change"


def _proc(old: Profile, new: Profile) -> Iterator[Complaint]:
    if new.proc and not old.proc:
        yield (), "gives the cell a /proc"


def _refused(old: Profile, new: Profile) -> Iterator[Complaint]:
    yield (), "is not a limit, a grant or a path"


_RULES: Mapping[str, Rule] = {
    "limits": _limits,
    "grants": _grants,
    "readable": _readable,
    "writable": _writable,
    "system": _system,
    "pass_env": _pass_env,
    "network": _network,
    "http": _http,
    "web": _web,
    "channel": _channel,
    "protected": _protected,
    "unchecked": _unchecked,
    "quarantined": _quarantined,
    "exceptions": _exceptions,
    "changes": _changes,
    "changed_files": _changed_files,
    "proc": _proc,
}
