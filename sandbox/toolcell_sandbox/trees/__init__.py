"""Hostile trees: find, judge and undo what calls did to directories that they may write to."""
