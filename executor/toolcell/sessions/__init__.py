"""Sessions: their tree, what each may do, and the broker that serves the handles of their calls.

`grants` computes the grants of a call, once, and turns them into the profile that the kernel enforces. `broker` serves
the operations that a call's grants allow. `tree` has the rules for opening, closing and suspending sessions. `toolbox`
has a session's tools; `modules` and `foreign_tools` those whose code only cells import; `shipping` and `closure` bring
the code of all others into cells.
"""
