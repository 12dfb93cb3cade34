"""Checks of a program's arguments. Each raises ArgumentError with the remedy."""

import inspect
import math
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar, cast

from toolcell.errors import ArgumentError
from toolcell.rules.profile import Profile
from toolcell.rules.toml import Config
from toolcell_sandbox.errors import unknown
from toolcell_sandbox.report import NAMES
from toolcell_tools.capability import Capability, SessionKind

T = TypeVar("T")
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "approver": ("Approver", ("approve",)),
    "channel": ("Channel", ("send",)),
    "http": ("HttpClient", ("send",)),
    "journal": ("Journal", ("write",)),
    "memory": ("MemoryStore", ("search", "store")),
    "search": ("SearchProvider", ("search",)),
    "telemetry": ("Telemetry", ("begin",)),
    "web": ("WebClient", ("search", "fetch")),
}
"""For each argument that takes an object of the user: its protocol, and the methods that the object must have."""


def session_kind(kind: object) -> SessionKind:
    """The session kind of this name."""
    if not isinstance(kind, str) or kind not in list(SessionKind):
        raise ArgumentError(f"There is no session kind {kind!r}. {_near(kind, SessionKind)}")
    return SessionKind(kind)


def capability(name: object) -> Capability:
    """The capability of this name."""
    if not isinstance(name, str) or name not in list(Capability):
        raise ArgumentError(f"There is no capability {name!r}. {_near(name, Capability)}")
    return Capability(name)


def mechanisms(names: Iterable[str]) -> frozenset[str]:
    """The mechanisms of the sandbox with these names."""
    given = items("allow_missing", names, "{'landlock_scope'}")
    for name in given:
        if name not in NAMES:
            raise ArgumentError(f"allow_missing names no mechanism: {name!r}. {_near(name, NAMES)}")
    return frozenset(given)


def profiles_of(given: Mapping[SessionKind, Profile] | None) -> dict[SessionKind, Profile]:
    """The profile of each session kind in `given`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"profiles is not a mapping: {given!r}. Pass {{SessionKind.MAIN: profile}}.")
    for kind, profile in given.items():
        check_profile(f"profiles[{str(kind)!r}]", profile)
    return {session_kind(kind): profile for kind, profile in given.items()}


def check_profile(name: str, value: object) -> None:
    """Refuse an object that is neither a Profile nor None."""
    if value is not None and not isinstance(value, Profile):
        raise ArgumentError(f"{name} is not a Profile: {value!r}. Pass Profile.for_kind('main').replace(…).")


def check_config(value: object) -> None:
    """Refuse settings that `load_config` did not make."""
    if not isinstance(value, Config):
        raise ArgumentError(f"config is not a Config: {value!r}. Pass load_config(…).")


def seconds(name: str, value: object, otherwise: str = "") -> float:
    """`value`, a number above 0; `otherwise` says what else may be passed."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return value
    raise ArgumentError(f"{name} is not above 0: {value!r}. Pass a number of seconds{otherwise}.")


def grace(value: object) -> float:
    """`value`, a number of seconds from 0. None means infinity."""
    if value is None:
        return math.inf
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return value
    raise ArgumentError(f"grace_s is below 0: {value!r}. Pass seconds, or None for the profile's value.")


def count(name: str, value: object, otherwise: str) -> int:
    """`value`, a whole number above 0; `otherwise` says what to do without one."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ArgumentError(f"{name} is not a whole number above 0: {value!r}. {otherwise}")


def flag(name: str, value: object) -> bool:
    """`value`, True or False."""
    if isinstance(value, bool):
        return value
    raise ArgumentError(f"{name} is not True or False: {value!r}. Pass one of them, or leave it out.")


def whole(name: str, value: object) -> int:
    """`value`, a whole number from 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ArgumentError(f"{name} is not a whole number from 0 on: {value!r}. Pass the largest number allowed.")


def mapping(name: str, given: Mapping[str, T] | None) -> Mapping[str, T]:
    """`given`, a mapping, or an empty one for None."""
    if given is None:
        return {}
    if isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        return given
    raise ArgumentError(f"{name} is not a mapping: {given!r}. Pass {{'…': …}}.")


