"""Approval of single calls by a person or a program: requests, answers, and the store that keeps both."""

from toolcell.store.approvals.request import (
    AnyApprover,
    ApprovalEntry,
    ApprovalQueue,
    ApprovalRequest,
    Approved,
    Approver,
    Denied,
    StandingApproval,
)
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
