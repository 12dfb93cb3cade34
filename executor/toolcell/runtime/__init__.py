"""The implementation of the public objects: a supervisor's runtime, and the core of each session.

options, opening: the parameters of a supervisor and of a session · settings: the options, checked · runtime: start,
end, and its sessions · core: one session · past: what a killed supervisor left
"""
