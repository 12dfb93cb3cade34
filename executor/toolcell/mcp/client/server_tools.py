"""The tools of a server as the supervisor has them: their declarations, their calls, and their register.

A server describes its tools as it likes, and may describe them otherwise tomorrow. So each tool is pinned as it was
first seen: its declaration stays, and the cell refuses its calls while the description is another one. Each principal
has a register of its own: a server sees the principal's workspace, and may list other tools for each.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import pydantic

from toolcell.errors import UsageError
from toolcell.rules.call import ToolCall
from toolcell.sessions.foreign_tools import ForeignTool, elsewhere
from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.declaration import ToolDeclaration, fingerprint
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.options import DESCRIPTION_CHARS, Annotations, is_below, legal_names, tier_of
from toolcell_tools.preview import printable
from toolcell_tools.toolsets import ToolsetError

from .inside.jsonrpc import MAX_FINDINGS, MAX_TOOLS, PROBLEM, fingerprint_of
from .server_source import ServerSource

TITLE_CHARS = 100
MOST_NAMES = 2_000
"""Names that one server may use in the life of its toolset."""
TAKE_S = 5.0
"""Seconds in which the new tools of one list are checked. The others are checked at the next list."""


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
        sequential=Capability.WRITE
        in source.needs | source.uses,  # calls of one server wait for each other in any case
    )


def _shortened(text: str, chars: int) -> str:
    shown = printable(text[: chars * 2], keep="\n\t").strip()
    return shown if len(shown) <= chars else f"{shown[: chars - 1]}…"


class Register:
    """Keeps the tools of one server, for one principal: their names here, and whether they are as they were first seen.
    `make(name, described)` makes one. `pins` are fingerprints by the server's names; a tool without one is pinned when
    it is first seen."""

    def __init__(
        self, server: str, make: Callable[[str, Described], ServerTool], pins: Mapping[str, str], prefix: str
    ) -> None:
        self.pins = dict(pins)
        self.changed: dict[str, str] = {}
        """The present fingerprints of the tools that are no longer as they were first seen."""
        self.last: Sequence[ServerTool] = []
        """The tools of the last list."""
        self.told: set[str] = set()
        """The incidents that were reported."""
        self._server = server
        self._make = make
        self._prefix = prefix
        self._names: dict[str, str] = {}
        self._made: dict[str, ServerTool] = {}
        self._refused: dict[str, tuple[str, str]] = {}  # the fingerprint that was refused, and the reason
        self._lock = threading.Lock()

    def take(self, said: object) -> tuple[Sequence[ServerTool], Sequence[str]]:
        """The tools in a server's list, and what is wrong with the others. Raises ToolsetError for a list that is none,
        or too long."""
        if not isinstance(said, list):
            raise ToolsetError("its list of tools is malformed.", self._server)
        entries = cast("list[object]", said)
        if len(entries) > MAX_TOOLS + MAX_FINDINGS:
            raise ToolsetError(f"it has {len(entries):,} tools; at most {MAX_TOOLS} are taken.", self._server)
        wrong: list[str] = []
        known = [each for entry in entries if (each := _described(entry, wrong)) is not None]
        with self._lock:
            taken = self._taken(known, wrong)
            if list(taken) != list(self.last):
                self.last = taken
            return self.last, wrong

    def _taken(self, known: Sequence[Described], wrong: list[str]) -> Sequence[ServerTool]:
        times = Counter(each.name for each in known)
        wrong += [f"two of its tools are named {name[:64]!r}; neither is offered" for name in times if times[name] > 1]
        once = [each for each in known if times[each.name] == 1]
        self._name(each.name for each in once)
        until = time.monotonic() + TAKE_S
        return [tool for each in once if (tool := self._tool(each, wrong, until)) is not None]

    def accept(self, names: Iterable[str]) -> None:
        """Pin these tools, by the server's names, as they are now. Raises UsageError for a tool that has not
        changed."""
        with self._lock:
            for name in names:
                if name not in self.changed:
                    raise UsageError(f"The tool {name!r} of the MCP server {self._server!r} has not changed.")
                self.pins[name] = self.changed.pop(name)

    def _tool(self, described: Described, wrong: list[str], until: float) -> ServerTool | None:
        """The tool of a description. A changed tool keeps its first declaration, and its cell refuses calls until the
        change is accepted."""
        name, present = described.name, described.fingerprint
        if name not in self._names:
            wrong.append(f"it has used more than {MOST_NAMES:,} names of tools; {name[:64]!r} is not offered")
            return None
        pinned = self.pins.setdefault(name, present)
        made = self._made.get(name)
        if pinned != present:
            self.changed[name] = present
            wrong.append(f"the tool {name[:64]!r} is no longer as it was first seen; its calls are refused")
            return made
        self.changed.pop(name, None)
        if made is not None and made.seen == present:
            return made
        refused = self._refused.get(name)
        if refused is None or refused[0] != present:
            if time.monotonic() > until:
                wrong.append(f"the schemas of its tools take more than {TAKE_S:g} s to check; some come later")
                return None
            try:
                made = self._made[name] = self._make(self._names[name], described)
                wrong += [made.finding] if made.finding else []
                return made
            except (ToolDefinitionError, pydantic.ValidationError) as error:
                refused = self._refused[name] = present, str(error)[:1_000]
        wrong.append(f"the tool {name[:64]!r} cannot be offered: {refused[1]}")
        return None

    def _name(self, originals: Iterable[str]) -> None:
        """Give each new tool a legal name: its own if that is legal, else the nearest. A name is never taken over."""
        new = sorted(name for name in originals if name not in self._names)[: MOST_NAMES - len(self._names)]
        self._names |= legal_names(new, prefix=self._prefix, taken=self._names.values())


def _described(entry: object, wrong: list[str]) -> Described | None:
    given = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    if PROBLEM in given and "name" not in given:
        wrong.append(str(given[PROBLEM])[:300])  # about the whole list
        return None
    if PROBLEM in given:
        what = f"its description is not plain JSON: {str(given[PROBLEM])[:200]}"
        wrong.append(f"the tool {str(given.get('name'))[:64]!r} cannot be offered: {what}")
        return None
    try:
        return Described.model_validate(entry)
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        name = str(given.get("name", "?"))[:64]
        wrong.append(f"the description of its tool {name!r} is malformed at {where}: {problem['msg']}")
        return None
