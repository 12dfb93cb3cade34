"""The code that runs inside: the zygote that forks cells, the cell's init, and the call process. The supervisor trusts
the zygote, and nothing that comes out of a cell.

`zygote` is exec'd by the supervisor and forks cells. `init` is pid 1 of a cell, locked down, with the tools imported.
`call_process` is forked by the init for exactly one call. `cheap_forks` and `warm` exist only so that these forks copy
fewer pages.
"""
