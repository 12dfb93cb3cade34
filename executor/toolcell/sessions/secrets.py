"""The secrets that the supervisor knows of a session: those of its own environment, and of the session's environment,
clients and tools' sources."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from toolcell.rules.credentials import credentials_of
from toolcell.rules.redaction import SHORTEST, Redaction, is_secret, secrets_of_url
from toolcell_sandbox.profile import CellProfile

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
