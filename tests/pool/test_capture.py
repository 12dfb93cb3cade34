"""The capture of a stream: its head, its tail and its length."""

from hypothesis import given
from hypothesis import strategies as st

from toolcell.pool.run import EMPTY, Capture, Captured


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(1, 200))
def test_a_capture_keeps_head_and_tail_and_counts_the_rest_exactly(chunks: list[bytes], keep: int) -> None:
    chunks = [bytes(97 + byte % 26 for byte in chunk) for chunk in chunks]
    whole = b"".join(chunks)
    capture = Capture(keep)
    for chunk in chunks:
        capture.feed(chunk)
    captured = capture.take()
    assert captured.total_bytes == len(whole)
    assert captured.omitted_bytes == max(0, len(whole) - keep)
    head = keep - keep // 3
    if captured.omitted_bytes:
        assert captured.text.startswith(whole[:head].decode())
        assert captured.text.endswith(whole[len(whole) - keep // 3 :].decode())
    else:
        assert captured.text == whole.decode()
    assert capture.take().total_bytes == 0


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(1, 200))
def test_a_capture_holds_no_more_than_it_may_keep(chunks: list[bytes], keep: int) -> None:
    capture = Capture(keep)
    for chunk in chunks:
        capture.feed(chunk)
        assert len(capture.kept()) <= keep


def test_what_a_command_skipped_is_a_gap_after_which_no_byte_is_of_the_head() -> None:
    capture = Capture(12)
    capture.relay(b"begin", 0)
    capture.relay(b"middle", 0)
    capture.relay(b"the end", 1_000)
    assert capture.total == capture.relayed == 1_018
    captured = capture.take()
    assert captured.text == "beginmid\n[1,006 of 1,018 bytes left out]\n end"
    assert (capture.total, capture.relayed, capture.take()) == (0, 0, EMPTY)


def test_bytes_that_are_no_text_are_replaced() -> None:
    capture = Capture(9)
    capture.feed(b"a\xffb")
    assert capture.take() == Captured("a\ufffdb", 3)
