"""Tell images by their first bytes, check their size, and make content blocks of them. Without pydantic, because cells
do not load it.
"""

from base64 import b64encode

__all__ = ["IMAGE_BYTES", "IMAGE_SIDE", "flaw_of", "image_block", "media_type_of"]

IMAGE_BYTES = 3_750_000
"""The largest image that is shown. In base64 it has 5 MB, which is what model providers take."""
IMAGE_SIDE = 8_000
"""The most pixels on a side. Model providers refuse a whole request for a larger image, or for one that breaks off."""

_NOT_SIZES = frozenset({0xC4, 0xC8, 0xCC})  # of JPEG's markers 0xC0 to 0xCF: tables, which are no start of a frame


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


def flaw_of(raw: bytes, media_type: str) -> str:
    """Why a model provider would not take the image, or "". Reads its header and looks for its end; decodes nothing."""
    found = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}[media_type](raw)
    if found is None or 0 in found:
        return "is not whole"
    width, height = found
    return f"has {width:,} x {height:,} pixels" if max(found) > IMAGE_SIDE else ""


def image_block(raw: bytes, media_type: str) -> dict[str, str]:
    """The JSON of an ImageBlock."""
    return {"type": "image", "data": b64encode(raw).decode("ascii"), "mime_type": media_type}


_Size = tuple[int, int] | None


def _png(raw: bytes) -> _Size:
    if raw[12:16] != b"IHDR" or b"IEND\xae\x42\x60\x82" not in raw[-4096:]:  # other data may follow the end
        return None
    return int.from_bytes(raw[16:20]), int.from_bytes(raw[20:24])


def _gif(raw: bytes) -> _Size:  # whose end says nothing: files without a trailer are shown by every decoder
    return int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")


def _jpeg(raw: bytes) -> _Size:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_SIZES:
            size = int.from_bytes(raw[at + 7 : at + 9]), int.from_bytes(raw[at + 5 : at + 7])
            return size if raw.rfind(b"\xff\xd9") > at else None
        # 0xFF fills, and the markers 0x01 and 0xD0 to 0xD8 have no length (ITU-T T.81, section B.1.1).
        at += 1 if marker == 0xFF else 2 if marker == 1 or 0xD0 <= marker <= 0xD8 else 2 + _length(raw, at + 2)
    return None


def _length(raw: bytes, at: int) -> int:
    return max(2, int.from_bytes(raw[at : at + 2]))


def _webp(raw: bytes) -> _Size:
    """RFC 9649, sections 2.5 to 2.7."""
    if len(raw) < 30 or len(raw) < 8 + int.from_bytes(raw[4:8], "little"):
        return None
    kind, data = raw[12:16], raw[20:30]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[4:7], "little"), 1 + int.from_bytes(data[7:10], "little")
    if kind == b"VP8L" and data[0] == 0x2F:
        bits = int.from_bytes(data[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[3:6] == b"\x9d\x01\x2a":
        return int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF
    return None
