"""Workspaces that are sent to a node, and come back as a diff.

What a tree and its diff are, and how a diff is written, is in `toolcell.workplaces` (`listing`, `exclusions`, `diff`,
`writer`, `entry_swap`), which knows nothing of nodes. Here is what travels:

- Shared: `manifest.py` packs the entries of a tree, `blobs.py` stores contents.
- The driver: `options.py` is public, `source_tree.py` reads a workspace, `trees.py` has the workspaces of all sessions,
  `sender.py` sends them, `diff_return.py` brings the changes back.
- A node: `seat_files.py` serves a driver and has the node's directory, `copies.py` makes a session's copy,
  `copied_paths.py` translates paths.

Why it is so:

- A copy, not hard links to the store: a cell may write to any file of its workspace.
- Contents cross beside the stream of calls (`link.py`), which must not wait for them.
- Each file is checked against its digest where it arrives. A tree that changes while it is read is read again.
- The driver judges the diff, because cells may write anything into a node's copy.
"""
