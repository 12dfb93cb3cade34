"""The tools of a server as the supervisor has them: declarations, and the requests that their calls become."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pydantic

from toolcell.rules.call import ToolCall
from toolcell.sessions.foreign_tools import ForeignTool, elsewhere
from toolcell_tools.annotations import Annotations
from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.declaration import ToolDeclaration, fingerprint
from toolcell_tools.preview import printable
from toolcell_tools.rules import DESCRIPTION_CHARS, is_below, tier_of

from .inside.fingerprints import fingerprint_of
from .source import ServerSource

TITLE_CHARS = 100


class Described(pydantic.BaseModel):
    """A server's description of one tool. Its annotations are not read: they are not to be trusted."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = pydantic.Field(min_length=1, max_length=1_000)
    title: str | None = None
    description: str = ""
    inputSchema: dict[str, Any]
    outputSchema: dict[str, Any] | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.model_dump(exclude_unset=True))


@dataclass(frozen=True, slots=True)
class Terms:
    """What the program says about the tools of a server, which no server can say."""

    tier: PermissionTier = PermissionTier.SYSTEM
    timeout: float | None = None
    requires_approval: bool = False


class _OfServer(ForeignTool):
    _source: ServerSource

    @property
    def source(self) -> ServerSource:
        return self._source

    @property
    def shipment(self) -> Mapping[str, object]:
        return self.source.shipment

    @property
    def stranger(self) -> str:
        return self.source.words


class ServerTool(_OfServer):
    """One tool of a server. `name_there` is the server's name for it, `seen` the fingerprint of its description, and
    `finding` says that a tier below what its capabilities imply was dropped."""

    def __init__(self, source: ServerSource, name: str, described: Described, terms: Terms) -> None:
        self._source = source
        self.name_there = described.name
        self.seen = described.fingerprint
        rights = source.needs | source.uses
        tier = terms.tier
        self.finding = ""
        if is_below(tier, rights):
            tier = tier_of(rights)
            self.finding = (
                f"the tool {described.name[:64]!r} is of tier {tier.value}, not {terms.tier.value}, because its server "
                f"has {', '.join(sorted(rights))}. To let it run, name it in the policy: TierPolicy(tools={{…}})"
            )
        super().__init__(
            name,
            elsewhere,
            described.inputSchema,
            description=_shortened(described.description, DESCRIPTION_CHARS),
            output_schema=described.outputSchema,
            tier=tier,
            needs=source.needs,
            uses=source.uses,
            annotations=_annotated(described.title, tier, source),
            timeout=terms.timeout,
            limits=asdict(source.profile.limits),
            lifetime="session",
            requires_approval=terms.requires_approval,
        )

    @property
    def origin(self) -> str:
        return f"{self.name_there!r} of {self.source.words}"

    def _declared(self, derived: Any) -> ToolDeclaration:
        declaration = super()._declared(derived)
        place = [self.source.url, *self.source.command]
        return declaration.model_copy(update={"fingerprint": fingerprint([declaration.fingerprint, self.seen, place])})

    def sent(self, call: ToolCall) -> ToolCall:
        request = {
            "do": "call",
            "server": self.source.told,
            "tool": self.name_there,
            "arguments": dict(call.arguments),
            "fingerprint": self.seen,
        }
        return ToolCall(call.id, "mcp", request, call.attempt)  # without the session's config and values


class ServerLister(_OfServer):
    """The list of a server's tools, as a tool with the same rights: it runs in the same cell."""

    def __init__(self, source: ServerSource, name: str) -> None:
        self._source = source
        super().__init__(
            name,
            elsewhere,
            description="List the tools of an MCP server.",
            needs=source.needs,
            uses=source.uses,
            annotations=Annotations(sequential=False),
            limits=asdict(source.profile.limits),
            lifetime="session",
        )

    def sent(self, call: ToolCall) -> ToolCall:
        return ToolCall(call.id, "mcp", {"do": "list", "server": self.source.told})


def _annotated(title: str | None, tier: PermissionTier, source: ServerSource) -> Annotations:
    reads = tier is PermissionTier.READ_ONLY
    return Annotations(
        title=None if title is None else _shortened(title, TITLE_CHARS),
        read_only=reads,
        destructive=not reads,
        open_world=True,
        sequential=_is_sequential(source),
    )


def _is_sequential(source: ServerSource) -> bool:
    """Whether calls wait for other calls of the session. Calls of one server wait for each other in any case."""
    return Capability.WRITE in source.needs | source.uses


def _shortened(text: str, chars: int) -> str:
    shown = printable(text[: chars * 2], keep="\n\t").strip()
    return shown if len(shown) <= chars else f"{shown[: chars - 1]}…"
