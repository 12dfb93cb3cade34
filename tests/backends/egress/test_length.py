"""The end of a request's body: one request goes on, and nothing after it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.backends.egress.head import BadHead, Chunked, Counted


def test_a_counted_body_leaves_out_what_comes_after_it() -> None:
    body = Counted(5)
    assert body.feed(b"abc") == b"abc" and not body.done
    assert body.feed(b"deGET /smuggled") == b"de" and body.done
    assert Counted(0).done


def test_a_chunked_body_is_the_same_however_it_is_cut() -> None:
    sent = b"5\r\nhello\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    for step in (1, 2, 3, 7, len(sent)):
        body, out = Chunked(), b""
        for at in range(0, len(sent), step):
            if not body.done:
                out += body.feed(sent[at : at + step])
        assert body.done and out.endswith(b"0\r\n\r\n")
        again = Chunked()
        payload = b"".join(line for line in again.feed(out).split(b"\r\n")[1::2])
        assert payload == b"hello0123456789" and b"smuggled" not in out and b"Trailer" not in out


@pytest.mark.parametrize(
    "sent",
    [
        b"5;x=y\r\nhello\r\n",
        b"0x5\r\n",
        b"-5\r\n",
        b"5\nhello\n0\n\nGET / HTTP/1.1\n",
        b"\r\n",
        b"5 \r\n",
        b"1" * 30,
        b"5\r\nhelloX\r\n",
        b"0\r\n" + b"t" * 9000,
    ],
)
def test_a_chunked_body_that_can_be_read_otherwise_is_refused(sent: bytes) -> None:
    with pytest.raises(BadHead):
        Chunked().feed(sent)


def chunks_of(body: bytes) -> list[bytes]:
    """The chunks of a body as this module writes it."""
    found: list[bytes] = []
    while True:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            assert body == b"\r\n"
            return found
        length = int(size, 16)
        found.append(body[:length])
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 300), max_size=8))
def test_whatever_is_in_the_chunks_and_however_they_are_cut_it_goes_on(chunks: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    body, out = Chunked(), b""
    places = sorted({0, len(sent), *(cut % (len(sent) + 1) for cut in cuts)})
    for start, end in pairwise(places):
        assert not body.done
        out += body.feed(sent[start:end])
    assert body.done and b"".join(chunks_of(out)) == b"".join(chunks)


@pytest.mark.parametrize("step", [1, 8_192, 8_193, 10_000])
def test_trailers_of_8_kib_pass_and_one_byte_more_does_not_however_they_are_cut(step: int) -> None:
    for trailer, passes in ((b"t" * 8_192, True), (b"t" * 8_193, False)):
        body, sent = Chunked(), trailer + b"\r\n\r\n"
        body.feed(b"0\r\n")
        try:
            for at in range(0, len(sent), step):
                body.feed(sent[at : at + step])
        except BadHead:
            assert not passes
        assert body.done == passes


@pytest.mark.parametrize(
    ("begin", "more"),
    [(b"", b"1"), (b"0\r\n", b"t" * 100), (b"0\r\n", b"a: b\r\n" * 20), (b"1\r\nx", b"y")],
    ids=["size", "trailer", "trailers", "end of a chunk"],
)
def test_what_has_no_end_is_refused_before_it_takes_memory(begin: bytes, more: bytes) -> None:
    body = Chunked()
    body.feed(begin)
    fed = 0
    with pytest.raises(BadHead):
        while fed < 100_000:
            fed += len(more)
            body.feed(more)
    assert fed < 20_000
