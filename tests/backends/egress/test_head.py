"""What the proxy reads, without a socket: one meaning, or none."""

import pytest

from toolcell.backends.egress.head import (
    HEAD_BYTES,
    BadHead,
    end_of_head,
    parse_request,
    rewrite_request,
    rewrite_response,
)

GET = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://a/\r\n\r\n",
        b"GET  http://a/ HTTP/1.1\r\n\r\n",
        b"get http://a/ HTTP/1.1\r\n\r\n",
        b"GET http://a/ HTTP/2.0\r\n\r\n",
        b"GET http://a/ b HTTP/1.1\r\n\r\n",
        b"GET http://\xff/ HTTP/1.1\r\n\r\n",
        GET + b"Host: evil.example.org\r\n\r\n",
        GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        GET + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        GET + b"Content-Length: 5, 5\r\n\r\n",
        GET + b"Content-Length: +5\r\n\r\n",
        GET + b"Content-Length: 0x5\r\n\r\n",
        GET + b"Content-Length: -1\r\n\r\n",
        GET + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
        GET + b"Transfer-Encoding: identity\r\n\r\n",
        GET + b"Transfer-Encoding: xchunked\r\n\r\n",
        GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Transfer-Encoding : chunked\r\n\r\n",
        GET + b" Transfer-Encoding: chunked\r\n\r\n",
        GET + b"X: a\r\n folded\r\n\r\n",
        GET + b"X: a\nHost: evil.example.org\r\n\r\n",
        GET + b"X: a\rHost: evil.example.org\r\n\r\n",
        GET + b"X: a\0b\r\n\r\n",
        GET + b"no colon\r\n\r\n",
        GET + b": no name\r\n\r\n",
        GET + b"X: y\r\n" * 101 + b"\r\n",
        b"GET http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_has_two_readings_or_none_is_refused(head: bytes) -> None:
    with pytest.raises(BadHead):
        parse_request(head)


def test_what_goes_on_is_written_anew() -> None:
    head = (
        b"POST http://example.org/x HTTP/1.0\r\nhOST: evil.example.org\r\n"
        b"Proxy-Authorization: secret\r\nUpgrade: h2c\r\n"
        b"Connection: keep-alive, X-Mine, content-length\r\nX-Mine: 1\r\nAccept: */*\r\nContent-Length: 3\r\n"
        b"Proxy-Connection: close\r\nTE: trailers\r\nKeep-Alive: 5\r\n\r\n"
    )
    wanted = b"POST /x HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    assert rewrite_request(parse_request(head), "/x", "example.org") == wanted


def test_the_response_ends_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive, X-A\r\nX-A: 1\r\nSet-Cookie: a\r\n\r\n"
    assert rewrite_response(head) == (
        200,
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nSet-Cookie: a\r\nConnection: close\r\n\r\n",
    )
    assert rewrite_response(b"HTTP/1.1 100 Continue\r\n\r\n") == (100, b"HTTP/1.1 100 Continue\r\n\r\n")
    for bad in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX\r\n\r\n"):
        with pytest.raises(BadHead):
            rewrite_response(bad)


def test_a_head_has_an_end() -> None:
    assert end_of_head(b"GET / HTTP/1.1\r\n\r\nbody") == 18
    assert end_of_head(b"x" * (HEAD_BYTES - 1)) == 0
    with pytest.raises(BadHead, match="larger"):
        end_of_head(b"x" * HEAD_BYTES)
