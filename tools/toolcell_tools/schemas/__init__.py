"""JSON Schemas: of a tool's types, and from outside; their keywords, and what judging a value by them can cost."""
