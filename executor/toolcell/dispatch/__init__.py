"""A call's way through the supervisor, one module a step, each step a function of a value.

pipeline: resolve → validate → permit → grants → the pool and back → result
"""
