"""Find what is wrong in a table of settings: its form, what no Worker can have, and what a project's file may not say.

A complaint has the key, a similar name and the remedy, never a value. A project's file comes with a repository that
nobody has checked, so it may only narrow and deny. Each key of a profile has a rule, and a key without a rule is
refused: `env` has none, because PATH, LD_PRELOAD or GIT_SSH_COMMAND decide which program a command runs. [supervisor]
has none, because it serves other projects too. The rules are stricter than `Profile.narrow`: they compare real paths,
also rules that have no effect without a grant, and name each single thing that is wider.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeGuard, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from toolcell.rules import hosts, pages
from toolcell.rules.profile import CHANGES, EXCEPTIONS, Profile
from toolcell.rules.toml.schema import FileTable
from toolcell.rules.toml.source import Key
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import NoNetwork, is_narrower
from toolcell_sandbox.network import from_wire as network_of
from toolcell_sandbox.profile import QUARANTINED, UNCHECKED, WORKER_CAPABILITIES, is_below

Complaint = tuple[Key, str]
Rule = Callable[[Profile, Profile], Iterator[Complaint]]
"""The ways in which the second profile is wider than the first: the key below the field, and a description."""
PROJECT_GLOBS: Final = 2_000
"""The most characters of all globs in a project's file together. Matching the worst of these with a text of
`MATCHED_CHARS` takes about 0.4 s, in which the event loop does nothing else."""
_NOT_DENY = "is no denial"


def complaints(table: Mapping[str, object]) -> list[Complaint]:
    """All mistakes in the table of a file."""
    try:
        FileTable.model_validate(table)
    except ValidationError as error:
        return [_complaint(each) for each in error.errors(include_url=False, include_input=False)]
    return []


def _complaint(error: ErrorDetails) -> Complaint:
    place, is_unknown = error["loc"], error["type"] == "extra_forbidden"
    if place[-1:] == ("[key]",) and not is_unknown:  # pydantic's location of a wrong key
        place = place[:-1]
    key = tuple(part for part in place if isinstance(part, str)) if place[1:2] == ("credentials",) else place
    if is_unknown:
        return key, _unknown(str(place[-1]), _model_at(place[:-1]))
    return key, str(error.get("ctx", {}).get("error") or error["msg"])


def _model_at(place: Key) -> type[BaseModel]:
    """The model of the table at this place."""
    found: Any = FileTable
    for part in place:
        found = found.model_fields[str(part)].annotation if _is_model(found) else get_args(found)[-1]
        while not _is_model(found) and get_origin(found) not in (dict, list):
            found = get_args(found)[0]  # of Annotated
    return cast("type[BaseModel]", found)


def _is_model(found: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _unknown(name: str, model: type[BaseModel]) -> str:
    """A similar name, if there is one in this table or one level deeper; otherwise all names."""
    here = [each for each, field in model.model_fields.items() if not field.exclude]
    names: dict[str, str] = {}
    for outer in here:
        inner = model.model_fields[outer].annotation
        names |= {each: f"{outer}.{each}" for each in inner.model_fields} if _is_model(inner) else {}
    names |= {known: known for known in here}
    near = get_close_matches(name, names, n=1)
    return f"unknown. Did you mean {names[near[0]]}?" if near else f"unknown. Known: {', '.join(here)}."


def wider_than_a_worker(table: Mapping[str, Any]) -> Iterator[Complaint]:
    """The grants of a Worker's profile that have no effect. A Worker has at most read, memory.read and web."""
    remedy = "Nothing can widen a Worker: leave it out, or use a Branch for this."
    for index, name in enumerate(table.get("grants", ())):
        if name not in WORKER_CAPABILITIES:
            yield ("grants", index), f"a Worker cannot be granted {name!r}. {remedy}"
    if table.get("writable"):
        yield ("writable",), f"a Worker writes nowhere. {remedy}"
    if table.get("http"):
        yield ("http",), f"no requests are made for a Worker. {remedy}"
    if "network" in table and network_of(table["network"]) != NoNetwork():
        yield ("network",), f"a Worker reaches no network. {remedy}"


# -- a project's profiles ----------------------------------------------------------------------------------------------


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


