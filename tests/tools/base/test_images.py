"""Images for a model: those that a provider takes, told from headers alone."""

from base64 import b64decode
from collections.abc import Callable

import pytest

from toolcell_tools.base.images import IMAGE_SIDE, flaw_of, media_type_of

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
GIF = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")


def with_size(raw: bytes, at: int, data: bytes) -> bytes:
    return raw[:at] + data + raw[at + len(data) :]


def png(width: int, height: int) -> bytes:
    return with_size(PNG, 16, width.to_bytes(4) + height.to_bytes(4))


def gif(width: int, height: int) -> bytes:
    return with_size(GIF, 6, width.to_bytes(2, "little") + height.to_bytes(2, "little"))


def jpeg(width: int, height: int, *, frame: int = 0xC2) -> bytes:
    """A comment, a Huffman table, fill bytes, and a start of frame."""
    size = b"\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x01\x01\x11\x00"
    tables = b"\xff\xfe\x00\x05abc" + b"\xff\xc4\x00\x03\x00"
    return b"\xff\xd8" + tables + b"\xff\xff\xff" + bytes([frame]) + b"\x00\x0b" + size + b"data\xff\xd9"


def webp(kind: bytes, data: bytes) -> bytes:
    chunk = kind + len(data).to_bytes(4, "little") + data
    return b"RIFF" + (len(chunk) + 4).to_bytes(4, "little") + b"WEBP" + chunk


def webp_extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + (width - 1 | (height - 1) << 14).to_bytes(4, "little") + bytes(5))


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + width.to_bytes(2, "little") + height.to_bytes(2, "little"))


@pytest.mark.parametrize("make", [png, gif, jpeg, webp_extended, webp_lossless, webp_lossy])
def test_an_image_that_providers_take_has_no_flaw_and_one_that_is_too_large_says_its_size(
    make: Callable[[int, int], bytes],
) -> None:
    for width, height in ((1, 1), (300, 200), (IMAGE_SIDE, IMAGE_SIDE)):
        raw = make(width, height)
        assert flaw_of(raw, media_type_of(raw)) == ""
    raw = make(IMAGE_SIDE + 1, 20)
    assert flaw_of(raw, media_type_of(raw)) == "has 8,001 x 20 pixels"


@pytest.mark.parametrize("raw", [PNG, jpeg(3, 2), webp_extended(3, 2), webp_lossless(3, 2), webp_lossy(3, 2), GIF[:9]])
def test_an_image_that_breaks_off_is_not_whole(raw: bytes) -> None:
    for length in range(12, len(raw)):
        assert flaw_of(raw[:length], media_type_of(raw)) == "is not whole", length


@pytest.mark.parametrize(
    "raw",
    [
        png(0, 1),
        gif(1, 0),
        jpeg(1, 1, frame=0xCC),
        b"\xff\xd8\xff" + bytes(100),
        b"\xff\xd8" + b"\xff" * 5_000,
        webp(b"VP8L", bytes(10)),
        webp(b"VP8 ", bytes(10)),
        webp(b"ALPH", bytes(10)),
        b"\x89PNG\r\n\x1a\n" + bytes(90),
    ],
)
def test_what_only_begins_as_an_image_is_not_whole(raw: bytes) -> None:
    assert flaw_of(raw, media_type_of(raw)) == "is not whole"


def test_data_after_the_end_is_no_flaw() -> None:
    for raw in (PNG, GIF, jpeg(3, 2), webp_lossy(3, 2)):
        assert flaw_of(raw + b"\0" * 100, media_type_of(raw)) == ""
