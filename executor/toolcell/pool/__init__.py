"""Processes: the zygotes, the cells they fork, which call runs where, and when it has to be over.

`plan` decides and does nothing, `pool` does what it decided; `cell` is one cell's life as a state machine over its
descriptors; `reactor` is the little that differs between asyncio and trio.
"""
