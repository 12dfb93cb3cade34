"""What a call printed, in plain text for people: bounded, and with escapes for what does not print."""

from .preview import printable

__all__ = ["ends_of", "transcript"]

STREAM_CHARS = 8_000


def ends_of(text: str, limit: int = STREAM_CHARS) -> str:
    """`text`, or the first and the last half of `limit` characters of it and an exact count of the rest."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[… {len(text) - limit:,} of {len(text):,} characters left out …]\n{tail}"


def transcript(heading: str, stdout: str, stderr: str, ending: str) -> str:
    """What ran, what it printed to both streams, and how it ended, each from a line of its own."""
    parts = [heading, *(printable(ends_of(text.rstrip("\n")), keep="\n\t") for text in (stdout, stderr)), ending]
    return "\n".join(part for part in parts if part)
