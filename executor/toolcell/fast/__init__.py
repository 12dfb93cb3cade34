"""Code that exists only for speed, on both sides of the pipes. The code that avoids page copies is in
`runner/warm.py` and `runner/cheap_forks.py`.

| module | what it does |
|---|---|
| `switches` | the list of tricks, and which of them are on |
| `frames` | frames that are encoded and decoded by hand |
| `pipes` | pipes that hold more than the kernel's 64 KiB |
| `awake` | an event loop that polls while a kept process is about to answer |
| `imports` | no garbage collection while the runtime is imported |

Each trick has a switch, a test and a measured gain: docs/performance.md, "Tricks".
"""
