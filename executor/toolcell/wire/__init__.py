"""Bytes in, events out: the protocol between our processes. No socket, no clock, no thread.

`frames` splits and decodes the byte stream, `messages` gives each frame a type, `sequence` has the permitted order, and
`protocol` has the ends of the channels. `control` packs the control messages of each call.
"""
