"""The only code that touches a tree which a cell can write to."""
