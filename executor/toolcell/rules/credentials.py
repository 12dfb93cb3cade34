"""Secrets that the supervisor adds to HTTP requests: their sources and their hosts.

A Credential never shows its value, neither in its repr nor in an error. It cannot be pickled, so no tool can carry it
into a cell.
"""

import os
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Literal, NoReturn, SupportsIndex, cast

from toolcell.errors import ArgumentError
from toolcell.rules.hosts import HttpRule
from toolcell.rules.spellings import SHORTEST

__all__ = ["Credential", "Origin", "base64", "credentials_of", "parse_origin"]

Origin = tuple[str, str, int]
"""Scheme, host and port. A credential is for exactly one origin."""

LONGEST = 8 * 1024
_NAME = re.compile(r"[A-Za-z0-9-]{1,128}")
_PREFIX = re.compile(r"[\x20-\x7e]{0,128}")
_SECRET = re.compile(rf"[\x20-\x7e]{{{SHORTEST},{LONGEST}}}")
_REFUSED = frozenset(
    ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One header that goes with every request to one host: `prefix`, then the secret.

    The secret is `value`, or the environment variable `value_env` of this process, or the content of the file
    `value_file` without surrounding white space. The variable and the file are read again for each request, because
    such secrets are rotated. With `scheme="basic"` the secret is "user:password", which is sent in base64 (RFC 7617).
    Raises ValueError for invalid fields.
    """

    header: str = "Authorization"
    value: str | None = field(default=None, repr=False)
    value_env: str | None = None
    value_file: str | os.PathLike[str] | None = None
    prefix: str = ""
    scheme: Literal["plain", "basic"] = "plain"

    def __post_init__(self) -> None:
        if not _fits(_NAME, self.header) or self.header.lower() in _REFUSED:
            raise ArgumentError(
                f"Credential.header is not a header for a secret: {self.header!r}. Use a name like 'Authorization'."
            )
        if sum(each is not None for each in (self.value, self.value_env, self.value_file)) != 1:
            raise ArgumentError("A Credential has exactly one of value, value_env and value_file. Pass one of them.")
        if not _fits(_PREFIX, self.prefix):
            raise ArgumentError("Credential.prefix is not short printable ASCII. Write it like 'Bearer '.")
        if self.scheme not in ("plain", "basic"):
            raise ArgumentError(f"Credential.scheme is not known: {self.scheme!r}. Use 'plain' or 'basic'.")
        if not _is_any(self.value_env or "", str):
            raise ArgumentError(f"Credential.value_env is not a name: {self.value_env!r}. Pass the variable's name.")
        if not _is_any(self.value_file or "", str, os.PathLike):
            raise ArgumentError(f"Credential.value_file is not a path: {self.value_file!r}. Pass the file's path.")
        if self.value is not None:
            _check(self.value, "Credential.value")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "A Credential cannot be pickled, because it would be sent to a cell. Pass it to the supervisor only."
        )

    @property
    def source(self) -> str:
        """A description of the secret's source. Never the secret."""
        if self.value_env is not None:
            return f"the environment variable {self.value_env}"
        return "the program" if self.value_file is None else f"the file {os.fspath(self.value_file)}"

    def read(self) -> str:
        """The present secret. Raises ValueError, without the secret, if it is missing or invalid."""
        if self.value is not None:
            return self.value
        if self.value_env is not None:
            secret = os.environ.get(self.value_env)
            if secret is None:
                raise ArgumentError(f"{self.source} is not set. Set it, or leave the credential out.")
        else:
            assert self.value_file is not None
            try:
                with open(self.value_file, encoding="utf-8") as file:
                    secret = file.read(LONGEST + 2)
            except OSError as error:
                raise ArgumentError(f"{self.source} cannot be read: {error.strerror}. Make it readable.") from None
            except UnicodeDecodeError:
                raise ArgumentError(f"{self.source} is not text. Put only the secret into it.") from None
        secret = secret.strip()
        _check(secret, self.source)
        return secret

    def parts(self, secret: str) -> list[str]:
        """What must not be shown of this secret: itself, and for "basic" also its base64 form and the password."""
        if self.scheme != "basic":
            return [secret]
        return [secret, base64(secret), *(part for part in [secret.partition(":")[2]] if len(part) >= SHORTEST)]

    def line(self, secret: str) -> str:
        """The header's value for this secret."""
        return self.prefix + (f"Basic {base64(secret)}" if self.scheme == "basic" else secret)


def credentials_of(client: object) -> tuple[Credential, ...]:
    """The credentials that a client, web client, search engine or channel says it has, in its attribute
    `credentials`.
    """
    held: object = getattr(client, "credentials", ())
    if not isinstance(held, tuple):
        return ()
    return tuple([each for each in cast("tuple[object, ...]", held) if isinstance(each, Credential)])


def _is_any(value: object, *types: type) -> bool:
    return isinstance(value, types)


def _fits(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _check(secret: object, where: str) -> None:
    if not _fits(_SECRET, secret):
        raise ArgumentError(
            f"{where} is not {SHORTEST} to {LONGEST:,} characters of printable ASCII. Correct the secret."
        )


def parse_origin(place: str) -> Origin:
    """The origin that "api.example.com", "api.example.com:8443" or "http://127.0.0.1:8080" names. The default scheme is
    https. Raises ValueError for anything else, because a credential is for one host.
    """
    try:
        rule = None if " " in place else HttpRule.parse(f"GET {place}")
    except ValueError:
        rule = None
    if rule is None or rule.path or rule.host.subdomains or rule.host.port is None:
        raise ArgumentError(
            f"{place!r} is not one host for a credential. Write it like 'api.example.com', 'api.example.com:8443' or "
            "'http://127.0.0.1:8080'."
        )
    return rule.scheme, rule.host.host, rule.host.port


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()
