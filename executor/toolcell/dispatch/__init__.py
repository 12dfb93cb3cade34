"""The steps of a call through the supervisor. Each module is a step, and each step is a function of a value.

pipeline: resolve → validate → hooks → permit → approve → grants → execute → conclude → record
services, context: the values that every step gets
"""
