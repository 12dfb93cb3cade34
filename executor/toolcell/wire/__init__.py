"""Bytes in, events out: the protocol between our processes. No socket, no clock, no thread.

| module | what it does |
|---|---|
| `frames` | splits and decodes the byte stream, within limits |
| `messages` | gives each frame a type |
| `sequence` | the permitted order of messages |
| `protocol` | the ends of the channels; the frames that are packed and read by hand |
| `budget` | bounds the bytes that wait in the supervisor |
| `pipes` | the capacity of a pipe, which both ends change |
| `forks` | what a forked child of the program drops |
| `switches` | the tricks for speed, and which of them are on |
"""
