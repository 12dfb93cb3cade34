"""Processes: the zygotes, the cells they fork, which call runs where, and when it has to be over.

`plan` decides and does nothing, `pool` does what it decided; `fleet` has the zygotes, `slots` the uids and cgroups,
`reserve` the prewarmed cells; `cell` is one cell, its life a table; `reactor` is what differs between asyncio and trio.
"""
