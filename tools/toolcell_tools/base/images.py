"""Tell images by their first bytes, and make content blocks of them, without pydantic: cells do not load it."""

from base64 import b64encode

__all__ = ["IMAGE_BYTES", "image_block", "media_type_of"]

IMAGE_BYTES = 3_750_000
"""The largest image that is shown. In base64 it has 5 MB, which is what model providers take."""


def media_type_of(start: bytes) -> str:
    """The media type of an image that model providers take, by its first bytes (WHATWG MIME Sniffing, section 6.1);
    "" for anything else."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return ""


def image_block(raw: bytes, media_type: str) -> dict[str, str]:
    """The JSON of an ImageBlock."""
    return {"type": "image", "data": b64encode(raw).decode("ascii"), "mime_type": media_type}
