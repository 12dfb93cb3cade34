"""One kernel mechanism per module."""
