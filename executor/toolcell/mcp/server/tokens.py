"""Bearer tokens: who may use a server over HTTP. Only digests are kept, and no message contains a token."""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from toolcell.errors import UsageError

__all__ = ["MIN_CHARS", "TokenList"]

MIN_CHARS: Final = 16
MAX_TOKENS: Final = 10_000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # b64token, RFC 6750 section 2.1


class TokenList:
    """The principals of a server, and their tokens. A principal may have several tokens, for a change of tokens.

    A name matches `[a-z][a-z0-9_-]{0,62}`. A token has at least 16 characters of `A-Z a-z 0-9 - . _ ~ + / =`. Raises
    UsageError, which names the principal or the line.
    """

    def __init__(self, tokens: Mapping[str, str | list[str]]) -> None:
        self._known: list[tuple[bytes, str]] = []
        for name, given in tokens.items():
            for token in [given] if isinstance(given, str) else given:
                self._add(name, token, f"of {name!r}")
        if not self._known:
            raise UsageError("There is no token. Write one line for each client: its name and its token.")

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """The tokens of a text with `name token` on each line. Blank lines and lines that begin with # are left out."""
        found: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            parts = line.split()
            if not parts or parts[0].startswith("#"):
                continue
            if len(parts) != 2:
                raise UsageError(f"Line {number} of {where} is not a name and a token, with a space between them.")
            found.setdefault(parts[0], []).append(parts[1])
        return cls(found)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The tokens of a file that only its owner can read. Raises UsageError or OSError."""
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise UsageError(f"Others can read the tokens in {str(path)!r}: run `chmod 600` on the file.")
            return cls.parse(file.read(), repr(str(path)))

    def __repr__(self) -> str:
        return f"<TokenList of {len({name for _, name in self._known})} principals>"

    def _add(self, name: str, token: str, where: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a principal. Use lower-case letters, digits, - and _.")
        if len(token) < MIN_CHARS or not _TOKEN.fullmatch(token):
            raise UsageError(f"The token {where} is too short, or has other characters than A-Z a-z 0-9 - . _ ~ + / =.")
        if len(self._known) >= MAX_TOKENS:
            raise UsageError(f"There are more than {MAX_TOKENS:,} tokens.")
        self._known.append((_digest(token), name))

    def principal(self, header: str | None) -> str | None:
        """The principal of an Authorization header, or None. The time does not depend on the token."""
        scheme, _, token = (header or "").partition(" ")
        digest = _digest(token.strip())
        found: str | None = None
        for known, name in self._known:  # all of them, whichever fits
            if hmac.compare_digest(known, digest):
                found = name
        return found if scheme.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
