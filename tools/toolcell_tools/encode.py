"""Turn what a tool returns into plain JSON data that msgpack can carry. Runs inside the cell."""

import sys
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from json import JSONEncoder
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from .artifact import Artifact, merged
from .convert import converted
from .failures import Unencodable
from .interrupts import described, pass_on
from .lazy import Answer

if TYPE_CHECKING:
    from .result import ToolResult

__all__ = [
    "MAX_CONTAINERS",
    "MAX_DEPTH",
    "MAX_ELEMENTS",
    "WIDE_BITS",
    "encode_counted",
    "encode_json",
    "encode_return",
    "in_utf8",
]

MAX_DEPTH = 64
MAX_ITEMS = 10_000  # artifacts, or blocks of content: the supervisor looks at each one, on its event loop
MAX_ELEMENTS = 1_000_000  # in all containers together: shared lists can unfold to very many elements
MAX_CONTAINERS = 50_000  # lists and objects; a container takes far longer to decode than a scalar
DISPLAY_CHARS = 2_000
_PUNCTUATION = 3  # characters of punctuation per value in a display, about
DISPLAY_TEXT_CHARS = 64_000  # a str is its own display; beyond this length nobody reads it, and it would be sent twice
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1  # what msgpack can carry
WIDE_BITS = 1_023  # of an integer in arguments, so that each can become a float

_compact = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def in_utf8(text: str, errors: str = "backslashreplace") -> str:
    """The text without lone surrogates, which UTF-8 cannot hold: each is escaped, or a question mark if `errors` is
    "replace"."""
    return text if text.isascii() else text.encode("utf-8", errors).decode()


def encode_return(value: object, recorded: Sequence[Artifact] = ()) -> dict[str, Any]:
    """`{"output", "display", "artifacts", "content"}` for what a tool returned, as plain JSON data.

    A ToolResult gives all four, and if it has them, "signals", as `Signal` objects, and "text_member". Any other value
    is the output, and the display is derived from it. `recorded` are the artifacts that handles recorded; each is added
    unless the tool names the same path. Raises Unencodable.
    """
    if type(value) is str:
        text = value if value.isascii() else _checked(value)
        display = text if len(text) <= DISPLAY_TEXT_CHARS else _cut(text, DISPLAY_TEXT_CHARS)
        artifacts = _artifacts((), recorded) if recorded else []
        return {"output": text, "display": display, "artifacts": artifacts, "content": []}
    if type(value) is Answer:
        output = encode_json(value.output)
        artifacts = _artifacts(value.artifacts, recorded)
        content: list[Any] = encode_json(value.content) if value.content else []
        encoded = {"output": output, "display": _checked(value.display), "artifacts": artifacts, "content": content}
        return encoded | {"text_member": value.text_member} if value.text_member else encoded
    result_module = sys.modules.get("toolcell_tools.result")
    if result_module is not None and isinstance(value, result_module.ToolResult):
        return _encode_result(cast("ToolResult", value), recorded)
    output, values, chars = encode_counted(value)
    display = _display(output, values, chars)
    return {"output": output, "display": display, "artifacts": _artifacts((), recorded), "content": []}


def encode_json(value: object, max_elements: int = MAX_ELEMENTS, *, bits: int = 64) -> Any:
    """`value` as plain JSON data: dict with str keys, list, str, int, float, bool, None. Raises Unencodable.

    Integers have at most 64 bits. In arguments and schemas, which go only to a cell, they may have `WIDE_BITS`."""
    return encode_counted(value, max_elements, bits=bits)[0]


def encode_counted(value: object, max_elements: int = MAX_ELEMENTS, *, bits: int = 64) -> tuple[Any, int, int]:
    """As `encode_json`, with the number of values, itself included, and of characters in texts and keys."""
    room = _EncodeRoom(max_elements, bits)
    try:
        plain = _walk(value, MAX_DEPTH, room)
    except _Offender as offender:
        raise Unencodable(f"{_json_path(offender.trail)}: {offender.complaint}") from offender.__cause__
    return plain, 1 + max_elements - room.elements, room.chars


def _encode_result(result: "ToolResult", recorded: Sequence[Artifact]) -> dict[str, Any]:
    if result.error is not None:
        raise Unencodable("$: a tool does not return an error; raise ToolFailure(message, data) instead")
    output, values, chars = encode_counted(result.output)
    display = result.display if "display" in result.model_fields_set else _display(output, values, chars)
    if len(result.content) > MAX_ITEMS:
        raise Unencodable(f"$: {len(result.content):,} blocks of content; at most {MAX_ITEMS:,} can be sent")
    content = [block.model_dump(mode="json") for block in result.content]
    artifacts = _artifacts(result.artifacts, recorded)
    encoded = {"output": output, "display": _checked(display), "artifacts": artifacts, "content": encode_json(content)}
    if result.signals:
        encoded["signals"] = [*result.signals]
    if result.text_member:
        encoded["text_member"] = result.text_member
    return encoded


