"""A call's way through the supervisor, one module a step, each step a function of a value.

pipeline: resolve → validate → hooks → permit → approve → grants → execute → conclude → record
services, context: what every step is given
"""
