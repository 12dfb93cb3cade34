"""Bytes in, events out: the protocol between the supervisor and a cell. No socket, no clock, no thread.

`frames` cuts and decodes, `messages` gives each frame a type, `protocol` knows what may follow what.
"""
