"""The profile of a session: the kernel's rules for its cells, and the rules for the HTTP requests, pages and messages
that the supervisor makes, fetches and sends for them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from toolcell.rules.channel import ChannelPolicy
from toolcell_sandbox.errors import named, refusal, refusing
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import Network
from toolcell_sandbox.profile import CellProfile, require_list, texts

__all__ = ["CHANGES", "EXCEPTIONS", "Profile", "pages_in_words"]

EXCEPTIONS = ("text", "type")
"""What a model reads of an exception; the stricter one last."""
CHANGES = ("off", "list", "diff")
"""What a result says of the files that its call has changed; the most last."""
MOST_CHANGED_FILES = 10_000
_CELL_FIELDS = tuple(CellProfile.__dataclass_fields__)


@refusing
@dataclass(frozen=True, kw_only=True)
class Profile(CellProfile):
    """What a session's calls may see, use and ask for. Immutable: `narrow` makes a narrower profile, and
    `replace` makes any other.

    `http` are the requests that the supervisor makes for tools with the grant "http", as rules like "GET,POST
    https://api.example.com/v1"; none is made without a rule. `web` are the pages that it fetches for tools with the
    grant "web": "*" (the default), hosts, or "seen", for links that the supervisor has found itself. `channel` is what
    tools with the grant "channel" may do there, and how often. `exceptions` says what a model reads of an exception
    that a tool raised: "text" is its type and its text, "type" its type only. `changes` says what a result tells of the
    files that its call has changed in the workspace: "diff" (path, size, digest, and a diff of small texts), "list" (no
    diffs) or "off"; at most `changed_files` of them. Only the supervisor uses these fields; no
    cell gets them. The other fields are those of `toolcell_sandbox.CellProfile`, which cells get.
    """

    http: tuple[str, ...] = ()
    web: Sequence[str] = ("*",)
    channel: ChannelPolicy = field(default_factory=ChannelPolicy)
    exceptions: str = "text"
    changes: str = "diff"
    changed_files: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = texts("http", self.http, "rules")
        object.__setattr__(self, "http", _read(rules) if rules else ())
        pages = (self.web,) if isinstance(self.web, str) else texts("web", self.web, "rules")
        object.__setattr__(self, "web", pages if pages == _ALL_PAGES else _read_pages(pages))
        if not isinstance(self.channel, ChannelPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"Profile.channel is not a ChannelPolicy: {self.channel!r}. Write ChannelPolicy(level=…).")

        if self.exceptions not in EXCEPTIONS:
            raise ValueError(f"Profile.exceptions is not one of {', '.join(EXCEPTIONS)}: {self.exceptions!r}.")
        if self.changes not in CHANGES:
            raise ValueError(f"Profile.changes is not one of {', '.join(CHANGES)}: {self.changes!r}.")
        if type(self.changed_files) is not int or not 1 <= self.changed_files <= MOST_CHANGED_FILES:
            raise ValueError(
                f"Profile.changed_files is not a number from 1 to {MOST_CHANGED_FILES:,}: {self.changed_files!r}."
            )

    def for_cell(self, **changes: Any) -> CellProfile:
        """The profile of a cell: this one without the fields that only the supervisor uses, with these changed."""
        return CellProfile(**{name: getattr(self, name) for name in _CELL_FIELDS} | changes)

    @named
    def lifting(self, *names: str) -> Self:
        """A copy that does not protect these names. Raises ValueError, with a similar name, for a name that is not
        protected.
        """
        return super().lifting(*names)

    @named
    def narrow(
        self,
        *,
        grants: Iterable[str] | None = None,
        readable: Iterable[str] | None = None,
        writable: Iterable[str] | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        http: Iterable[str] | None = None,
        web: Iterable[str] | None = None,
        channel: ChannelPolicy | None = None,
        protected: Iterable[str] = (),
    ) -> Self:
        """A copy that allows no more: grants are intersected, limits and the channel's policy minimised, paths, hosts
        and rules must be covered already, and `protected` are names to protect besides."""
        require_list("http", http)
        narrower = super().narrow(
            grants=grants,
            readable=readable,
            writable=writable,
            limits=limits,
            network=network,
            protected=protected,
        )
        if channel is not None:
            narrower = narrower.replace(channel=self.channel.narrowed(channel))
        if http is not None:
            narrower = narrower.replace(http=tuple(http))
        if web is not None:
            narrower = narrower.replace(web=web if isinstance(web, str) else tuple(web))
        if not narrower._asks_no_more_than(self):
            raise refusal(
                "Profile.narrow was given a rule for HTTP requests that the profile does not cover. Leave it out."
            )
        if not narrower._reads_no_more_than(self):
            raise refusal("Profile.narrow was given a rule for pages that the profile does not cover. Leave it out.")
        return narrower

    def is_narrower_than(self, other: CellProfile) -> bool:
        """Whether this profile allows nothing that the other does not. True for equal profiles."""
        return (
            super().is_narrower_than(other)
            and self._asks_no_more_than(other)
            and self._reads_no_more_than(other)
            and self._says_no_more_than(other)
            and EXCEPTIONS.index(self.exceptions) >= EXCEPTIONS.index(getattr(other, "exceptions", "text"))
        )

    @property
    def requests(self) -> tuple[str, ...]:
        """The rules for HTTP requests: `http` if "http" is granted, else none."""
        return self.http if "http" in self.grants else ()

    @property
    def pages(self) -> tuple[str, ...]:
        """The rules for pages of the web: `web` if "web" is granted, else none."""
        return tuple(self.web) if "web" in self.grants else ()

    def explain(self) -> str:
        """A description, in plain words, of what a call of such a session may do. It names environment variables
        without their values.
        """
        from toolcell_sandbox.explain import explain

        more = {"requests": _in_words(self)}
        if self.pages not in ((), _ALL_PAGES):
            more["pages"] = pages_in_words(self)
        if "channel" in self.grants and self.channel != ChannelPolicy():
            more["channel"] = [_channel_in_words(self.channel)]
        return explain(self, more)

    def _asks_no_more_than(self, other: CellProfile) -> bool:
        if not self.requests:
            return True
        from toolcell.rules.hosts import is_narrower

        return is_narrower(self.requests, other.requests if isinstance(other, Profile) else ())

    def _reads_no_more_than(self, other: CellProfile) -> bool:
        wider = other.pages if isinstance(other, Profile) else _ALL_PAGES
        if not self.pages or wider == _ALL_PAGES:
            return True
        from toolcell.rules.pages import is_narrower

        return is_narrower(self.pages, wider)

    def _says_no_more_than(self, other: CellProfile) -> bool:
        if "channel" not in self.grants:
            return True
        return not isinstance(other, Profile) or self.channel.is_narrower_than(other.channel)


_ALL_PAGES = ("*",)


def _read_pages(rules: Iterable[str]) -> tuple[str, ...]:
    from toolcell.rules.pages import rules_of

    return tuple(map(str, rules_of(rules)))


def _read(rules: Iterable[str]) -> tuple[str, ...]:
    from toolcell.rules.hosts import (
        rules_of,  # the import takes milliseconds, and a profile without rules does not need it
    )

    return tuple(map(str, rules_of(rules)))


def _in_words(profile: Profile) -> list[str]:
    """A description of the HTTP requests that the supervisor makes for tools."""
    if not profile.requests:
        unused = "; its rules have no effect without the grant 'http'" if profile.http else ""
        return [f"none: no host is listed{unused}"]
    from toolcell.rules.hosts import METHODS, rules_of

    said: list[str] = []
    for rule in rules_of(profile.requests):
        place = str(rule).removesuffix(" private").rpartition(" ")[2]
        below = " and below" if rule.path else ""
        methods = " ".join(method for method in METHODS if method in rule.methods)
        said.append(f"{methods} {place}{below}{' (may be a private address)' if rule.private else ''}")
    return said


def pages_in_words(profile: Profile) -> list[str]:
    """A description of the pages that the supervisor fetches for tools."""
    if not profile.pages:
        return ["none"]
    if profile.pages == _ALL_PAGES:
        return ["any page of the public web"]
    from toolcell.rules.pages import rules_of

    found = "links of pages that were fetched and of searches, and URLs that the program gave"
    said: list[str] = []
    for rule in rules_of(profile.pages):
        host = str(rule).removeprefix("seen").strip()
        said.append(f"{found}{f', at {host}' if host else ''}" if rule.seen else host)
    return said


def _channel_in_words(policy: ChannelPolicy) -> str:
    """A description of what tools may do on the channel."""
    if policy.level == "none":
        return "none"
    return f"level {policy.level!r}: {policy.burst} operations at once, then {policy.per_s:g} a second"