def _artifacts(declared: Sequence[Artifact], recorded: Sequence[Artifact]) -> list[Any]:
    if not declared and not recorded:
        return []
    found = merged(declared, recorded)
    if len(found) > MAX_ITEMS:
        raise Unencodable(
            f"$: {len(found):,} artifacts; at most {MAX_ITEMS:,} can be sent. Name their directory instead"
        )
    return [_artifact(one) for one in found]


def _artifact(one: Artifact) -> dict[str, Any]:
    if one.uri is not None:
        raise Unencodable(f"$: the artifact {one.path!r} has a uri, which is the supervisor's to set; leave it out")
    said: dict[str, Any] = {
        "path": _checked(one.path),
        "kind": _checked(one.kind),
        "digest": one.digest,
        "size": one.size,
    }
    if one.media_type is not None:
        said["media_type"] = _checked(one.media_type)
    if one.data is not None:
        said["data"] = _checked(one.data)
    return said


class _Offender(Exception):
    """Carries a complaint up through the containers. Each container adds its key to the path."""

    def __init__(self, complaint: str) -> None:
        self.complaint = complaint
        self.trail: list[str | int] = []


class _EncodeRoom:
    """How many more elements and containers fit, and how many characters have been seen."""

    __slots__ = ("bits", "chars", "containers", "elements", "most")

    def __init__(self, elements: int, bits: int) -> None:
        self.bits = bits
        self.most = self.elements = elements
        self.containers = MAX_CONTAINERS
        self.chars = 0

    def complaint(self) -> str:
        """The complaint about a container that did not fit."""
        if self.elements < 0:
            return f"more than {self.most:,} elements in all; send fewer, or write them to a file"
        if self.containers < 0:
            return f"more than {MAX_CONTAINERS:,} lists and objects in all; send fewer, or write them to a file"
        return f"nested more than {MAX_DEPTH} deep, or inside itself; send a flatter value"


def _walk(value: Any, depth: int, room: _EncodeRoom) -> Any:
    kind = _type_of(value)
    if kind is dict:
        return _walk_dict(value, depth, room)
    if kind is list or kind is tuple:
        return _walk_list(value, depth, room)
    if kind is str:
        room.chars += len(value)
        return value if value.isascii() else _valid_text(value)
    if kind is bool or kind is float or value is None:
        return value
    if kind is int:
        if _INT_MIN <= value <= _INT_MAX or value.bit_length() <= room.bits > 64:
            return value
        raise _Offender(f"an integer of more than {room.bits:,} bits cannot be sent; send it as a string")
    try:
        plain = converted(value)
    except MemoryError:
        raise
    except Unencodable as refusal:
        raise _Offender(str(refusal)) from refusal
    except BaseException as failure:  # the serialiser of a user's type may raise anything
        pass_on(failure)
        raise _Offender(f"a {kind.__qualname__} could not be turned into JSON data: {described(failure)}") from failure
    # Each further conversion in a row counts as a level of nesting, so endless ones (a Mapping of itself) end too.
    if type(plain) not in _PLAIN:
        room.containers -= 1
        depth -= 1
        if depth < 0 or room.containers < 0:
            raise _Offender(room.complaint())
    return _walk(plain, depth, room)


_type_of: Callable[[object], type[object]] = type  # type checkers do not know the type() of an Any
_AS_IS = frozenset({bool, float, type(None)})
_PLAIN = frozenset({str, int, float, bool, type(None), list, dict})
_FEW = 10  # up to so many elements, a loop is as fast as one check of all of them


def _walk_list(items: "list[Any] | tuple[Any, ...]", depth: int, room: _EncodeRoom) -> list[Any]:
    count = len(items)
    room.elements -= count
    room.containers -= 1
    if not depth or room.elements < 0 or room.containers < 0:
        raise _Offender(room.complaint())
    if count > _FEW and _all_plain(items, count, room):
        return [*items]
    out: list[Any] = []
    try:
        for item in items:
            kind = _type_of(item)
            if kind is str and item.isascii():
                room.chars += len(item)
                out.append(item)
            elif kind in _AS_IS or (kind is int and _INT_MIN <= item <= _INT_MAX):
                out.append(item)
            elif kind is dict:
                out.append(_walk_dict(item, depth - 1, room))
            else:
                out.append(_walk(item, depth - 1, room))
    except _Offender as offender:
        offender.trail.append(len(out))
        raise
    return out


