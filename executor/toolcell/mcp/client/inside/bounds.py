"""The bounds on what a server may send. A server that exceeds one is ended."""

from typing import Final

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""One message. It equals the default of `Limits.result_bytes`."""
MAX_MESSAGES: Final = 10_000
"""Messages during one request, its answer included."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all messages during one request."""
MAX_NOISE: Final = 100
"""Lines during one request that are no message, such as a greeting or an answer to another request."""
MAX_QUESTIONS: Final = 100
"""Requests of the server during one request."""
MAX_REPORTS: Final = 200
"""Progress reports, and lines of log, that one request passes on; further ones are dropped."""
MAX_PAGES: Final = 100
"""Pages of one list of tools."""
MAX_CURSOR_CHARS: Final = 10_000
"""The cursor of a page, which the next request repeats."""
MAX_TOOLS: Final = 500
MAX_FINDINGS: Final = 10
"""Findings about a list of tools as a whole."""
MAX_LISTING_BYTES: Final = 4 * 1024 * 1024
"""One list of tools as JSON; the largest among 18 published servers has 150 KB."""
MAX_BLOCKS: Final = 1_000
"""Blocks of content in one answer."""
TAIL_BYTES: Final = 8 * 1024
"""Kept of what the server wrote last to its standard error."""
LIVES: Final = 20
"""The CPU time of a server's whole life, in limits of one call (`Limits.cpu_s`)."""
