"""Rules for the pages that a session may fetch. Each rule is a line of text. No code here opens a socket.

A rule is a host, `*` for every host, or "seen" for links that the supervisor itself has found. `sessions.web_access`
compares a URL with the rules before each request.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolcell_sandbox.network import Pattern, read_pattern

EVERY = "*"
SEEN = "seen"
ALL = (EVERY,)
"""The rules that allow every page of the public web."""
_EXAMPLES = "Write it like 'docs.example.org', '*.example.com', 'seen', 'seen docs.example.org' or '*'."


@dataclass(frozen=True, slots=True)
class WebRule:
    """One parsed rule. Without `host`, it covers every host. If `seen` is true, it covers only links that the
    supervisor has found for the session, and URLs that the program gave.
    """

    host: Pattern | None
    seen: bool

    @classmethod
    def parse(cls, text: object) -> "WebRule":
        """Parse "*", "seen", "HOST" or "seen HOST". HOST is a host name or an address, or `*.` and the end of host
        names; without a port, it means the ports 80 and 443. Raises ValueError with the remedy.
        """
        words = text.split(" ") if isinstance(text, str) else []
        seen = words[:1] == [SEEN]
        rest = words[1:] if seen else words
        if len(rest) > 1 or not words or (seen and rest == [EVERY]):
            raise ValueError(f"Profile.web has a rule that cannot be read: {text!r}. {_EXAMPLES}")
        if not rest or rest == [EVERY]:
            return cls(None, seen)
        return cls(read_pattern(rest[0], "Profile.web", _EXAMPLES), seen)

    def __str__(self) -> str:
        words = [SEEN] if self.seen else []
        if self.host is not None:
            name = f"[{self.host.host}]" if ":" in self.host.host else self.host.host
            port = "" if self.host.port is None else f":{self.host.port}"
            words.append(f"{'*.' if self.host.subdomains else ''}{name}{port}")
        return " ".join(words) or EVERY

    def covers(self, host: str, port: int) -> bool:
        """Whether the rule covers a normalised host and a port, if the link has been seen."""
        return self.host is None or self.host.covers(host, port)

    def is_within(self, others: Iterable["WebRule"]) -> bool:
        """Whether one of the others covers every URL that this rule covers."""
        return any((self.seen or not other.seen) and self._is_host_within(other) for other in others)

    def common(self, other: "WebRule") -> "WebRule | None":
        """A rule for the URLs that both rules cover, or None."""
        seen = self.seen or other.seen
        for one, two in ((self, other), (other, self)):
            if one._is_host_within(two):
                return WebRule(one.host, seen)
        return None

    def _is_host_within(self, other: "WebRule") -> bool:
        return other.host is None or (self.host is not None and self.host.is_within(other.host))


def rules_of(texts: Iterable[str]) -> tuple[WebRule, ...]:
    """The rules in these lines, without duplicates."""
    return tuple(dict.fromkeys(WebRule.parse(text) for text in texts))


def is_narrower(texts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether the first rules allow only pages that the others allow. True for equal rules."""
    wider = rules_of(others)
    return all(rule.is_within(wider) for rule in rules_of(texts))


def common(texts: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Rules for the pages that both allow."""
    wider = rules_of(others)
    both = [rule.common(other) for rule in rules_of(texts) for other in wider]
    return tuple(dict.fromkeys(str(rule) for rule in both if rule is not None))
