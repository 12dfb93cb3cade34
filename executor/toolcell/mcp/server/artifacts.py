"""The artifacts of a session as resources: links in results, and their contents.

A client reads an artifact that a call of its own session has reported, and no other file. The path comes from a cell,
so no link in it is followed, and the content must have the size and the digest that the call reported.
"""

import mimetypes
import secrets
from base64 import b64encode
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import quote

import mcp_types as types

from toolcell.backends.threads import in_thread
from toolcell_tools.artifact import Artifact
from toolcell_tools.result import ToolResult

from .bounds import ServerBounds

__all__ = ["Artifacts", "Unreadable"]

SCHEME: Final = "toolcell-artifact"
MAX_BYTES: Final = 16 * 1024 * 1024
"""The largest artifact that is sent, as for a content block."""
MAX_LINKS: Final = 50
_WITHOUT_CONTENT: Final = frozenset({"deleted", "memory"})


class Unreadable(Exception):
    """An artifact's content cannot be sent. The message says why, without a path of the host."""


@dataclass(frozen=True, slots=True)
class _Kept:
    artifact: Artifact
    resource: types.Resource
    bytes: int


class Artifacts:
    """The artifacts that the clients of one principal can read. The oldest are forgotten when there are too many."""

    def __init__(self, workspace: Path, bounds: ServerBounds) -> None:
        self._workspace = workspace
        self._most, self._most_bytes = bounds.artifacts, bounds.kept_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self.count = 0
        """The artifacts that were ever kept."""

    @property
    def resources(self) -> list[types.Resource]:
        """The artifacts as resources, the oldest first."""
        return [kept.resource for kept in self._kept.values()]

    def links(self, result: ToolResult) -> list[types.ResourceLink]:
        """Keep the artifacts of a result, and return links to them."""
        found = [each for each in result.artifacts if each.kind not in _WITHOUT_CONTENT][:MAX_LINKS]
        return [types.ResourceLink(**self._keep(each).model_dump(exclude_none=True)) for each in found]

    def _keep(self, artifact: Artifact) -> types.Resource:
        name = PurePosixPath(artifact.path).name or "artifact"
        kind = artifact.media_type or mimetypes.guess_type(name)[0]
        uri = f"{SCHEME}:/{secrets.token_hex(8)}/{quote(name.encode('utf-8', 'replace'))}"
        resource = types.Resource(
            uri=uri, name=name, title=artifact.path, mime_type=kind, size=artifact.size, description=artifact.kind
        )
        size = len(artifact.data or "")
        self.count += 1
        self._kept[uri] = _Kept(artifact, resource, size)
        self._bytes += size
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            self._bytes -= self._kept.popitem(last=False)[1].bytes
        return resource

    async def read(self, uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
        """The content of an artifact, None if there is none with this URI. Raises Unreadable."""
        kept = self._kept.get(uri)
        if kept is None:
            return None
        raw = await in_thread(partial(_content, kept.artifact, self._workspace))
        kind = kept.resource.mime_type
        try:
            if kind is None or kind.startswith("text/") or kind.endswith(("json", "xml")):
                return types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=raw.decode())
        except UnicodeDecodeError:
            pass
        blob = b64encode(raw).decode("ascii")
        return types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)


def _content(artifact: Artifact, workspace: Path) -> bytes:
    """Read an artifact, from the result, from the supervisor's file, or from below the workspace."""
    if artifact.size is None or (artifact.data is None and artifact.digest is None):
        raise Unreadable("The call did not report the artifact's size and digest.")
    if artifact.size > MAX_BYTES:
        raise Unreadable(f"The artifact has {artifact.size:,} bytes, and {MAX_BYTES:,} can be sent.")
    if artifact.data is None and artifact.uri is None:
        parts = PurePosixPath(artifact.path).parts
        if not parts or artifact.path.startswith("/") or ".." in parts or "\0" in artifact.path:
            raise Unreadable("The artifact's path is not below the workspace.")
        artifact = replace(artifact, uri=workspace.joinpath(*parts).as_uri())
    try:
        return artifact.read()
    except (OSError, ValueError):
        raise Unreadable("The artifact was changed or removed since the call.") from None
