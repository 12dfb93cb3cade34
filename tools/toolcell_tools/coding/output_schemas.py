"""The output schemas of the coding tools (JSON Schema 2020-12)."""

from typing import Any

__all__ = ["CHANGES", "FOUND_PATHS", "LISTING", "MATCHES"]

_Schema = dict[str, Any]


def _object(description: str, optional: tuple[str, ...] = (), **properties: _Schema) -> _Schema:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _text(description: str) -> _Schema:
    return {"type": "string", "description": description}


def _count(description: str) -> _Schema:
    return {"type": "integer", "minimum": 0, "description": description}


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


_PATH = _text("Relative to the workspace.")
_MORE = _text("How many more there are, and how to see them. Absent if there are none.")
_LINES = _array(_text("A line, cut after 500 characters."))

LISTING = _object(
    "The entries of a directory, in the order of their paths.",
    ("more",),
    path=_PATH,
    entries=_array(
        _object(
            "An entry.",
            ("size",),
            path=_PATH,
            kind={"type": "string", "enum": ["file", "directory", "link"]},
            size=_count("Of a file, in bytes."),
        )
    ),
    more=_MORE,
)
FOUND_PATHS = _object("The files that match, in the order of their paths.", ("more",), paths=_array(_PATH), more=_MORE)
MATCHES = _object(
    "The lines that match, or the files with such lines, in the order of their paths.",
    ("matches", "files", "more", "skipped"),
    searched=_count("How many files were searched."),
    matches=_array(
        _object(
            "A line that matches.",
            ("before", "after"),
            path=_PATH,
            line={"type": "integer", "minimum": 1},
            text=_text("The line, cut after 500 characters."),
            before=_LINES,
            after=_LINES,
        )
    ),
    files=_array(_object("A file.", path=_PATH, lines=_count("How many of its lines match."))),
    more=_MORE,
    skipped=_text("How many files were not searched, and why. Absent if all were."),
)
CHANGES = _object(
    "The files that the patch has changed, in its order.",
    changes=_array(
        _object(
            "A file.",
            ("moved_from",),
            path=_PATH,
            action={"type": "string", "enum": ["created", "modified", "deleted"]},
            moved_from=_PATH,
        )
    ),
    diff=_text("The unified diff of all files, cut after 20,000 characters."),
)
