"""An approver that keeps its requests until the program answers them."""

from collections.abc import Iterator

import anyio

from toolcell.store.approvals.request import ApprovalRequest, Approved, Denied

__all__ = ["ApprovalQueue"]


class ApprovalQueue:
    """An approver for programs with their own page or prompt. Each request waits here until `decide` is called.

    Iterating yields the pending requests, the oldest first. Each request takes one answer; a late or second answer
    raises KeyError. Use the queue on the event loop's thread.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[ApprovalRequest, anyio.Event]] = {}
        self._answers: dict[str, Approved | Denied] = {}

    def __iter__(self) -> Iterator[ApprovalRequest]:
        return iter([request for request, _ in self._pending.values()])

    def __len__(self) -> int:
        return len(self._pending)

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """Wait for the answer. The pipeline ends the wait when the request expires."""
        answered = anyio.Event()
        self._pending[request.id] = (request, answered)
        try:
            await answered.wait()
            return self._answers.pop(request.id)
        finally:
            self._pending.pop(request.id, None)
            self._answers.pop(request.id, None)

    def decide(self, request_id: str, answer: Approved | Denied) -> None:
        """Answer the request with this id. Raises KeyError if it is not pending."""
        _request, answered = self._pending.pop(request_id)
        self._answers[request_id] = answer
        answered.set()