def items(name: str, given: Iterable[T], example: str) -> tuple[T, ...]:
    """The items of `given`. A single object and a text are refused."""
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return tuple(given)
    raise ArgumentError(f"{name} is not a list: {given!r}. Write {name}={example}.")


def path(name: str, value: object) -> str:
    """`value` as text, if it is a path. An empty one and a `~`, which only a shell expands, are refused."""
    found: object = os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str) or "\0" in found:
        raise ArgumentError(f"{name} is not a path: {value!r}. Pass the path of a directory.")
    if not found:
        raise ArgumentError(f"{name} is empty. Pass the path of a directory, or '.' for the current one.")
    if found.startswith("~"):
        raise ArgumentError(
            f"{name} begins with '~', which is not expanded here: {found!r}. Pass os.path.expanduser({found!r}), or "
            f"{f'./{found}'!r} for a directory of that name."
        )
    return found


def check_parts(**given: object) -> None:
    """Refuse an object that lacks a method of the protocol that its argument asks for."""
    for argument, value in given.items():
        protocol, methods = _PARTS[argument]
        if isinstance(value, type):
            raise ArgumentError(f"{argument} is the class {value.__name__}. Pass an instance: {value.__name__}(…).")
        if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
            wanted = " and ".join(f"{method}()" for method in methods)
            article = "an" if protocol[0] in "AEIOU" else "a"
            raise ArgumentError(f"{argument} is not {article} {protocol}: {value!r}. Pass an object with {wanted}.")


def check_journal(value: object) -> None:
    """Refuse a journal whose `write` is async or a generator, because its body would never run."""
    check_parts(journal=value)
    write = getattr(value, "write", None)
    if inspect.iscoroutinefunction(write) or inspect.isasyncgenfunction(write) or inspect.isgeneratorfunction(write):
        raise ArgumentError(
            f"write of {value!r} is async or a generator. Write a plain def, because its result is not awaited."
        )


def check_texts(**given: object) -> None:
    """Refuse a name or a key that is neither a text nor None."""
    for argument, value in given.items():
        if value is not None and not isinstance(value, str):
            raise ArgumentError(f"{argument} is not a text: {value!r}. Pass a str, or leave it out.")


MOST_KEY_CHARS: Final = 1_024


def is_key(value: object) -> bool:
    """Whether a value can be a key in the state directory: a text of some length that is valid Unicode."""
    if not isinstance(value, str) or not 0 < len(value) <= MOST_KEY_CHARS:
        return False
    return value.isascii() or value.encode("utf-8", "replace").decode() == value


def check_keys(**given: object) -> None:
    """Refuse a key that is neither None nor a text that can be kept in the state directory."""
    check_texts(**given)
    for argument, value in given.items():
        if isinstance(value, str) and not is_key(value):
            what = f"has {len(value):,} characters" if value else "is empty"
            what = "is not valid Unicode" if 0 < len(value) <= MOST_KEY_CHARS else what
            raise ArgumentError(f"{argument} {what}. Pass 1 to {MOST_KEY_CHARS:,} characters, or leave it out.")


def check_text(name: str, value: object) -> None:
    """Refuse a name that is not a text."""
    if not isinstance(value, str):
        raise ArgumentError(f"{name} is not a text: {value!r}. Pass a str.")


def check_callable(name: str, value: object) -> None:
    """Refuse an object that is neither a function nor None."""
    if value is not None and not callable(value):
        raise ArgumentError(f"{name} is not a function: {value!r}. Pass a function, or leave it out.")


def check_names(function: str, given: Iterable[str], options: type) -> None:
    """Refuse arguments that the function does not take. The error suggests a similar name."""
    for name in given:
        raise ArgumentError(unknown(function, name, ["name", "args", *options.__annotations__]))


def settings_of(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The settings of a session, by name."""
    if config is None:
        return {}
    if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"config is not a mapping of names: {config!r}. Pass {{'name': value}}.")
    return config


def _near(given: object, known: Iterable[str]) -> str:
    names = [str(name) for name in known]
    near = get_close_matches(str(given), names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(map(repr, names))}."
