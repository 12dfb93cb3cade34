"""Approval of single calls by a person or a program: requests, answers, and the store that keeps both."""

from toolcell.store.approvals.entry import ApprovalEntry, StandingApproval
from toolcell.store.approvals.queue import ApprovalQueue
from toolcell.store.approvals.request import AnyApprover, ApprovalRequest, Approved, Approver, Denied
from toolcell.store.approvals.store import Approvals

__all__ = [
    "AnyApprover",
    "ApprovalEntry",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approvals",
    "Approved",
    "Approver",
    "Denied",
    "StandingApproval",
]
