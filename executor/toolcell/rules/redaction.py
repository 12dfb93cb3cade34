"""What is secret, and how it is removed: from texts, values, results, and arguments for the journal.

A secret is known, or it is found. Known are the credentials and the environment of a session (`SessionSecrets`), and
the texts of a call's arguments whose names are secret (`secrets_in`): `Redaction` removes these in all their spellings.
Found are those with the form of a secret, or with a name such as "password" before them (`without_secrets`). A
malicious program can encode a secret in another way.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel

from toolcell.rules.credentials import credentials_of
from toolcell.rules.spellings import LINE, LONGEST_ESCAPE, SHORTEST, places, spelled, utf8
from toolcell_sandbox.profile import CellProfile
from toolcell_tools.artifact import Artifact
from toolcell_tools.content import AudioBlock, ImageBlock
from toolcell_tools.result import ToolResult
from toolcell_tools.signals import Signal

CREDENTIAL: Final = "[credential]"
"""In place of a secret that the supervisor knows."""
REDACTED: Final = "[redacted]"
"""In place of a secret argument of a call, and of what looks like a secret."""
WINDOW_BYTES: Final = 256 * 1024
V = TypeVar("V")


class Redaction:
    """Removes known secrets from texts and from values with texts.

    Bytes are processed in windows, so that other threads can run between them.
    """

    def __init__(self, secrets: Iterable[str], mark: str = CREDENTIAL, first: "Redaction | None" = None) -> None:
        """`first` are other secrets, with a mark of their own, which are removed first."""
        texts, self._plain = spelled(secrets)
        self._first = first
        self._mark = mark.encode()
        self._texts = sorted(texts, key=len, reverse=True)  # a secret may be part of a longer one
        self._bytes = [utf8(text) for text in self._texts]
        self.reach = LONGEST_ESCAPE * len(self._texts[0]) if self._texts else 0
        """The most bytes that a secret takes in a text."""
        self.reach = max(self.reach, 0 if first is None else first.reach)
        self._shortest = min(map(len, (*self._texts, *self._plain)), default=sys.maxsize)

    def text(self, text: str) -> str:
        """The text without the secrets. Few texts have one or an escape, and `in` finds that out fastest."""
        if self._first is not None:
            text = self._first.text(text)
        if len(text) < self._shortest:
            return text
        is_repeated = any(map(text.__contains__, self._texts))
        if is_repeated or "%" in text or "\\" in text or "&" in text:
            return self._redacted(utf8(text), self._bytes if is_repeated else ()).decode("utf-8", "surrogatepass")
        return text

    def body(self, body: bytes) -> bytes:
        """The bytes without the secrets in UTF-8."""
        return self._redacted(body if self._first is None else self._first.body(body), self._bytes)

    def value(self, value: V) -> V:
        """JSON data, a value on the wire, or a part of a result, with clean texts. Its depth is bounded where it was
        received."""
        return cast("V", self._value(value))

    def _value(self, value: object) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is str:
            return self.text(cast("str", value))
        if kind is bytes:
            return self.body(cast("bytes", value))
        if kind is list:
            return [self._value(each) for each in cast("list[object]", value)]
        if kind is dict:
            return {self._value(name): self._value(each) for name, each in cast("dict[object, object]", value).items()}
        return self._part(value)

    def _part(self, part: object) -> object:
        """A part of a result. The data of an image or a sound stays, and so does the `kind` or `type` of any part."""
        if isinstance(part, BaseModel) and not isinstance(part, (ImageBlock, AudioBlock)):
            return self._model(part)
        if isinstance(part, Artifact):
            return replace(part, path=self.text(part.path), diff=self.text(part.diff) if part.diff else part.diff)
        if isinstance(part, Signal):
            return replace(part, reason=self.text(part.reason))
        return part

    def _model(self, model: BaseModel) -> BaseModel:
        changed: dict[str, object] = {}
        for name, value in vars(model).items():
            if isinstance(value, BaseModel):
                changed[name] = self._model(value)
            elif type(value) in (str, list, dict) and name not in ("kind", "type"):
                changed[name] = self._value(value)
        return model.model_copy(update=changed)

    def result(self, result: ToolResult) -> ToolResult:
        """The result without the secrets, in all parts that a model may read."""
        changed: dict[str, object] = {"output": self._value(result.output), "display": self.text(result.display)}
        for name in ("content", "artifacts", "notices", "signals"):
            if parts := getattr(result, name):
                changed[name] = type(parts)(map(self._part, parts))
        if result.error is not None:
            changed["error"] = self._part(result.error)
        for name in ("stdout", "stderr"):
            if (captured := getattr(result, name)).text:
                changed[name] = self._part(captured)
        return result.model_copy(update=changed)

    def _redacted(self, body: bytes, repeated: Sequence[bytes]) -> bytes:
        """The bytes without `repeated`, and without the secrets of which characters are escaped."""
        redacted, copied, at = bytearray(), 0, 0
        size = max(WINDOW_BYTES, self.reach)  # else the time would be quadratic for a long secret
        while at < len(body) and self._bytes:
            begin, following = at, at + size
            window = body[begin : following + self.reach]
            for start, end in places(window, repeated, self._plain):
                if begin + start < following:  # otherwise the next window contains all of it
                    redacted += memoryview(body)[copied : begin + start]
                    redacted += self._mark
                    copied = at = begin + end
            at = max(at, following)
        return bytes(redacted + memoryview(body)[copied:]) if copied else body


_PLAIN: Final = frozenset({int, float, bool, type(None)})


def origin_of(url: str) -> str:
    """The scheme, host and port of a URL, for people. The rest may hold secrets: hosted servers have them in paths."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        return "(not a URL)"


