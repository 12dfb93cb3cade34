"""The code that runs inside: the zygote that forks cells, the cell's init, and the call process. The supervisor trusts
the zygote, and nothing that comes out of a cell.

`zygote` is exec'd by the supervisor and forks cells. `cell` is pid 1 of a cell, locked down, with the tools imported.
`serve` is the call process, which the init forks for exactly one call.
"""
