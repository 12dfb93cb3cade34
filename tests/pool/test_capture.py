"""The capture of a stream: its head, its tail and its length."""

from hypothesis import given
from hypothesis import strategies as st

from toolcell.pool.capture import Capture


@given(st.lists(st.binary(max_size=400), max_size=30), st.integers(3, 200))
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
