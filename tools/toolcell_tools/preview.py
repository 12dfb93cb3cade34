"""Preview: the effect of a call, shown to the person who approves it."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from .failures import ToolDefinitionError
from .signature import is_async, is_generator

__all__ = [
    "DETAILS_CHARS",
    "SUMMARY_CHARS",
    "Preview",
    "Previewer",
    "argument_lines",
    "counted",
    "ends_of",
    "fitted",
    "is_printable",
    "printable",
    "shortened",
    "transcript",
    "written",
]

SUMMARY_CHARS = 200
DETAILS_CHARS = 20_000
STREAM_CHARS = 8_000
_NAME_CHARS = 40
_NOTE_CHARS = 100  # room for the words around a shortened text


@dataclass(frozen=True, slots=True)
class Preview:
    """A summary of one line, details in plain text, and a unified diff if the call changes a file."""

    summary: str
    details: str = ""
    diff: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Preview":
        """The Preview of a dict that `to_dict` made. Raises TypeError for any other data."""
        summary, details, diff = (data.get(key) for key in ("summary", "details", "diff"))
        if type(summary) is str and type(details) is str and (diff is None or type(diff) is str) and len(data) == 3:
            return cls(summary, details, diff)
        raise TypeError("a preview is a summary and details in strings, and a diff in a string or None")

    def for_people(self) -> "Preview":
        """A copy that is safe to show, whoever wrote it: bounded, and with the summary in one line.

        Every unprintable character except newline and tab is escaped, so none can move the cursor or change the
        direction of writing.
        """
        details = printable(fitted(self.details, DETAILS_CHARS + _NOTE_CHARS), keep="\n\t")
        diff = None if self.diff is None else printable(fitted(self.diff, DETAILS_CHARS + _NOTE_CHARS), keep="\n\t")
        return Preview(printable(fitted(self.summary, SUMMARY_CHARS + _NOTE_CHARS)), details, diff)

    @classmethod
    def of_call(cls, tool: str, arguments: Mapping[str, Any]) -> "Preview":
        """A preview for any tool: its name with the arguments' values, shortened to fit, and one argument a line."""
        pairs = _pairs(arguments)
        lines = [f"{name}: {value}" for name, value in pairs]
        details = "\n".join(lines)
        if len(details) > DETAILS_CHARS:  # equal shares, so that a long argument does not hide the next
            shares = "\n".join(fitted(line, DETAILS_CHARS // len(lines)) for line in lines)
            details = shares if len(shares) <= DETAILS_CHARS + _NOTE_CHARS else fitted(details, DETAILS_CHARS)
        return cls(_in_a_line(tool, pairs), details)


def shortened(text: str, limit: int = SUMMARY_CHARS) -> str:
    """`text`, or its first `limit` characters and an exact count of the rest."""
    return text if len(text) <= limit else f"{text[:limit]} [… {len(text) - limit:,} more characters …]"


def fitted(text: str, limit: int) -> str:
    """`text`, or its beginning and its end, `limit` characters together, around an exact count of those between.

    Previews are cut by this, so that text after padding is still shown. More than 80 spaces or 8 line breaks in a row
    are replaced by their number."""
    if any(each in text for each in _LEAST_PADDING):
        text = _PADDING.sub(_named, text)
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} [… {len(text) - limit:,} more characters …] {text[len(text) - tail :]}"


_LEAST_PADDING = (" " * 81, "\n" * 9)  # to look for these first takes a twentieth of the time
_PADDING = re.compile(r"  {80,}|\n\n{8,}")


def _named(found: re.Match[str]) -> str:
    padding = found[0]
    return f"[… {len(padding):,} {'spaces' if padding[0] == ' ' else 'line breaks'} …]"


def ends_of(text: str, limit: int = STREAM_CHARS) -> str:
    """`text`, or its two ends, `limit` characters together, around an exact count of the rest."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[… {len(text) - limit:,} of {len(text):,} characters left out …]\n{tail}"


def transcript(heading: str, stdout: str, stderr: str, ending: str) -> str:
    """A command, its output and how it ended, for people: bounded, with unprintable characters escaped."""
    parts = [heading, *(printable(ends_of(text.rstrip("\n")), keep="\n\t") for text in (stdout, stderr)), ending]
    return "\n".join(part for part in parts if part)


def counted(number: int, one: str, many: str = "") -> str:
    """`1 line` or `2,000 lines`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def printable(text: str, keep: str = "") -> str:
    """`text` with an escape such as `\\x1b` for each character that does not print or prints as a blank, except those
    in `keep`."""
    if text.isascii() and is_printable(text, keep):
        return text
    pieces = [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]  # other threads run between two
    return "".join([each if is_printable(each, keep) else each.translate(_escapes(keep)) for each in pieces])


def is_printable(text: str, keep: str = "") -> bool:
    """Whether `printable` changes nothing."""
    for each in keep:
        text = text.replace(each, "")
    return text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text))


class _Escapes(dict[int, str | int]):
    """What `str.translate` puts in place of each character. It fills up with the characters that it is asked for."""

    def __missing__(self, code: int) -> str | int:
        character = chr(code)
        is_seen = character.isprintable() and character not in _BLANK
        found = code if is_seen else character.encode("unicode_escape").decode()
        if len(self) < _MOST_ESCAPES:
            self[code] = found
        return found


