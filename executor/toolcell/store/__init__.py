"""What survives the process: the journal, approvals and the state directory."""
