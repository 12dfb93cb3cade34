"""Workspaces that are sent to a node, and come back as a diff.

- Shared: `exclusions.py` and `manifest.py` define a tree, `listing.py` reads it, `blobs.py` stores contents.
- The driver: `options.py` is public, `source.py` reads a workspace, `trees.py` has the workspaces of all
  sessions, `sender.py` and `packs.py` send them, `diff_return.py` and `diff_fetch.py` fetch a diff, `judge.py` decides
  which changes may be written, `diff_writer.py` writes them, `entries.py` replaces one entry.
- A node: `seat_files.py` serves a driver, `copies.py` makes a session's copy and finds its changes, `slots.py` has the
  directory of a node.

Why it is so:

- A copy, not hard links to the store: a cell may write to any file of its workspace.
- Contents cross beside the stream of calls (`link.py`), which must not wait for them.
- Each file is checked against its digest where it arrives. A tree that changes while it is read is read again.
- The driver judges the diff, because cells may write anything into a node's copy.
"""