@cache
def _escapes(keep: str) -> _Escapes:
    return _Escapes({ord(each): each for each in keep})


_PIECE_CHARS = 64 * 1024
_MOST_ESCAPES = 4096
_BLANK = frozenset(
    "\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Letters and marks that `str.isprintable` accepts and people cannot see: Unicode's Default_Ignorable_Code_Point, and
the empty Braille pattern."""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def written(value: object) -> str:
    """`value` as JSON in one line, complete and visible: each unprintable character is an escape, and more than 16
    equal blanks in a row are counted, as in `"git status\\{2,500 spaces}; ls"`. No text can imitate that, because JSON
    doubles the backslashes of a text."""
    text = printable(_json(value))
    for blank, runs in _RUNS:
        if blank * _COUNTED_FROM in text:
            text = runs.sub(_counted, text)
    return text


_COUNTED_FROM = 17
_RUNS = [  # each begins with a literal text, which is found in a tenth of the time
    (blank, re.compile(f"{re.escape(blank * _COUNTED_FROM)}(?:{re.escape(blank)})*"))
    for blank in (" ", r"\n", r"\r", r"\t")
]


def _counted(found: re.Match[str]) -> str:
    run, text, begin = found[0], found.string, found.start()
    blank = " " if run[0] == " " else run[:2]
    while begin and text[begin - 1] == "\\" and blank != " ":
        begin -= 1
    letter = (found.start() - begin) % 2 * blank  # after an escaped backslash: the n in `\\n` is a letter
    number = len(run) // len(blank) - bool(letter)
    if number < _COUNTED_FROM:
        return run
    return f"{letter}\\{{{number:,} {'spaces' if blank == ' ' else f'times {blank}'}}}"


def argument_lines(arguments: Mapping[str, Any], sign: str = ": ") -> list[str]:
    """The arguments, one a line and complete: name, sign and value, as `written`."""
    return [f"{name}{sign}{value}" for name, value in _pairs(arguments)]


def _pairs(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(printable(_key(key)), written(value)) for key, value in arguments.items()]


def _in_a_line(tool: str, arguments: list[tuple[str, str]]) -> str:
    """The call in at most `SUMMARY_CHARS` characters. Short values are complete; long values share the other room."""
    names = [_cut(name, _NAME_CHARS) for name, _value in arguments]
    values = [value for _name, value in arguments]
    room = SUMMARY_CHARS - len(tool) - 2 - sum(len(name) + 3 for name in names)
    shares = dict[int, int]()
    for left, at in enumerate(sorted(range(len(values)), key=lambda each: len(values[each]))):
        shares[at] = min(len(values[at]), max(1, room // (len(values) - left)))
        room -= shares[at]
    pairs = (f"{name}={_cut(value, shares[at])}" for at, (name, value) in enumerate(zip(names, values, strict=True)))
    line = f"{tool}({', '.join(pairs)})"
    if len(line) <= SUMMARY_CHARS:
        return line
    return _cut(f"{tool}({', '.join(map('='.join, arguments))})", SUMMARY_CHARS)


def _cut(text: str, limit: int) -> str:
    """`text`, or its two ends around the number of characters between, in at most `limit` characters if they fit."""
    if len(text) <= limit:
        return text
    room = max(0, limit - len(f"…{len(text):,}…"))
    tail = room // 3
    return f"{text[: room - tail]}…{len(text) - room:,}…{text[len(text) - tail :]}"


def _key(key: str) -> str:
    """An argument's name, quoted unless it is a Python identifier: any other name may contain line breaks."""
    return key if key.isidentifier() else _json(key)


class Previewer:
    """A tool's preview function, and the arguments that it takes. Raises ToolDefinitionError for an unfit function."""

    __slots__ = ("_context", "_fn", "_names", "_tool")

    def __init__(self, tool: str, fn: Callable[..., object], context: str | None) -> None:
        if is_async(fn) or is_generator(fn):
            raise ToolDefinitionError(f"tool {tool!r}: its preview is async or a generator. Write a plain def.")
        self._tool = tool
        self._fn = fn
        self._context = context
        self._names = tuple(name for name in inspect.signature(fn).parameters if name != context)

    def check(self, values: tuple[str, ...]) -> None:
        """Raise ToolDefinitionError if the preview has a parameter that the tool does not have."""
        strange = [name for name in self._names if name not in values]
        if strange:
            has = ", ".join(values) or "none"
            raise ToolDefinitionError(
                f"tool {self._tool!r}: its preview takes {strange[0]!r}, and the tool's parameters are: {has}. "
                "A preview takes a ToolContext and parameters of the tool, by the same names."
            )

    def __call__(self, values: Mapping[str, Any], context: object) -> Preview:
        given = {name: values[name] for name in self._names if name in values}
        if self._context is not None:
            given[self._context] = context
        shown = self._fn(**given)
        if isinstance(shown, Preview):
            return shown
        if isinstance(shown, str):
            return Preview(printable(fitted(shown, SUMMARY_CHARS)), shown)
        raise TypeError(f"the preview of {self._tool!r} is a {type(shown).__qualname__}, not a Preview or a str")
