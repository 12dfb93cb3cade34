"""The readable text of an HTML page. html.parser keeps no tree, so depth costs nothing."""

import re
from html.parser import HTMLParser

__all__ = ["page_text"]

_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "select", "canvas"})
_FRAME = frozenset({"nav", "footer", "aside", "form", "dialog"})  # around the text, not part of it
_BLOCK = re.compile(
    "address|article|blockquote|body|dd|details|div|dl|dt|fieldset|figcaption|figure|h[1-6]|header|hr|html|li|main|ol|p|pre"
    "|section|summary|table|tbody|tfoot|thead|tr|ul"
)


def page_text(html: str) -> tuple[str | None, str]:
    """The title, if there is one, and the text: a line for each block, `- ` before list items, `# ` before headings.

    Scripts, styles and navigation are dropped. Navigation is kept if there is nothing else.
    """
    for dropped in (_SILENT | _FRAME, _SILENT):
        extractor = _Extractor(dropped)
        extractor.feed(html)
        extractor.close()
        text = extractor.text()
        if text:
            break
    return extractor.title() or None, text


class _Extractor(HTMLParser):
    def __init__(self, dropped: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._dropped = dropped
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
            elif tag == "li":
                self._text.append("- ")
            elif re.fullmatch("h[1-6]", tag):
                self._text.append("#" * int(tag[1]) + " ")
        elif tag in {"td", "th"}:
            self._text.append("\t")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._inside:
            while self._inside.pop() != tag:
                pass
        elif not self._inside and _BLOCK.fullmatch(tag):
            self._text.append("\n")
            if tag == "pre" and self._preformatted:
                self._preformatted -= 1

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
