"""What may stand in a toolcell.toml, as data: every table and key, and the check of its value.

Tables of plain checks, not pydantic: a complaint names the key, the near name and the remedy in our own words, and
never shows a value, which may be a secret. What a limit or a path may be is asked of `Limits` and `Profile` themselves.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeGuard, cast

from toolcell.credentials import Credential, parse_origin
from toolcell.http_rules import HttpRule
from toolcell.profile import Profile
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import Network, NoNetwork, ProxyNetwork
from toolcell_sandbox.network import from_wire as network_from_wire
from toolcell_sandbox.profile import CAPABILITIES, WORKER_CAPABILITIES
from toolcell_sandbox.protected import check as check_names
from toolcell_sandbox.report import NAMES
from toolcell_tools.capability import SessionKind

from .source import Key

Complaint = tuple[Key, str]
Check = Callable[[object], Iterator[Complaint]]
Schema = Mapping[str, "Schema | Check"]

_KINDS_OF_VALUE: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a fraction"),
    (str, "text"),
    (list, "a list"),
    (Mapping, "a table"),
)


def complaints(table: Mapping[str, object], schema: Schema, at: Key = ()) -> Iterator[Complaint]:
    """Everything that is wrong with a table: unknown keys and wrong values."""
    for name, value in table.items():
        key, wanted = (*at, name), schema.get(name)
        if wanted is None:
            yield key, unknown(name, schema)
        elif callable(wanted):
            yield from (((*key, *more), message) for more, message in wanted(value))
        elif is_table(value):
            yield from complaints(value, wanted, key)
        else:
            yield key, not_a("a table", value)


def unknown(name: str, schema: Schema) -> str:
    """The near name if there is one, here or one table deeper; all names otherwise."""
    names: dict[str, str] = {}
    for outer, table in schema.items():
        if not callable(table):
            names |= {inner: f"{outer}.{inner}" for inner in table}
    names |= {known: known for known in schema}
    near = get_close_matches(name, names, n=1)
    return f"unknown. Did you mean {names[near[0]]}?" if near else f"unknown. Known: {', '.join(schema)}."


def is_table(value: object) -> TypeGuard[Mapping[str, object]]:
    """A TOML table has text for keys; a mapping that a program passes may not."""
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)  # pyright: ignore[reportUnknownVariableType]


def not_a(wanted: str, value: object) -> str:
    """Of the value only its kind: it may be a secret that went astray."""
    found = next((words for kind, words in _KINDS_OF_VALUE if isinstance(value, kind)), f"a {type(value).__name__}")
    return f"should be {wanted}, is {found}."


# -- checks ------------------------------------------------------------------------------------------------------------


def flag(value: object) -> Iterator[Complaint]:
    if not isinstance(value, bool):
        yield (), not_a("true or false", value)


def text(value: object) -> Iterator[Complaint]:
    if not isinstance(value, str):
        yield (), not_a("text", value)
    elif "\0" in value:
        yield (), "has a null character. Leave it out."


def texts(value: object) -> Iterator[Complaint]:
    if not isinstance(value, (list, tuple, frozenset, set)):
        yield (), not_a("a list of text", value)
        return
    for index, each in enumerate(cast("Sequence[object]", value)):
        yield from (((index,), message) for _key, message in text(each))


def one_of(what: str, known: frozenset[str]) -> Check:
    """A list of names that are known."""

    def check(value: object) -> Iterator[Complaint]:
        wrong = list(texts(value))
        yield from wrong
        for index, name in enumerate(() if wrong else strings(value)):
            if name not in known:
                near = get_close_matches(name, known, n=1)
                remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}."
                yield (index,), f"there is no {what} {name!r}. {remedy}"

    return check


def environment(value: object) -> Iterator[Complaint]:
    if not is_table(value):
        yield (), not_a("a table of text", value)
        return
    for name, each in value.items():
        yield from variable_name(name, (name,))
        yield from (((name,), message) for _key, message in text(each))


def variable_names(value: object) -> Iterator[Complaint]:
    wrong = list(texts(value))
    yield from wrong
    for index, name in enumerate(() if wrong else strings(value)):
        yield from variable_name(name, (index,))


def variable_name(name: str, key: Key) -> Iterator[Complaint]:
    if not name or "=" in name or "\0" in name:
        yield key, "is not a name of an environment variable. Leave out '=' and what follows."


def names(value: object) -> Iterator[Complaint]:
    """Protected names; "..." for those below, and "!name" for one that is lifted. `load` looks whether it is there."""
    wrong = list(texts(value))
    yield from wrong
    for index, name in enumerate(() if wrong else strings(value)):
        try:
            check_names([name.removeprefix("!")] if name != "..." else [])
        except ValueError as error:
            yield (index,), str(error)


def limit(name: str) -> Check:
    def check(value: object) -> Iterator[Complaint]:
        number: Any = value
        try:
            Limits().replace(**{name: number})
        except ValueError as error:
            seconds = name.endswith("_s")
            numeric = isinstance(value, (int, float) if seconds else int) and not isinstance(value, bool)
            wanted = "a number of seconds" if seconds else "a whole number"
            yield (), str(error).removeprefix(f"Limits.{name} ") if numeric else not_a(f"{wanted} above zero", value)

    return check


def of_profile(name: str, shape: Check) -> Check:
    """A field of Profile: of this shape, and what Profile itself says to it."""

    def check(value: object) -> Iterator[Complaint]:
        wrong = list(shape(value))
        yield from wrong
        if not wrong:
            try:
                Profile().replace(**{name: value})
            except ValueError as error:
                yield (), str(error).removeprefix(f"Profile.{name} ")

    return check


def network(value: object) -> Iterator[Complaint]:
    """A table with `kind`; the rest of it is the fields of that policy."""
    if not is_table(value):
        yield (), not_a('a table such as { kind = "proxy", allow = ["example.org"] }', value)
        return
    known: Schema = {"kind": text, **{each.name: _anything for each in fields(ProxyNetwork)}}
    wrong = list(complaints(value, known))
    if not wrong and "kind" not in value:
        wrong = [((), 'does not say its kind. Set kind to "none", "proxy" or "host".')]
    yield from wrong
    if not wrong:
        try:
            network_of(value)
        except ValueError as error:
            yield (), str(error).removeprefix("Profile.network ")


def network_of(table: Mapping[str, object]) -> Network:
    """The policy that such a table means; the whole mapping from TOML to `Profile.network`."""
    return network_from_wire(table)


def http_rules(value: object) -> Iterator[Complaint]:
    """A list of rules, each judged by itself."""
    wrong = list(texts(value))
    yield from wrong
    for index, rule in enumerate(() if wrong else strings(value)):
        try:
            HttpRule.parse(rule)
        except ValueError as error:
            yield (index,), str(error).removeprefix("Profile.http ")


def credentials(value: object) -> Iterator[Complaint]:
    """By host, one table or a list of them; a secret itself never stands in a settings file."""
    if not is_table(value):
        yield (), not_a('a table such as { "api.example.com" = { value_env = "API_TOKEN" } }', value)
        return
    for place, given in value.items():
        try:
            parse_origin(place)
        except ValueError as error:
            yield (place,), str(error)
        for each in cast("Sequence[object]", given) if isinstance(given, (list, tuple)) else [given]:
            if not is_table(each):
                yield (place,), not_a('a table such as { value_env = "API_TOKEN", prefix = "Bearer " }', each)
                continue
            wrong = list(_credential(each))
            yield from (((place, *key), message) for key, message in wrong)


def _credential(table: Mapping[str, object]) -> Iterator[Complaint]:
    if "value" in table:
        yield ("value",), "is a secret in a file of settings. Name where it is, with value_env or value_file."
        return
    wrong = list(complaints(table, dict.fromkeys(CREDENTIAL, text)))
    yield from wrong
    if not wrong:
        try:
            Credential(**cast("dict[str, Any]", table))
        except ValueError as error:
            yield (), str(error)


def _anything(value: object) -> Iterator[Complaint]:
    yield from ()


def whole(least: int, most: int | None = None) -> Check:
    wanted = f"a whole number from {least}" + ("" if most is None else f" to {most}")

    def check(value: object) -> Iterator[Complaint]:
        if isinstance(value, bool) or not isinstance(value, int):
            yield (), not_a(wanted, value)
        elif value < least or (most is not None and value > most):
            yield (), f"should be {wanted}, is {value}."

    return check


def seconds(value: object) -> Iterator[Complaint]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        yield (), not_a("a number of seconds above zero", value)
    elif not 0 < value < math.inf:
        yield (), f"should be a number of seconds above zero, is {value}."


def strings(value: object) -> list[str]:
    """A list that `texts` had no complaint about."""
    assert isinstance(value, (list, tuple, frozenset, set))
    return [str(each) for each in cast("Sequence[object]", value)]


# -- the tables --------------------------------------------------------------------------------------------------------

PROFILE: Schema = {
    "grants": one_of("capability", CAPABILITIES),
    "limits": {each.name: limit(each.name) for each in fields(Limits)},
    "readable": texts,
    "writable": texts,
    "system": texts,
    "env": environment,
    "pass_env": variable_names,
    "network": network,
    "http": http_rules,
    "proc": flag,
    "hostname": of_profile("hostname", text),
    "protected": names,
    "unchecked": of_profile("unchecked", text),
    "quarantined": of_profile("quarantined", text),
}
"""The fields of Profile but `cwd`, which each call sets."""

CREDENTIAL = ("header", "value_env", "value_file", "prefix", "scheme")

SUPERVISOR: Schema = {
    "max_cells": whole(1),
    "standby": whole(0, 1),
    "allow_missing": one_of("mechanism", frozenset(NAMES)),
    "credentials": credentials,
    "approval_timeout_s": seconds,
    "model_bytes": whole(1),
    "quarantine": text,
}
"""What can be said of a Supervisor in data: all its arguments but objects and functions."""

FILE: Schema = {"profiles": {kind.value: PROFILE for kind in SessionKind}, "supervisor": SUPERVISOR}


def wider_than_a_worker(table: Mapping[str, object]) -> Iterator[Complaint]:
    """What a Worker's profile would ask for in vain: it holds read, memory.read and web, and nothing can widen it."""
    remedy = "Nothing can widen a Worker: leave it out, or use a Branch for this."
    for index, name in enumerate(strings(table.get("grants", ()))):
        if name not in WORKER_CAPABILITIES:
            yield ("grants", index), f"a Worker cannot be granted {name!r}. {remedy}"
    if strings(table.get("writable", ())):
        yield ("writable",), f"a Worker writes nowhere. {remedy}"
    if strings(table.get("http", ())):
        yield ("http",), f"no requests are made for a Worker. {remedy}"
    policy = table.get("network")
    if is_table(policy) and network_of(policy) != NoNetwork():
        yield ("network",), f"a Worker reaches no network. {remedy}"
