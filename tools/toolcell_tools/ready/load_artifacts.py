"""`load_artifacts`: the content of files that earlier calls made, as blocks for the model."""

from typing import TYPE_CHECKING, Annotated

from toolcell_tools.base.images import IMAGE_SIDE, flaw_of, media_type_of
from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.options import Annotations
from toolcell_tools.signature import LazyField

if TYPE_CHECKING:
    from toolcell_tools.content import Content
    from toolcell_tools.result import ToolResult

__all__ = ["load_artifacts"]

MOST_BYTES = 1_000_000
"""The most bytes of all files of one call."""


@tool(
    needs={Capability.READ},
    annotations=Annotations(title="Load artifacts", idempotent=True),
    instructions="Earlier calls may have made files. To look into one, call load_artifacts with its path.",
)
def load_artifacts(
    ctx: ToolContext,
    paths: Annotated[list[str], LazyField("The files, relative to the workspace.", min_length=1, max_length=20)],
) -> "ToolResult[dict[str, object]]":
    """Load files that earlier calls made, such as reports and images, so that you can see their content."""
    from toolcell_tools.result import ToolResult

    room = MOST_BYTES
    blocks: list[Content] = []
    for path in paths:
        with ctx.workspace.open(path) as file:
            raw = file.read(room + 1)
        room -= len(raw)
        if room < 0:
            raise ToolFailure(f"the files have more than {MOST_BYTES:,} bytes together; load fewer of them")
        blocks.append(_block(path, raw))
    return ToolResult(output={"loaded": paths}, content=blocks, display=f"Loaded {', '.join(paths)}")


def _block(path: str, raw: bytes) -> "Content":
    from toolcell_tools.content import ImageBlock, TextBlock

    kind = media_type_of(raw)
    if kind:
        flaw = flaw_of(raw, kind)
        if flaw:
            raise ToolFailure(
                f"{path!r} is an image that {flaw}; whole images of at most {IMAGE_SIDE:,} pixels can be loaded"
            )
        return ImageBlock.from_bytes(raw, kind)
    try:
        return TextBlock(text=f"{path}:\n{raw.decode()}")
    except UnicodeDecodeError:
        raise ToolFailure(f"{path!r} is neither text nor an image; use another tool to look into it") from None
