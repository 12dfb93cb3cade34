"""The records and the cleanup of supervisors that were killed."""
