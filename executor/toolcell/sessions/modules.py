"""`module_toolset`: the tools of a module that is imported inside cells only.

The supervisor finds the module's files and never imports them. A cell without any grant imports the module and
describes its tools (`runner.loading.describe_module`). The description is data, and is checked like any schema from
outside. A claim that would make a tool look safer is dropped, as is any capability beyond `allow`. Each tool then runs
in cells that load only this module, with the grants that it asks for and the user allows.

The digest of the source files ties these steps together. It is part of a tool's fingerprint, which approvals hold for,
and of its shipment, which is part of the cell's key. The cell computes it again before it imports the module, so that
source that has changed since the description is not run under it. With another digest, the module is described anew.
"""

import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import pydantic

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules.misuse import capability, items
from toolcell.rules.profile import Profile
from toolcell.wire.code import source_digest, source_files
from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.declaration import ToolDeclaration, fingerprint
from toolcell_tools.dynamic import DynamicTool, dynamic_tool
from toolcell_tools.failures import ToolDefinitionError
from toolcell_tools.options import Annotations, Lifetime, tier_of
from toolcell_tools.preview import Previewer
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets import AnyTool, Toolset, ToolsetError

from .foreign_tools import ForeignSource, ForeignTool, elsewhere

MAX_TOOLS = 500
Describe = Callable[[SessionInfo, "ModuleSource"], Awaitable[object]]
"""Lets a cell of the session import the module and describe its tools. Raises ToolsetError."""


@dataclass(frozen=True, slots=True)
class ModuleSource(ForeignSource):
    """A module by its dotted name, and the real path of the directory in which it is found."""

    module: str
    directory: str

    @property
    def shipment(self) -> Mapping[str, str]:
        return {"module": self.module, "directory": self.directory}

    def profile_in(self, session: Profile) -> Profile:
        return session.replace(readable=(*session.readable, self.directory))


class ModuleTool(ForeignTool):
    """A tool that a module has under the name `attribute`. Its function exists only in cells."""

    def __init__(self, source: ModuleSource, digest: str, claimed: "_Claimed", allowed: frozenset[Capability]) -> None:
        self._source = source
        self.attribute = claimed.attribute
        self._digest = digest
        self._remote_preview = claimed.declaration.has_preview
        said = claimed.declaration
        beyond = (said.needs | said.uses) - allowed
        if beyond:
            names = ", ".join(sorted(beyond))
            raise ToolDefinitionError(
                f"tool {said.name!r} asks for {names}, which the module is not allowed. "
                "Add to module_toolset(…, allow={…}), or leave the tool out."
            )
        super().__init__(
            said.name,
            elsewhere,
            said.parameters_schema,
            description=said.description,
            version=said.version,
            tier=max(tier_of(said.needs | said.uses), said.tier, key=list(PermissionTier).index),  # a cell may lie
            needs=said.needs,
            uses=said.uses,
            output_schema=said.output_schema,
            failure=said.failure_schema,
            failure_mode=said.failure_mode,
            annotations=_distrusted(said.annotations),
            limits=_bounded(claimed.limits, said.timeout),
            lifetime=claimed.lifetime,
            long_running=said.long_running,
            return_direct=said.return_direct,
            requires_approval=said.requires_approval is not False,
            metadata=said.metadata,
        )

    @property
    def source(self) -> ModuleSource:
        return self._source

    @property
    def origin(self) -> str:
        return f"{self.source.module}:{self.attribute}"

    @property
    def stranger(self) -> str:
        return f"module {self.source.module!r} in {self.source.directory}"

    @property
    def shipment(self) -> Mapping[str, object]:
        """How a cell loads the tool. With another `digest` of the source, it is another cell."""
        where = {"how": "import", "where": self.origin, "directory": self.source.directory, "digest": self._digest}
        return {"name": self.name, **where}

    @property
    def has_preview(self) -> bool:
        return self._remote_preview

    def _preview_function(self) -> Previewer:
        return Previewer(self.name, elsewhere, "arguments")  # a placeholder for the preview in the cell

    def _declared(self, derived: Any) -> ToolDeclaration:
        declaration = super()._declared(derived)
        mark = fingerprint([declaration.fingerprint, self._digest])
        return declaration.model_copy(update={"fingerprint": mark, "has_preview": self._remote_preview})


def _distrusted(claimed: Annotations) -> Annotations:
    """From a module's claims about itself, keep the title and those that make the tool look more dangerous."""
    return Annotations(
        title=None if claimed.title is None else claimed.title[:100],
        read_only=False,
        destructive=True,
        idempotent=False,
        open_world=True,
        edit=claimed.edit,
        sequential=None if claimed.sequential is False else claimed.sequential,
    )


