"""Approval of single calls by a person or a program: requests, answers, and the store that keeps both."""

from .entry import ApprovalEntry, StandingApproval
from .queue import ApprovalQueue
from .request import ApprovalRequest, Approved, Approver, Denied
from .store import Approvals

__all__ = [
    "ApprovalEntry",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approvals",
    "Approved",
    "Approver",
    "Denied",
    "StandingApproval",
]
