"""Explain to a model what is wrong with a value: the place, the expected and the given value, and a suggestion.

jsonschema-rs reports what failed, keyword by keyword; this module selects and rewords. jsonschema-rs also gave the
verdict, so the reasons always agree with the verdict, whatever its dialect of patterns.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, cast

MAX_PROBLEMS = 5
MAX_CHOICES = 20
SHOWN_CHARS = 60
Path = tuple[str | int, ...]


class Problem(NamedTuple):
    """One problem: the place in the value, the keyword that failed, and a message that is made on demand."""

    path: Path
    keyword: str
    say: Callable[[], str]

    @classmethod
    def of(cls, path: Path, keyword: str, text: str) -> "Problem":
        return cls(path, keyword, lambda: text)

    @property
    def field(self) -> str:
        """`items.0.name`; empty for the value itself."""
        return ".".join(str(step) for step in self.path)

    def __str__(self) -> str:
        return f"{self.field}: {self.say()}" if self.path else self.say()


def explained(found: list[Problem]) -> str:
    """One text with the first MAX_PROBLEMS problems and the number of the others."""
    if len(found) == 1:
        return str(found[0])
    lines = [f"- {one}" for one in found[:MAX_PROBLEMS]]
    if len(found) > MAX_PROBLEMS:
        lines.append(f"- and {len(found) - MAX_PROBLEMS} more")
    return "\n".join([f"{len(found)} problems:", *lines])


def problems(errors: Iterable[Any], schema: Mapping[str, Any], value: object) -> list[Problem]:
    """The problems of `value` in `errors` of jsonschema-rs, each once."""
    found: dict[tuple[Path, str], Problem] = {}
    for error in errors:
        for one in _problems_of(error, schema, value):
            found.setdefault((one.path, one.keyword), one)
    # A list of constants is more useful than the type that they share.
    return [one for one in found.values() if one.keyword != "type" or (one.path, "enum") not in found]


def _problems_of(error: Any, schema: Mapping[str, Any], value: object) -> list[Problem]:
    path: Path = tuple(error.instance_path)
    instance = _at(path, value) if error.instance is None else error.instance
    keyword = str(error.schema_path[-1]) if error.schema_path else ""
    facts = cast("dict[str, Any]", error.kind.as_dict())
    if "context" in facts:
        return _of_branches(instance, path, facts["context"], schema, value)
    if "unexpected" in facts and isinstance(instance, dict):
        given = cast("dict[str, object]", instance)
        known = _known_names(schema, error.schema_path[:-1])
        return [Problem((*path, name), keyword, partial(_unknown, name, known, given)) for name in facts["unexpected"]]
    if "property" in facts and keyword == "required":
        return [Problem.of((*path, facts["property"]), keyword, "is required")]
    if "types" in facts or "type" in facts:
        return [Problem(path, keyword, partial(_wrong_type, _types(facts), instance))]
    if options := _options(facts):
        return [Problem(path, keyword, partial(_not_among, options, instance))]
    return [Problem(path, keyword, lambda: _clipped(str(error.message), 300))]


def _options(facts: Mapping[str, Any]) -> list[object]:
    """The constants of a failed `enum` or `const`; none for other failures."""
    return facts.get("options") or ([facts["expected_value"]] if "expected_value" in facts else [])


def _types(facts: Mapping[str, Any]) -> list[str]:
    return [str(one) for one in facts["types"]] if "types" in facts else [str(facts["type"])]


def _wrong_type(types: list[str], value: object) -> str:
    said = f"must be {' or '.join(_an(one) for one in types)}, not {shown(value)}"
    if isinstance(value, str) and not {"object", "array"}.isdisjoint(types) and value.lstrip()[:1] in ("{", "["):
        return f"{said}. Send the JSON itself, not a string of it"
    return said


def _an(name: str) -> str:
    if name == "null":
        return name
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _not_among(options: list[object], value: object) -> str:
    texts = [json.dumps(one, ensure_ascii=False) for one in options[:MAX_CHOICES]]
    more = f" or {len(options) - MAX_CHOICES} others" if len(options) > MAX_CHOICES else ""
    said = f"must be {'one of ' if len(options) > 1 else ''}{', '.join(texts)}{more}, not {shown(value)}"
    return said + _meant(value, [one for one in options if isinstance(one, str)])


def _unknown(name: str, known: list[str], value: Mapping[str, object]) -> str:
    free = [one for one in known if one not in value]
    if hint := _meant(name, free) or _meant(name, known):
        return f"is not known{hint}"
    if not known:
        return "is not known; there are none"
    others = ", ".join(known[:MAX_CHOICES])
    return f"is not known; known are {others}{', …' if len(known) > MAX_CHOICES else ''}"


def _meant(value: object, choices: list[str]) -> str:
    """A "did you mean" for a text that is similar to one of `choices`. Case and separators count little."""
    if not isinstance(value, str) or len(value) > 100:
        return ""
    plain = {_bare(one): one for one in reversed(choices[:300])}
    near = get_close_matches(_bare(value), plain, n=1, cutoff=0.6)
    return f"; did you mean {json.dumps(plain[near[0]], ensure_ascii=False)}?" if near else ""


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def _known_names(schema: Mapping[str, Any], path: Iterable[str | int]) -> list[str]:
    """The properties of the schema at `path`. jsonschema-rs gives the path from the root, with references resolved."""
    here: Any = schema
    for step in path:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):  # inside another resource, by its $id
            return []
    named = cast("dict[str, Any]", here).get("properties") if isinstance(here, dict) else None
    return list(cast("dict[str, object]", named)) if isinstance(named, dict) else []


def _at(path: Path, value: Any) -> Any:
    """The value at a path. jsonschema-rs gives null for a NaN or an infinity."""
    for step in path:
        value = value[step]
    return value


def _of_branches(
    instance: object, path: Path, branches: list[list[Any]], schema: Mapping[str, Any], value: object
) -> list[Problem]:
    """For `anyOf` and `oneOf`, the problems of the alternative that was most likely meant."""
    failed = [[one for each in branch for one in _problems_of(each, schema, value)] for branch in branches]
    if not all(failed):
        count = sum(not branch for branch in failed)
        return [Problem.of(path, "oneOf", f"fits {count} of the alternatives at once, and must fit exactly one")]
    if all(_is_of_type(each, path) for branch in branches for each in branch):
        types = [one for branch in branches for each in branch for one in _types(each.kind.as_dict())]
        return [Problem(path, "type", partial(_wrong_type, list(dict.fromkeys(types)), instance))]
    if merged := _merged_choices(branches, path, instance):
        return [merged]
    named = _named_alternatives(branches, path)
    if isinstance(named, Problem):
        return [named]
    likely = [failed[index] for index in named]
    return max(likely, key=lambda branch: (max(len(one.path) for one in branch), -len(branch)))


def _is_of_type(error: Any, path: Path) -> bool:
    facts = error.kind.as_dict()
    return ("type" in facts or "types" in facts) and tuple(error.instance_path) == path


def _merged_choices(branches: list[list[Any]], path: Path, value: object) -> Problem | None:
    """One list of choices from the alternatives that are constants. Alternatives of another type are left out."""
    options: list[object] = []
    for branch in branches:
        at_hand = [one for one in branch if not _is_of_type(one, path)]
        for each in at_hand:
            choices = _options(each.kind.as_dict())
            if tuple(each.instance_path) != path or not choices:
                return None
            options += choices
    return Problem(path, "enum", partial(_not_among, options, value)) if options else None


def _named_alternatives(branches: list[list[Any]], path: Path) -> list[int] | Problem:
    """The alternatives whose constant properties, such as `{"kind": "circle"}`, fit; if none does, the valid values."""
    fitting: list[int] = []
    wrong: dict[Path, list[object]] = {}
    given: dict[Path, object] = {}
    for index, branch in enumerate(branches):
        contradictions = [
            one for one in branch if len(one.instance_path) == len(path) + 1 and _options(one.kind.as_dict())
        ]
        for one in contradictions:
            place = tuple(one.instance_path)
            wrong.setdefault(place, []).extend(_options(one.kind.as_dict()))
            given[place] = one.instance
        if not contradictions and not any(_is_of_type(one, path) for one in branch):
            fitting.append(index)
    if fitting:
        return fitting
    if len(wrong) == 1:
        place, options = next(iter(wrong.items()))
        return Problem(place, "enum", partial(_not_among, options, given[place]))
    return list(range(len(branches)))


def shown(value: object) -> str:
    """The value as JSON, shortened, with its type if the JSON does not show it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return json.dumps(_clipped(value, SHOWN_CHARS), ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{json.dumps(value)}, which JSON does not have"
    return json.dumps(value)


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