def _paths(name: str, within: tuple[str, ...], what: str, old: Profile, new: Profile) -> Iterator[Complaint]:
    """Compare real paths, because the project may have links."""
    roots = [os.path.realpath(path) for field in within for path in getattr(old, field)]
    for path in getattr(new, name):
        if not is_below(os.path.realpath(path), roots):
            yield (), f"makes {path} {what}"


def _pass_env(old: Profile, new: Profile) -> Iterator[Complaint]:
    for name in new.pass_env:
        if name not in old.pass_env:
            yield (), f"passes the environment variable {name}"


def _rules(name: str, kind: Any, what: str, old: Profile, new: Profile) -> Iterator[Complaint]:
    """Compare the rules of a field, of the module `kind`."""
    allowed = kind.rules_of(getattr(old, name))
    for index, rule in enumerate(kind.rules_of(getattr(new, name))):
        if not rule.is_within(allowed):
            yield (index,), f"allows {what} that the settings below it do not: {str(rule)!r}"


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


def _least(name: str, order: tuple[str, ...], what: str, old: Profile, new: Profile) -> Iterator[Complaint]:
    """Compare values of which the later one in `order` is the stricter one."""
    if order.index(getattr(new, name)) < order.index(getattr(old, name)):
        yield (), what


def _if(is_wider: Callable[[Profile, Profile], bool], what: str, old: Profile, new: Profile) -> Iterator[Complaint]:
    if is_wider(old, new):
        yield (), what


def _refused(old: Profile, new: Profile) -> Iterator[Complaint]:
    yield (), "is not a limit, a grant or a path"


_RULES: Mapping[str, Rule] = {
    "limits": _limits,
    "grants": _grants,
    "readable": partial(_paths, "readable", ("readable", "writable", "system"), "readable"),
    "writable": partial(_paths, "writable", ("writable",), "writable"),
    "system": partial(_paths, "system", ("system",), "readable"),
    "pass_env": _pass_env,
    "network": partial(
        _if,
        lambda old, new: not is_narrower(new.network, old.network),
        "reaches hosts, or moves more, than the settings below it allow",
    ),
    "http": partial(_rules, "http", hosts, "requests"),
    "web": partial(_rules, "web", pages, "pages"),
    "channel": _channel,
    "protected": _protected,
    "unchecked": partial(_least, "unchecked", UNCHECKED, "accepts calls that could not be audited in full"),
    "quarantined": partial(_least, "quarantined", QUARANTINED, "accepts calls that made or changed a protected name"),
    "exceptions": partial(_least, "exceptions", EXCEPTIONS, "shows the text of exceptions"),
    "changes": partial(_least, "changes", CHANGES, "says less of the files that calls change"),
    "changed_files": partial(
        _if,
        lambda old, new: new.changed_files < old.changed_files,
        "lists fewer of the files that calls change",
    ),
    "proc": partial(_if, lambda old, new: new.proc and not old.proc, "gives the cell a /proc"),
}


# -- a project's policy ------------------------------------------------------------------------------------------------


def too_many_globs(table: Mapping[str, Any]) -> Iterator[Complaint]:
    """The complaint about globs that together would take too long to match, if they do."""
    total = sum(map(len, _globs(table)))
    if total > PROJECT_GLOBS:
        what = f"has globs of {total:,} characters together, more than {PROJECT_GLOBS:,}, which would slow every call."
        yield (), what


def _globs(table: Mapping[str, Any]) -> Iterator[str]:
    for rule in table.get("rules", ()):
        yield from rule.get("arguments", {}).values()
    for name in ("kinds", "agents", "channels"):
        for inside in table.get(name, {}).values():
            yield from _globs(inside)


def no_denials(table: Mapping[str, Any]) -> Iterator[Complaint]:
    """Each decision in a policy that is not "deny", at its key."""
    for name, value in table.items():
        match name:
            case "kinds" | "agents" | "channels":
                for key, each in value.items():
                    yield from (((name, key, *inner), what) for inner, what in no_denials(each))
            case "tools":
                yield from (((name, key), _NOT_DENY) for key, each in value.items() if each != "deny")
            case "rules":
                wrong = (index for index, rule in enumerate(value) if rule["decision"] != "deny")
                yield from (((name, index, "decision"), _NOT_DENY) for index in wrong)
            case _ if value != "deny":
                yield (name,), _NOT_DENY
            case _:
                pass
