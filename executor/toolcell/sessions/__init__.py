"""Sessions: their tree, what each may do, and the broker that serves the handles of their calls.

`grants` computes the grants of a call, once. `policy` turns them into the profile that the kernel enforces. `broker`
has the table of operations that a call's grants allow. `tree` has the rules for opening child sessions.
"""
