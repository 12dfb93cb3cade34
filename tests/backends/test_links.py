"""The links in a page: every way to write one, and time that grows with the page only."""

import pytest

from toolcell.backends.web import MOST_LINKS, links_in

URL = "https://site.example.org/dir/page?q=1"


def found(body: bytes) -> list[str]:
    return [target.url for target in links_in(body, URL)]


@pytest.mark.parametrize(
    ("body", "url"),
    [
        (b'<a href="/x">', "https://site.example.org/x"),
        (b"<a HREF = '../y#part'>", "https://site.example.org/y"),
        (b"<a href=z.html>", "https://site.example.org/dir/z.html"),
        (b'<a href="?a=1&amp;b=2">', "https://site.example.org/dir/page?a=1&b=2"),
        (b'<a href="//Other.example.org">', "https://other.example.org/"),
        (b'<base href="/other/"><a href="x">', "https://site.example.org/other/x"),
        (b"<img src='pic.png'>", "https://site.example.org/dir/pic.png"),
        (b"see https://a.example.org/b, and more", "https://a.example.org/b"),
        (b"[text](https://a.example.org/b)", "https://a.example.org/b"),
        (b'{"next": "https://a.example.org/p?c=2"}', "https://a.example.org/p?c=2"),
        ("<a href='/ä'>".encode(), "https://site.example.org/%C3%A4"),
        (b"<loc>https://a.example.org/s.xml</loc>", "https://a.example.org/s.xml"),
    ],
)
def test_a_link_is_found_however_it_is_written(body: bytes, url: str) -> None:
    assert url in found(body)


@pytest.mark.parametrize(
    "body",
    [
        b"<a href='javascript:x()'>",
        b"<a href='mailto:a@example.org'>",
        b"<a href='https://user@a.example.org/'>",
        b"<a href='https://0x7f.1/'>",
        b"<a href='" + b"x" * 9_000 + b"'>",
        b"",
        b"no link",
        b"\xff\xfe\0",
    ],
)
def test_what_is_no_link_to_a_page_is_left_out(body: bytes) -> None:
    assert found(body) == []


def test_a_page_gives_so_many_links_and_no_more() -> None:
    body = b"".join(b'<a href="/%d">' % number for number in range(MOST_LINKS + 500))
    links = found(body)
    assert len(links) == MOST_LINKS and links[0].endswith("/0") and links[-1].endswith(f"/{MOST_LINKS - 1}")


def test_a_link_across_two_pieces_is_found_once() -> None:
    body = b"x" * (256 * 1024 - 10) + b' <a href="/across">'
    assert found(body) == ["https://site.example.org/across"]


@pytest.mark.parametrize(
    "piece", [b"href=", b"href='", b'href="', b"href ", b"https://", b"<base ", b"href=\"'", b"(https://a", b"&amp;"]
)
def test_a_hostile_page_takes_time_by_its_size_only(piece: bytes) -> None:
    """In quadratic time, this would not end before the test's limit."""
    links_in(piece * (32 * 1024 * 1024 // len(piece)), URL)


@pytest.mark.parametrize(
    ("before", "link"),
    [
        (b"<base href='http://example.org/" + b"a/" * 4_000 + b"'>", b"<a href=l%d>"),
        (b"", b"<a href='" + b"../" * 2_700 + b"%d'>"),
        (b"", b"<a href='http://" + ("ü" * 60 + ("." + "ü" * 50) * 2).encode() + b"%d.org/'>"),
    ],
    ids=["base", "dots", "names"],
)
def test_links_that_take_long_to_resolve_are_fewer(before: bytes, link: bytes) -> None:
    body = before + b"".join(link % number for number in range(20_000))
    links = links_in(body[: 8 * 1024 * 1024], "https://example.org/")
    assert len(links) < 200


def test_a_page_with_links_of_a_usual_length_gives_them_all() -> None:
    body = b"".join(b"<a href='/%s%d'>" % (b"x" * 400, number) for number in range(MOST_LINKS))
    assert len(links_in(body, "https://example.org/a/page")) == MOST_LINKS
