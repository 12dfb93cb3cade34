"""Code that exists only so that forked processes copy fewer pages. Nothing here changes what a call does.

A forked process shares each page with its parent until one of the two writes to it. Then the kernel copies the page,
which takes some thousand instructions. CPython writes wherever it counts a reference, so a first call would copy
several hundred pages.

| module | what it does |
|---|---|
| `warm` | a standby runs a made-up call before the real one comes |
| `requests` | the zygote goes through a made-up request after a fork |
| `pages` | forks inherit the page tables of the interpreter's code |
| `forks` | handlers of `os.register_at_fork` wait until a process that needs them |
"""
