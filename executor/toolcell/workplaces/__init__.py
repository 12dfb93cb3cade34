"""The records of supervisors, and the cleanup after killed ones."""
