"""Sessions: their tree, what each may do, and the broker that serves the handles of their calls.

`grants` computes what a call may do, once; `policy` turns that into what the kernel enforces; `broker` holds the
table of operations that a call's grants leave; `tree` says who may open whom.
"""
