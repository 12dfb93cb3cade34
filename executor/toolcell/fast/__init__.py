"""What exists only for speed, on both sides of the pipes. `runner/cow/` has what spares copies of pages.

| module | what it does |
|---|---|
| `switches` | the list of tricks, and which of them are on |
| `frames` | frames that are packed and read by hand |
| `pipes` | pipes that hold more than the kernel's 64 KiB |
| `tuples` | named tuples, made without a function of Python's |

Each trick has a switch, a test and a measured gain: docs/performance.md, "Tricks".
"""
