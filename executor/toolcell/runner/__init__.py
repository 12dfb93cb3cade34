"""What runs inside: the zygote that forks cells, the cell's init, and the call process. Nothing here is trusted.

`zygote` is exec'd by the supervisor and forks cells; `cell` is pid 1 of a cell, locked down, with the tools imported;
`serve` is the call process, forked by the init for exactly one call.
"""
