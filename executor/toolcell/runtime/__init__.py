"""The implementation of the public objects: a supervisor's runtime, and the core of each session.

settings: what a supervisor was made with · runtime: start, end, and its sessions · core: one session · past: what a
killed supervisor left
"""
