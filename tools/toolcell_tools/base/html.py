"""The readable text of an HTML page, plain or as Markdown. html.parser keeps no tree, so depth costs nothing."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

__all__ = ["page_markdown", "page_text"]

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "select", "canvas"})
_FRAME = frozenset({"nav", "footer", "aside", "form", "dialog"})  # around the text, not part of it
_BLOCK = re.compile(
    "address|article|blockquote|body|dd|details|div|dl|dt|fieldset|figcaption|figure|h[1-6]|header|hr|html|li|main|ol|p|pre"
    "|section|summary|table|tbody|tfoot|thead|tr|ul"
)


_URL_CHARS = 2_000  # a longer link is left out
_LINKS = 5_000  # that get their addresses; reading one takes 20 µs
_INLINE = {"code": "`", "kbd": "`", "samp": "`", "strong": "**", "b": "**", "em": "*", "i": "*"}


def page_markdown(html: str, url: str) -> tuple[str | None, str]:
    """As `page_text`, as Markdown: with links, whose addresses are complete, emphasis and blocks of code. `url` is the
    page's."""
    return _read(html, url)


def page_text(html: str) -> tuple[str | None, str]:
    """The title, if there is one, and the text: a line for each block, `- ` before list items, `# ` before headings.

    Scripts, styles and navigation are dropped. Navigation is kept if there is nothing else.
    """
    return _read(html, None)


def _read(html: str, url: str | None) -> tuple[str | None, str]:
    for dropped in (_SILENT | _FRAME, _SILENT):
        extractor = _Extractor(dropped, url)
        extractor.feed(html)
        extractor.close()
        text = extractor.text()
        if text:
            break
    return extractor.title() or None, text


class _Extractor(HTMLParser):
    def __init__(self, dropped: frozenset[str], url: str | None) -> None:
        """With a `url`, the text becomes Markdown."""
        super().__init__(convert_charrefs=True)
        self._dropped = dropped
        self._url = url
        self._links = _LINKS
        self._link: tuple[int, str] | None = None  # the place of the open link's text, and its address
        self._emphasis: list[str] = []  # open elements that have a mark
        self._inside: list[str] = []  # open elements whose text is dropped
        self._in_title = False
        self._preformatted = 0
        self._title: list[str] = []
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        elif tag == "body":
            self._inside.clear()  # ends a head that was never closed
        elif tag == "base" and self._url is not None:
            self._url = urljoin(self._url, dict(attrs).get("href") or "")
        elif tag in self._dropped:
            self._inside.append(tag)
        if self._inside:
            return
        if tag == "br":
            self._text.append("\n")
        elif _BLOCK.fullmatch(tag):
            self._text.append("\n")
            if tag == "pre":
                self._preformatted += 1
                if self._url is not None:
                    self._text.append("```\n")
            elif tag == "li":
                self._text.append("- ")
            elif re.fullmatch("h[1-6]", tag):
                self._text.append("#" * int(tag[1]) + " ")
        elif tag in {"td", "th"}:
            self._text.append("\t")
        elif self._url is not None:
            self._open(tag, dict(attrs), self._url)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._inside:
            while self._inside.pop() != tag:
                pass
        elif not self._inside and _BLOCK.fullmatch(tag):
            if tag == "pre" and self._preformatted:
                self._preformatted -= 1
                if self._url is not None:
                    self._text.append("\n```")
            self._text.append("\n")
        elif not self._inside and self._url is not None:
            self._close(tag)

    def _open(self, tag: str, attrs: dict[str, str | None], url: str) -> None:
        """Begin a link or an emphasis."""
        self._close("a" if tag == "a" else "")  # a link in a link ends the first
        if tag == "a" and self._links:
            self._links -= 1
            address = _address(url, attrs.get("href"))
            if address is not None:
                self._link = len(self._text), address
        elif tag in _INLINE and not self._preformatted:
            self._emphasis.append(tag)
            self._text.append(_INLINE[tag])

    def _close(self, tag: str) -> None:
        """End a link or an emphasis."""
        if tag == "a" and self._link is not None:
            (start, address), self._link = self._link, None
            said = " ".join("".join(self._text[start:]).split())
            if said:
                self._text[start:] = [f"[{said}]({address})"]
        elif self._emphasis and self._emphasis[-1] == tag:
            self._emphasis.pop()
            if self._text[-1] == _INLINE[tag]:
                self._text.pop()  # there is nothing in it
            else:
                self._text.append(_INLINE[tag])

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._inside:
            self._text.append(data if self._preformatted else re.sub(r"[ \t\r\n\f\xa0]+", " ", data))

    def title(self) -> str:
        return " ".join("".join(self._title).split())

    def text(self) -> str:
        lines = "".join(self._text).split("\n")
        joined = "\n".join(line.rstrip() if line.startswith(("  ", "\t\t")) else line.strip() for line in lines)
        return re.sub(r"\n{3,}", "\n\n", joined).strip()


def _address(url: str, href: str | None) -> str | None:
    """The complete address of a link to another page, or None."""
    if href is None or href.startswith("#"):
        return None
    try:
        address = urljoin(url, href.strip())
    except ValueError:
        return None
    is_page = address.startswith(("http://", "https://")) and len(address) <= _URL_CHARS
    return re.sub(r"[\s()<>]", lambda found: f"%{ord(found[0]):02X}", address) if is_page else None
