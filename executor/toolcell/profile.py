"""The profile of a session: the rules that the kernel enforces for its cells, and the rules for its HTTP requests."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import Network
from toolcell_sandbox.profile import CellProfile, require_list, texts
from toolcell_sandbox.refusal import named, refusal, refusing

__all__ = ["Profile"]

_CELL_FIELDS = tuple(CellProfile.__dataclass_fields__)


@refusing
@dataclass(frozen=True, kw_only=True)
class Profile(CellProfile):
    """What a session's calls may see, use and ask for. Immutable: `narrow` makes a narrower profile, and
    `replace` makes any other.

    `http` are the requests that the supervisor makes for tools with the grant "http", as rules like "GET,POST
    https://api.example.com/v1"; none is made without a rule. Only the supervisor uses these rules; no cell gets them.
    The other fields are those of `toolcell_sandbox.CellProfile`, which cells get.
    """

    http: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = texts("http", self.http, "rules")
        object.__setattr__(self, "http", _read(rules) if rules else ())

    def for_cell(self, **changes: Any) -> CellProfile:
        """The profile of a cell: this one without `http`, with these fields changed."""
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
        protected: Iterable[str] = (),
    ) -> Self:
        """A copy that allows no more: grants are intersected, limits minimised, paths, hosts and rules must be covered
        already, and `protected` are names to protect besides."""
        require_list("http", http)
        narrower = super().narrow(
            grants=grants,
            readable=readable,
            writable=writable,
            limits=limits,
            network=network,
            protected=protected,
        )
        if http is None:
            return narrower
        narrower = narrower.replace(http=tuple(http))
        if not narrower._asks_no_more_than(self):
            raise refusal(
                "Profile.narrow was given a rule for HTTP requests that the profile does not cover. Leave it out."
            )
        return narrower

    def is_narrower_than(self, other: CellProfile) -> bool:
        """Whether this profile allows nothing that the other does not. True for equal profiles."""
        return super().is_narrower_than(other) and self._asks_no_more_than(other)

    @property
    def requests(self) -> tuple[str, ...]:
        """The rules for HTTP requests: `http` if "http" is granted, else none."""
        return self.http if "http" in self.grants else ()

    def explain(self) -> str:
        """A description, in plain words, of what a call of such a session may do. It names environment variables
        without their values.
        """
        from toolcell_sandbox.explain import explain

        return explain(self, {"requests": _in_words(self)})

    def _asks_no_more_than(self, other: CellProfile) -> bool:
        if not self.requests:
            return True
        from .http_rules import is_narrower

        return is_narrower(self.requests, other.requests if isinstance(other, Profile) else ())


def _read(rules: Iterable[str]) -> tuple[str, ...]:
    from .http_rules import rules_of  # the import takes milliseconds, and a profile without rules does not need it

    return tuple(map(str, rules_of(rules)))


def _in_words(profile: Profile) -> list[str]:
    """A description of the HTTP requests that the supervisor makes for tools."""
    if not profile.requests:
        unused = "; its rules have no effect without the grant 'http'" if profile.http else ""
        return [f"none: no host is listed{unused}"]
    from .http_rules import METHODS, rules_of

    said: list[str] = []
    for rule in rules_of(profile.requests):
        place = str(rule).removesuffix(" private").rpartition(" ")[2]
        below = " and below" if rule.path else ""
        methods = " ".join(method for method in METHODS if method in rule.methods)
        said.append(f"{methods} {place}{below}{' (may be a private address)' if rule.private else ''}")
    return said
