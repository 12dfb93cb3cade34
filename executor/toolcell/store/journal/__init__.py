"""The journal: a record of each call and of each event that an auditor needs. Calls write it and never read it."""

from toolcell.store.journal.journal import Journal, RecentJournal, Record

__all__ = ["Journal", "RecentJournal", "Record"]
