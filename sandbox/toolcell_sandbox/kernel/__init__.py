"""The kernel's system calls and what this kernel offers."""
