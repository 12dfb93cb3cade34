"""`web_fetch`: get a page of the public web, as Markdown."""

import re
from collections.abc import Callable
from typing import Annotated

from toolcell_tools.capability import Capability
from toolcell_tools.context import ToolContext, require
from toolcell_tools.definition import tool
from toolcell_tools.failures import ToolFailure
from toolcell_tools.handles import FetchedPage
from toolcell_tools.options import Annotations
from toolcell_tools.preview import DETAILS_CHARS, SUMMARY_CHARS, Preview, fitted
from toolcell_tools.returned import Answer
from toolcell_tools.signature import LazyField

from .html import page_markdown

__all__ = ["answer_of", "preview_web_fetch", "web_fetch"]

FETCH_BYTES = 1_000_000
TEXT_CHARS = 60_000  # even with JSON's escapes, less than ToolResult.for_model keeps
_TEXTUAL = re.compile(r"text/|application/([\w.-]+\+)?(json|xml|yaml|javascript|x-ndjson)\b|application/(ld|xhtml)\+")


def preview_web_fetch(url: str, max_bytes: int) -> Preview:
    """The address, and how many bytes of the page are loaded at most."""
    return Preview(
        f"Fetch {fitted(url, SUMMARY_CHARS)}", fitted(f"GET {url}\nat most {max_bytes:,} bytes", DETAILS_CHARS)
    )


@tool(
    needs={Capability.WEB},
    preview=preview_web_fetch,
    annotations=Annotations(title="Fetch a page", open_world=True),
    metadata={"fetches": True},  # the session's description of this tool says which pages, if they are limited
)
def web_fetch(
    ctx: ToolContext,
    url: Annotated[str, LazyField("The page's address, http or https.", min_length=1)],
    max_bytes: Annotated[int, LazyField("How much of the page to load at most.", ge=1)] = FETCH_BYTES,
) -> Answer:
    """Fetch a page from the web with GET and give it as Markdown with its links, without scripts and navigation."""
    return answer_of(require(ctx.web, Capability.WEB).fetch(url, max_bytes), page_markdown)


def answer_of(page: FetchedPage, read: Callable[[str, str], tuple[str | None, str]]) -> Answer:
    """The answer of a tool that fetched this page. `read` makes the title and the text of HTML and its URL."""
    kind = page.content_type.partition(";")[0].strip().lower()
    text = _decoded(page, kind)
    title: str | None = None
    if "html" in kind or (not kind and text.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))):
        title, text = read(text, page.url)
    output: dict[str, object] = {"url": page.url, "status": page.status, "content_type": kind, "title": title}
    output["text"] = text[:TEXT_CHARS]
    if page.omitted_bytes is None:
        output["truncated_page"] = f"only the first {len(page.body):,} bytes were loaded; there are more"
    elif page.omitted_bytes:
        total = len(page.body) + page.omitted_bytes
        output["truncated_page"] = f"loaded {len(page.body):,} of {total:,} bytes"
    if len(text) > TEXT_CHARS:
        output["truncated_text"] = f"kept {TEXT_CHARS:,} of {len(text):,} characters"
    return Answer(
        output=output,
        display=f"Fetched {title or page.url} ({page.status}, {len(text):,} characters)",
        text_member="text",
    )


def _decoded(page: FetchedPage, kind: str) -> str:
    if (kind and not _TEXTUAL.match(kind)) or b"\0" in page.body[:8_192]:
        raise ToolFailure(
            f"{page.url} is {kind or 'binary data'} ({len(page.body):,} bytes loaded), not text",
            {"url": page.url, "status": page.status, "content_type": kind},
        )
    declared = re.search(r"charset=[\"']?([\w.:-]+)", page.content_type, re.IGNORECASE)
    meta = re.search(rb"<meta[^>]{0,200}charset=[\"']?([\w.:-]+)", page.body[:4_096], re.IGNORECASE)
    charset = declared[1] if declared else meta[1].decode("ascii", "replace") if meta else "utf-8"
    try:
        return page.body.decode(charset, "replace")
    except (LookupError, UnicodeError):  # no such charset, or a Python codec that is not for text
        return page.body.decode("utf-8", "replace")
