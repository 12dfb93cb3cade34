"""What is a message, and what is not."""

import pytest

from toolcell.mcp.client.inside.messages import Misbehaved, decoded, encoded, result_in
from toolcell_tools.failures import ToolFailure


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"null", b"[]", b"7", b"{}", b'{"jsonrpc":"1.0","method":"a"}', b'{"jsonrpc":"2.0"}',
     b'{"jsonrpc":"2.0","id":1}',
     b'{"jsonrpc":"2.0","id":true,"result":{}}', b'{"jsonrpc":"2.0","id":null,"result":{}}',
     b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', b'{"jsonrpc":"2.0","method":7}',
     b'{"jsonrpc":"2.0","method":"a","params":[]}', b'{"jsonrpc":"2.0","method":"a","params":{"a":NaN}}',
     b'{"jsonrpc":"2.0","id":1,"result":' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 100_000, b"\xff"],
)  # fmt: skip
def test_a_line_that_is_no_message_is_none(line: bytes) -> None:
    assert decoded(line) is None


def test_requests_notifications_and_answers_are_messages() -> None:
    for message in ({"method": "a"}, {"id": "x", "method": "a", "params": {}}, {"id": 1, "result": None}):
        assert decoded(encoded(message)) == {"jsonrpc": "2.0", **message}


def test_an_error_is_a_failure_with_its_data_and_a_result_is_an_object() -> None:
    with pytest.raises(ToolFailure, match=r"refuses tools/call: bad arguments \(code -32602\)") as caught:
        result_in({"id": 1, "error": {"code": -32602, "message": "bad arguments", "data": [1]}}, "tools/call")
    assert caught.value.data == [1]
    with pytest.raises(ToolFailure, match="refuses tools/call: 7"):
        result_in({"id": 1, "error": 7}, "tools/call")
    with pytest.raises(Misbehaved):
        result_in({"id": 1, "result": []}, "tools/call")


def test_an_answer_with_a_number_that_is_not_of_json_is_an_error_that_names_it() -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        answer = decoded(b'{"jsonrpc":"2.0","id":1,"result":{"a":%s}}' % word.encode())
        assert answer is not None and answer["id"] == 1 and f"has {word}" in answer["error"]["message"]
