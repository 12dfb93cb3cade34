"""What is a message, and what is not."""

import pytest

from toolcell.mcp.client.inside.jsonrpc import Misbehaved, decoded, encoded, result_in
from toolcell_tools.failures import ToolFailure


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"null", b"[]", b"7", b"{}", b'{"jsonrpc":"1.0","method":"a"}', b'{"jsonrpc":"2.0"}',
     b'{"jsonrpc":"2.0","id":"other","result":{}}', b'{"id":[1],"result":{}}', b'{"error":"a line of a log"}',
     b'{"id":1,"message":"a line of a log"}',
     b'{"jsonrpc":"2.0","id":true,"result":{}}', b'{"jsonrpc":"2.0","id":null,"result":{}}',
     b'{"jsonrpc":"2.0","method":7}',
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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id":1,"result":{}}', '"jsonrpc"'),
        (b'{"jsonrpc":2.0,"id":1,"result":{}}', '"jsonrpc"'),
        (b'{"jsonrpc":"2.0","id":"1","result":{}}', 'id is "1"'),
        (b'{"jsonrpc":"2.0","id":"1","error":{}}', 'id is "1"'),
        (b'{"jsonrpc":"2.0","id":1.0,"result":{}}', r"id is 1\.0"),
        (b'{"jsonrpc":"2.0","id":1}', "neither"),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}', "both"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}', "has NaN"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":-Infinity}}', "has -Infinity"),
    ],
)  # fmt: skip
def test_a_malformed_answer_fails_the_request_with_its_problem(line: bytes, said: str) -> None:
    answer = decoded(line)
    assert answer is not None and answer["id"] == 1
    with pytest.raises(ToolFailure, match=f"answer to tools/call is malformed: .*{said}"):
        result_in(answer, "tools/call")
