"""Work on directories from outside of cells: the record and the cleanup of supervisors, and copies of workspaces."""
