"""Content blocks: what a result carries besides JSON, named as in MCP. Binary data is base64 text, so it stays JSON."""

from base64 import b64decode, b64encode
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AudioBlock", "Content", "ImageBlock", "ResourceBlock", "TextBlock"]


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Media(_Block):
    data: str
    mime_type: str

    @classmethod
    def from_bytes(cls, raw: bytes, mime_type: str) -> Self:
        """A block holding `raw`."""
        return cls(data=b64encode(raw).decode("ascii"), mime_type=mime_type)

    def to_bytes(self) -> bytes:
        """The bytes that the block holds; ValueError when `data` is not base64."""
        return b64decode(self.data, validate=True)


class TextBlock(_Block):
    """Text for the model beside the output."""

    type: Literal["text"] = "text"
    text: str


class ImageBlock(_Media):
    """A picture; make it with `ImageBlock.from_bytes(png, "image/png")`."""

    type: Literal["image"] = "image"


class AudioBlock(_Media):
    """A sound; make it with `AudioBlock.from_bytes(wav, "audio/wav")`."""

    type: Literal["audio"] = "audio"


class ResourceBlock(_Block):
    """A thing with an address, and its text if that is short enough to send."""

    type: Literal["resource"] = "resource"
    uri: str
    mime_type: str | None = None
    text: str | None = None


Content = Annotated[TextBlock | ImageBlock | AudioBlock | ResourceBlock, Field(discriminator="type")]
"""Any content block, told apart by `type`."""