def secrets_of_url(url: str) -> Iterator[str]:
    """The password and the values of the query in a URL, and the parts of its path that look like tokens: they are long
    and have a digit."""
    try:
        parts = urlsplit(url)
        found = {parts.password or "", *(value for _name, value in parse_qsl(parts.query))}
    except ValueError:
        return
    found |= {each for each in parts.path.split("/") if len(each) >= LINE and any(map(str.isdigit, each))}
    yield from (each for each in found | set(map(unquote, found)) if len(each) >= SHORTEST)


LEAST_CHARS: Final = 6
"""The characters of the shortest text with a known form of a secret, `://:p@`."""
_WORDS: Final = "passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|private|signing|encryption)[_-]?key|credential"
_SECRET: Final = re.compile(rf"(?i){_WORDS}|authorization|^auth$|bearer|cookie|^jwt$|^otp$")
"""The names whose values are secret."""
_IN_TEXT: Final = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^/\s@]*:[^/\s@]+(?=@)                                                        # of a URL
    | (?i:\b(?:bearer|basic)\s+[\w.~+/=-]{8,})
    | \b(?:sk-[\w-]{16,} | gh[pousr]_\w{20,} | github_pat_\w{20,} | xox[abprs]-[\w-]{10,} | glpat-[\w-]{16,}
         | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{30,} | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    ( --[\w-]{{0,40}}(?:{_WORDS})s?[ =] | (?:{_WORDS})s?\\{{0,8}}["']?\s{{0,3}}[=:]\s{{0,3}} )
    (?: (?P<double>")(?:\\.|[^"\\\n]){{4,}} | (?P<single>')(?:\\.|[^'\\\n]){{4,}}
      | (?P<nested>\\{{1,8}}["'])[^"'\\\n]{{4,}} | (?P<open>["']?)(?:[^\s"'&;,\\]|\\(?!\\{{0,8}}["'])){{4,}} )
    | ( (?:authorization|cookie)\\{{0,8}}["']?\s{{0,3}}[=:]\s{{0,3}}\\{{0,8}}["']? )
      (?:[^"'\\\r\n]|\\(?!\\{{0,8}}["'])){{4,}}
    """
)
"""`password=…`, `"token": "…"` with or without backslashes, `--api-key …` or `Authorization: …` in a text. The groups
are the parts to keep."""


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether a variable, a header or an argument of this name has a secret value."""
    return _SECRET.search(name) is not None


def without_secrets(text: str, known: Redaction | None = None) -> str:
    """The text without known secrets and without what has the form of a secret: keys of known services, private keys,
    the password in a URL, and what is assigned to a name such as "password"."""
    if known is not None:
        text = known.text(text)
    if len(text) < LEAST_CHARS or not is_suspect(text):
        return text
    return _ASSIGNED.sub(_hidden, _IN_TEXT.sub(REDACTED, text))


def _hidden(assigned: re.Match[str]) -> str:
    return "".join(group for group in assigned.groups() if group) + REDACTED


def is_suspect(text: str) -> bool:
    """Whether one of the expressions can match: it has a part of one of them. Each call asks this twice. A search for a
    letter takes much less time than one for a word, so words are looked for only in texts with their rarest letter."""
    low = text.lower()
    return (
        "@" in low
        or ("k" in low and ("key" in low or "token" in low or "cookie" in low or "sk-" in low or "akia" in low))
        or ("p" in low and ("pass" in low or "pwd" in low or "glpat" in low))
        or ("c" in low and ("secret" in low or "credential" in low or "basic " in low))
        or ("b" in low and "bearer " in low)
        or ("g" in low and "gh" in low)
        or ("x" in low and "xox" in low)
        or ("j" in low and "eyj" in low)
        or ("z" in low and ("aiza" in low or "authorization" in low))
        or "asia" in low
    )


MOST_CHARS: Final = 2_000
"""The most characters that are kept of all texts of one call's arguments."""
MOST_VALUES: Final = 200
"""The most values that are kept of one call's arguments, at all depths together."""
NAME_CHARS: Final = 64
_DEEPEST: Final = 64  # deeper arguments are refused


def secrets_in(arguments: Mapping[str, Any], depth: int = 0) -> list[str]:
    """The texts of arguments whose names are secret, at any depth with which a call can run. A tool may print them."""
    found: list[str] = []
    for name, value in arguments.items() if depth <= _DEEPEST else ():
        if isinstance(value, str):
            if len(value) >= 4 and (len(str(name)) > MOST_CHARS or is_secret(str(name))):
                found.append(value)
        elif isinstance(value, dict):
            found += secrets_in(cast("dict[str, object]", value), depth + 1)
        elif isinstance(value, list):
            for each in cast("list[object]", value):
                if isinstance(each, (str, dict, list)):
                    found += secrets_in({name: each}, depth + 1)
    return found


class BoundedCopy:
    """Makes a copy of a call's arguments. `is_complete` says whether the copy has everything."""

    def __init__(self, most_chars: int = MOST_CHARS, known: Redaction | None = None) -> None:
        """`known` are secrets that texts may repeat."""
        self.is_complete = True
        self._known = known
        self._room = most_chars
        self._values = MOST_VALUES

    def of(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The copy. Values of names such as "password" and secrets in texts are replaced, and what is long is cut."""
        kept: dict[str, Any] = {}
        for name, value in arguments.items():
            if self._values <= 0:
                self.is_complete = False
                kept["…"] = f"({len(arguments) - len(kept):,} more)"
                break
            self._values -= 1
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not validated yet
                self.is_complete = False
                kept[f"(a name that is no text){len(kept)}"] = self._kept("", value)
            elif len(name) > NAME_CHARS:
                self.is_complete = False
                is_read = len(name) <= MOST_CHARS  # the value of a longer name may be secret, and is not kept
                kept[f"{name[:NAME_CHARS]}…{len(kept)}"] = self._kept(name, value) if is_read else REDACTED
            else:
                kept[name] = self._kept(name, value)
        return kept

    def _kept(self, name: str, value: object) -> object:
        if name and is_secret(name):
            self.is_complete = False
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            if -(2**63) <= value < 2**64:  # as much as msgpack takes
                return value
            self.is_complete = False
            return self.text(hex(value)) if value.bit_length() > 10_000 else self.text(str(value))  # `str` has a bound
        if not isinstance(value, (dict, list)):  # JSON data has no other types
            self.is_complete = False
            return "…"
        if isinstance(value, dict):
            return self.of(cast("dict[str, object]", value))
        return self._list(cast("list[object]", value))

    def text(self, value: str) -> str:
        """A text without secrets, cut where the room ends."""
        room, self._room = self._room, max(0, self._room - len(value))
        if len(value) <= room:
            kept = without_secrets(value, self._known)
            if kept is not value:
                self.is_complete = self.is_complete and kept == value
            return kept
        self.is_complete = False
        begun = value[: room + (0 if self._known is None else self._known.reach)]  # no part of a secret is kept
        return f"{without_secrets(begun, self._known)[:room]}… ({len(value):,} characters)"

    def _list(self, values: list[object]) -> list[object]:
        kept: list[object] = []
        for value in values:
            if self._values <= 0:
                self.is_complete = False
                kept.append(f"… ({len(values) - len(kept):,} more)")
                break
            self._values -= 1
            kept.append(self._kept("", value))
        return kept


_DIRECTORIES = frozenset({"PWD", "OLDPWD"})  # look like passwords


class SessionSecrets:
    """The secrets of a session and of those above it. `redaction` removes them from texts; None if there are none."""

    __slots__ = ("_texts", "redaction")

    def __init__(self, above: "SessionSecrets | None" = None) -> None:
        self._texts: frozenset[str] = frozenset() if above is None else above._texts
        self.redaction: Redaction | None = None if above is None else above.redaction

    def add(
        self,
        profile: CellProfile,
        clients: Iterable[object] = (),
        headers: Mapping[str, str] | None = None,
        url: str = "",
    ) -> None:
        """Add the secrets of a profile's environment, of the credentials of clients, of fixed headers, and of the URL
        of a server."""
        of_url = secrets_of_url(url)
        self._add({*_of_environment(profile), *_of_clients(clients), *_of_headers(headers or {}), *of_url})

    def add_own(self) -> None:
        """Add the secrets of the supervisor's environment. Host tools can read them, and files may repeat them."""
        self._add({*_of_variables(os.environ)})

    def _add(self, found: set[str]) -> None:
        if not found <= self._texts:
            self._texts |= found
            self.redaction = Redaction(self._texts)


def _of_environment(profile: CellProfile) -> Iterator[str]:
    passed = {name: os.environ[name] for name in profile.pass_env if name in os.environ}
    return _of_variables({**passed, **profile.env})


def _of_variables(variables: Mapping[str, str]) -> Iterator[str]:
    """The values of variables whose names look secret, and the passwords in URLs of any variable. The path of a file
    that exists is no secret.
    """
    for name, value in variables.items():
        if len(value) < SHORTEST or name in _DIRECTORIES:
            continue
        if is_secret(name) and not (value.startswith("/") and os.path.lexists(value)):
            yield value
        elif "://" in value and "@" in value:
            scheme, _, rest = value.partition("://")
            yield from secrets_of_url(f"{scheme}://{re.split('[/?#]', rest)[0]}")


def _of_clients(clients: Iterable[object]) -> Iterator[str]:
    for credential in (each for client in clients for each in credentials_of(client)):
        try:
            yield from credential.parts(credential.read())
        except ValueError:
            continue  # it is missing now, and the request that needs it fails


def _of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if is_secret(name):
            yield from (each for each in (value, value.partition(" ")[2]) if len(each) >= SHORTEST)