def _walk_dict(items: dict[Any, Any], depth: int, room: _EncodeRoom) -> dict[str, Any]:
    count = len(items)
    room.elements -= count
    room.containers -= 1
    if not depth or room.elements < 0 or room.containers < 0:
        raise _Offender(room.complaint())
    if count > _FEW and _all_plain(items.values(), count, room) and _all_plain(items, count, room, str):
        return items.copy()
    out = items.copy()  # each element is checked, and replaced if it is not plain
    key: Any = None
    chars = 0
    try:
        for key, item in out.items():
            if type(key) is not str:
                raise _Offender(f"a key of this object is {_a(key)}, and JSON keys are strings; convert it with str()")
            chars += len(key) if key.isascii() else len(_valid_text(key))
            kind = _type_of(item)
            if kind is str and item.isascii():
                chars += len(item)
            elif kind in _AS_IS or (kind is int and _INT_MIN <= item <= _INT_MAX):
                pass
            elif kind is list:
                out[key] = _walk_list(item, depth - 1, room)
            else:
                out[key] = _walk(item, depth - 1, room)
    except _Offender as offender:
        if type(key) is str:
            offender.trail.append(key)
        raise
    room.chars += chars
    return out


def _all_plain(values: Collection[Any], count: int, room: _EncodeRoom, kind: type[object] | None = None) -> bool:
    """Whether all `count` values are of one plain type (of `kind`, if it is given) and can cross as they are.

    This takes a few calls into C for all values together. If the answer is no, the caller's loop finds the reason.
    """
    kinds = [*map(type, values)]
    kind = kind or kinds[0]
    if not all(map(is_, kinds, repeat(kind))):  # not `==`, which a metaclass can override
        return False
    if kind is str:
        text = "".join(values)
        room.chars += len(text)  # an upper bound: if the loop runs too, texts count twice
        return text.isascii()
    if kind is int:
        return max(map(int.bit_length, values)) < 64
    return kind in _AS_IS


def _valid_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise _Offender(f"text with a lone surrogate at character {failure.start} is not valid Unicode") from failure
    return text


def _checked(text: str) -> str:
    return text if type(text) is str and text.isascii() else cast("str", encode_json(text))


def _a(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _json_path(trail: list[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else _step(step) for step in reversed(trail)]
    # A path can have 64 steps. Its two ends are enough to find the place.
    return "$" + "".join(steps if len(steps) <= 12 else [*steps[:6], "…", *steps[-3:]])


def _step(key: str) -> str:
    if key.isidentifier():
        return f".{key}"
    return f"[{_compact(_cut(key.encode(errors='backslashreplace').decode(), 60))}]"


def _display(output: object, values: int, chars: int) -> str:
    """The display for people: a text as it is, other data as JSON. `values` and `chars` are from `encode_counted`."""
    if type(output) is str:
        return output if len(output) <= DISPLAY_TEXT_CHARS else _cut(output, DISPLAY_TEXT_CHARS)
    if type(output) is int:
        return str(output)
    if _PUNCTUATION * values + chars > DISPLAY_CHARS:
        output = _clipped(output, [DISPLAY_CHARS])
    return _cut(_compact(output), DISPLAY_CHARS)


def _clipped(value: object, room: list[int]) -> object:
    """A copy with at most about `room` characters of JSON, so that a long output is never serialised in full."""
    kind = type(value)
    if kind is str:
        text = cast("str", value)
        room[0] -= len(text) + _PUNCTUATION
        return text if len(text) <= DISPLAY_CHARS else text[: DISPLAY_CHARS + 1]
    room[0] -= _PUNCTUATION
    if kind is not dict and kind is not list:
        return value
    if kind is dict:
        shown: dict[str, object] = {}
        for key, item in cast("dict[str, object]", value).items():
            if room[0] < 0:
                break
            room[0] -= len(key)
            shown[key if len(key) <= DISPLAY_CHARS else key[: DISPLAY_CHARS + 1]] = _clipped(item, room)
        return shown if len(shown) == len(cast("dict[str, object]", value)) else {**shown, "…": "…"}
    listed: list[object] = []
    for item in cast("list[object]", value):
        if room[0] < 0:
            listed.append("…")
            break
        listed.append(_clipped(item, room))
    return listed


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
