"""Bytes in, events out: the protocol between our processes. No socket, no clock, no thread.

`frames` cuts and decodes, `messages` gives each frame a type, `sequence` says what may follow what, `protocol` are the
ends of the channels. `control` is what is said for each call, packed by hand.
"""