def _bounded(limits: Mapping[str, float] | None, timeout: float | None) -> dict[str, float]:
    """The limits and the timeout that a module asks for, as limits, which can only narrow the profile's."""
    bounds = dict(limits or {})
    if timeout is not None:
        bounds["wall_s"] = min(timeout, bounds.get("wall_s", timeout))
    return bounds


class _Claimed(pydantic.BaseModel):
    """A cell's description of one tool of a module."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=False)

    attribute: str = pydantic.Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")
    declaration: ToolDeclaration
    lifetime: Lifetime
    limits: dict[str, float] | None


_CLAIMS: pydantic.TypeAdapter[list[_Claimed]] = pydantic.TypeAdapter(list[_Claimed])


class ModuleToolset(Toolset):
    """The tools of a module that is imported inside cells only. Made by `module_toolset`."""

    def __init__(self, source: ModuleSource, files: Callable[[], list[str]], allow: frozenset[Capability]) -> None:
        self.source = source
        self._files = files
        self._allow = allow
        self._describe: Describe | None = None
        self._known: tuple[str, Sequence[AnyTool]] | None = None

    def __repr__(self) -> str:
        return f"<ModuleToolset {self.source.module} in {self.source.directory}>"

    @property
    def name(self) -> str:
        return self.source.module

    def attach(self, runtime: object) -> None:
        inside = getattr(runtime, "_runtime", None)  # a supervisor has it
        self._describe = cast("Describe | None", getattr(inside, "describe_module", None))

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        digest = await in_thread(self._digest)
        if self._known is None or self._known[0] != digest:
            self._known = (digest, await self._asked(session, digest))
        return self._known[1]

    def _digest(self) -> str:
        try:
            return source_digest(self._files())
        except (OSError, ValueError) as error:
            raise ToolsetError(f"its source cannot be read: {error}", self.name) from error

    async def _asked(self, session: SessionInfo, digest: str) -> Sequence[AnyTool]:
        if self._describe is None:
            what = "a module's tools are known only inside a supervisor: Supervisor(toolsets=[…])."
            raise ToolsetError(what, self.name)
        try:
            claims = _CLAIMS.validate_python(await self._describe(session, self.source))
        except pydantic.ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            what = f"what it says of its tools is malformed at {where}: {problem['msg']}"
            raise ToolsetError(what, self.name) from None
        if len(claims) > MAX_TOOLS:
            raise ToolsetError(f"it has {len(claims):,} tools; at most {MAX_TOOLS} are taken.", self.name)
        tools = [ModuleTool(self.source, digest, claim, self._allow) for claim in claims]
        twice = [name for name, times in Counter(tool.name for tool in tools).items() if times > 1]
        if twice:
            raise ToolsetError(f"two of its tools are named {twice[0]!r}. Rename one.", self.name)
        return tools


def module_toolset(
    module: str, *, path: str | os.PathLike[str] | None = None, allow: Iterable[Capability | str] = ()
) -> ModuleToolset:
    """The tools of `module`, a dotted name, which is imported inside cells only and never here.

    `path` is the directory in which the module is found, by default the first on this program's search path that has
    it. Cells can read that directory. Every Tool and TypedTool at the module's top level is taken. `allow` are the only
    capabilities that its tools may need or use. Raises UsageError if there is no such module.
    """
    parts = module.split(".") if isinstance(module, str) else [""]  # pyright: ignore[reportUnnecessaryIsInstance]
    if not all(part.isidentifier() for part in parts):
        raise UsageError(f"{module!r} is not the dotted name of a module. Write 'package.module'.")
    directories = [os.fspath(path)] if path is not None else [entry or os.getcwd() for entry in sys.path]
    for directory in map(os.path.realpath, directories):
        files = partial(source_files, os.path.join(directory, *parts))
        if files():
            return ModuleToolset(
                ModuleSource(module, directory), files, frozenset(map(capability, items("allow", allow, "{'read'}")))
            )
    where = f"in {os.fspath(path)}" if path is not None else "on sys.path"
    raise UsageError(f"There is no module {module!r} {where}. Name its directory: module_toolset(…, path='…').")


DESCRIBER_SHIPMENT: Mapping[str, object] = {
    "name": "describe_module",
    "how": "import",
    "where": "toolcell.runner.loading:describe_module",
}


@cache
def describer() -> DynamicTool:
    """The tool that describes a module. It is made only if there is a module, because its derivation takes 30 ms."""
    return dynamic_tool("describe_module", handler=elsewhere, description="Say which tools a module has.")
