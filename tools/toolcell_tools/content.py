"""The types of a result's parts. `Content`: the blocks besides JSON, named as in MCP; binary data is base64 text, so it
stays JSON. `Json`: the types whose values a result passes on unchanged, those of JSON, and lists and dicts of them."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["MAX_BLOCK_BYTES", "AudioBlock", "Content", "ImageBlock", "Json", "ResourceBlock", "TextBlock"]

MAX_BLOCK_BYTES = 16 * 1024 * 1024
"""The largest decoded size of one block, in bytes. It equals the default of `Limits.result_bytes`."""

_TOKEN = r"[A-Za-z0-9!#$&^_.+-]{1,127}"  # restricted-name, RFC 6838 section 4.2
_PARAMETER = rf";[ \t]*{_TOKEN}=(?:{_TOKEN}|\"[^\"\\\r\n]{{0,200}}\")"
_END = r"$(?!\n)"  # Python's $ alone also matches before a final line feed
MimeType = Annotated[str, Field(pattern=rf"^{_TOKEN}/{_TOKEN}(?:{_PARAMETER}){{0,8}}{_END}")]
_Uri = Annotated[str, Field(pattern=rf"^[A-Za-z][A-Za-z0-9+.-]*:\S*{_END}", max_length=8_192)]  # scheme: RFC 3986


class _Block(BaseModel):
    # Rust's regex engine unrolls every {0,200}: that costs each process that imports this, cells too, 4 MB and 20 ms.
    model_config = ConfigDict(frozen=True, extra="forbid", regex_engine="python-re")


class _Media(_Block):
    family: ClassVar[str]
    data: str = Field(max_length=(MAX_BLOCK_BYTES + 2) // 3 * 4)
    mime_type: MimeType

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.mime_type.lower().startswith(f"{self.family}/"):
            raise ValueError(f"mime_type {self.mime_type!r} is not one of {self.family}/…, as this block's is")
        try:
            self.to_bytes()
        except ValueError as error:
            raise ValueError(f"data is not base64 ({error}); make the block with from_bytes(raw, mime_type)") from None
        return self

    @classmethod
    def from_bytes(cls, raw: bytes, mime_type: str) -> Self:
        """A block that holds `raw`."""
        return cls(data=b64encode(raw).decode("ascii"), mime_type=mime_type)

    def to_bytes(self) -> bytes:
        """The bytes that the block holds. Raises ValueError if `data` is not base64."""
        return b64decode(self.data, validate=True)


class TextBlock(_Block):
    """Text for the model beside the output."""

    type: Literal["text"] = "text"
    text: str = Field(max_length=MAX_BLOCK_BYTES)


class ImageBlock(_Media):
    """A picture; make it with `ImageBlock.from_bytes(png, "image/png")`."""

    family: ClassVar[str] = "image"
    type: Literal["image"] = "image"


class AudioBlock(_Media):
    """A sound; make it with `AudioBlock.from_bytes(wav, "audio/wav")`."""

    family: ClassVar[str] = "audio"
    type: Literal["audio"] = "audio"


class ResourceBlock(_Block):
    """A resource with a URI, and its text if that is short enough to send."""

    type: Literal["resource"] = "resource"
    uri: _Uri
    mime_type: MimeType | None = None
    text: str | None = Field(default=None, max_length=MAX_BLOCK_BYTES)


Content = Annotated[TextBlock | ImageBlock | AudioBlock | ResourceBlock, Field(discriminator="type")]
"""Any content block, told apart by `type`."""


class JsonList(Protocol):
    """A list of JSON values, also `list[int]`, which is no `list[Json]`. A tuple does not match: it becomes a list."""

    def __iter__(self) -> Iterator["Json"]: ...
    def copy(self) -> list[Any]: ...


class JsonDict(Protocol):
    """A dict with str keys and JSON values."""

    def __getitem__(self, key: str, /) -> "Json": ...
    def copy(self) -> dict[Any, Any]: ...


Json: TypeAlias = str | int | float | JsonList | JsonDict | None
