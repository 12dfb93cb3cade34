"""What happened: a record for each call and for each thing that an auditor would ask about. Written, never read, by
calls.
"""

from .journal import Journal, RecentJournal, Record

__all__ = ["Journal", "RecentJournal", "Record"]
