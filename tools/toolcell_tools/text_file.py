"""Text files, byte for byte: how `read`, `write`, `edit` and `apply_patch` decode them and keep their line ends.

A file is decoded as UTF-8. A byte that is not UTF-8 becomes a lone surrogate (PEP 383) and is written back as the same
byte, so that the ASCII lines of a Latin-1 file can be changed and its other lines stay. A byte order mark is the first
character of the text. A line ends at "\\n"; its end is "\\n", "\\r\\n", or "" at the end of a file, and belongs to that
line: a file may mix them. UTF-16 and binary files are refused.
"""

from .failures import ToolFailure

__all__ = [
    "BINARY",
    "BOM",
    "SNIFFED_BYTES",
    "content",
    "decoded",
    "encoded",
    "end_of",
    "flaw_of_text",
    "lines_of",
    "model_text",
    "without_surrogates",
]

BINARY = "a binary file"
BOM = "\ufeff"
SNIFFED_BYTES = 8_000  # git's xdiff-interface.c: a file with a NUL among them is binary


def flaw_of_text(start: bytes) -> str:
    """What a file that begins with `start` is if the tools cannot show and change it as text; otherwise ""."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16 text. The tools read and change UTF-8 only; convert it first, for example with iconv"
    return BINARY if b"\0" in start[:SNIFFED_BYTES] else ""


def decoded(data: bytes, path: str) -> str:
    """The text of a whole file; `encoded` gives the same bytes. Raises ToolFailure for UTF-16 and binary files."""
    flaw = flaw_of_text(data)
    if flaw:
        raise ToolFailure(f"{path!r} is {flaw}")
    return data.decode(errors="surrogateescape")


def encoded(text: str, before: str, added: str, path: str) -> bytes:
    """The bytes of `text`, which a change made of the file's text `before` by adding `added`. Raises ToolFailure if the
    file would then have two encodings."""
    if not added.isascii() and _first_surrogate(before) is not None:
        raise ToolFailure(
            f"{path!r} is not UTF-8 text, so only ASCII can be added to it. Convert it first, for example with iconv"
        )
    return text.encode(errors="surrogateescape")


def _first_surrogate(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        return failure.start
    return None


def model_text(text: str, name: str) -> str:
    """`text`, sent by a model as `name`. Raises ToolFailure for a lone surrogate, which would mean a raw byte."""
    place = _first_surrogate(text)
    if place is not None:
        raise ToolFailure(f"{name} has a lone surrogate at character {place}; remove it")
    return text


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each byte that is not UTF-8."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def lines_of(text: str) -> list[str]:
    """The lines with their ends. Split at \\n only, unlike str.splitlines, as programs that read diffs do."""
    parts = text.split("\n")
    last = parts.pop()
    return [f"{part}\n" for part in parts] + [last] * (last != "")


def end_of(line: str) -> str:
    """ "\\n", "\\r\\n" or ""."""
    return "\r\n" if line.endswith("\r\n") else "\n" if line.endswith("\n") else ""


def content(line: str) -> str:
    """The line without its end."""
    return line[: len(line) - len(end_of(line))]
