"""Check JSON Schemas that come from outside: an MCP server, a configuration file, another process. Such a schema can be
wrong or hostile. One that passes the checks is kept verbatim."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, cast

import jsonschema_rs

from toolcell_tools.encode import WIDE_BITS, encode_json
from toolcell_tools.failures import ToolDefinitionError, Unencodable

from .cost import MAX_SAME, Cost, SelfReference, pattern_weight
from .keywords import DEFAULT, DRAFTS, FORMATS, UnresolvedReference, draft_of, subschemas

__all__ = ["MAX_BYTES", "MAX_NODES", "MAX_PATTERNS", "check_any_schema", "check_foreign_schema", "compiled"]

MAX_BYTES = 256 * 1024  # as JSON; the largest schema among 218 tools of 18 MCP servers has 37 KB
MAX_NODES = 20_000  # objects, arrays and scalars in all
MAX_PATTERNS = 200  # each costs up to 3 ms to compile
EXPLAINED_NODES = 1_000  # jsonschema, in Python, takes 50 µs for each; its list is not worth a longer wait
MAX_PROBLEMS = 5  # told of one schema


def check_foreign_schema(tool: str, option: str, schema: object) -> dict[str, Any]:
    """Return a deep copy of `schema` as plain JSON data, checked to be fit for validating arguments.

    `tool` and `option` name the subject in errors: "search_issues", "parameters". Raises ToolDefinitionError if the
    schema is not JSON data, is too large or too deep, is not valid in its draft, is not for objects, refers to
    something outside itself, has a pattern that is not linear, or can be slow for a small value.
    """
    plain = check_any_schema(tool, option, schema)
    kind = plain.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ToolDefinitionError(
            f"tool {tool!r}: {option} is a schema for {json.dumps(kind)}, and arguments are an object. Make it "
            '{"type": "object", "properties": {…}}.'
        )
    return plain


def check_any_schema(tool: str, option: str, schema: object) -> dict[str, Any]:
    """As `check_foreign_schema`, for schemas of any value, such as a result."""
    where = f"tool {tool!r}: {option}"
    plain = _plain(where, schema)
    draft = draft_of(plain)
    if draft is None:
        known = ", ".join(DRAFTS)
        raise ToolDefinitionError(
            f"{where} is of an unknown kind of JSON Schema, {str(plain['$schema'])[:80]!r}. Leave $schema out (for "
            f"{DEFAULT}), or use one of {known}."
        )
    _check_against_its_draft(where, plain, draft)
    _check_patterns(where, plain)
    _check_cost(where, plain)
    try:
        compiled(plain)
    except ValueError as failure:
        raise ToolDefinitionError(f"{where} does not compile: {_first_line(failure)} Mend the schema.") from None
    return plain


def compiled(schema: dict[str, Any]) -> Any:
    """The jsonschema-rs validator for a checked schema: of the schema's draft, offline, with linear-time patterns."""
    return _class(draft_of(schema) or DEFAULT)(
        schema, validate_formats=FORMATS, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
    )


def _class(draft: str) -> Any:
    return getattr(jsonschema_rs, DRAFTS[draft])


def _refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, and only what is in the schema itself can be referred to")


def _plain(where: str, schema: object) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise ToolDefinitionError(f"{where} is no schema but a {type(schema).__name__}. Pass a JSON Schema as a dict.")
    try:
        plain = cast("dict[str, Any]", encode_json(cast("object", schema), bits=WIDE_BITS))
        if plain != schema:
            raise Unencodable("$: it has values that are not of a JSON type; convert them first")
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False)
    except ValueError as failure:  # Unencodable is a ValueError
        raise ToolDefinitionError(f"{where} is not JSON data: {failure}.") from None
    size = len(text.encode())
    nodes = _nodes(plain)
    if size > MAX_BYTES or nodes > MAX_NODES:
        raise ToolDefinitionError(
            f"{where} has {size:,} bytes and {nodes:,} values, and may have {MAX_BYTES:,} and {MAX_NODES:,}. Split the "
            "tool, or put shared parts in $defs."
        )
    return plain


def _nodes(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_nodes, cast("dict[str, object]", value).values()))
    return 1 + sum(map(_nodes, cast("list[object]", value))) if isinstance(value, list) else 1


@cache
def _meta_validator(draft: str) -> Any:
    """The draft's meta-schema, compiled. jsonschema-rs contains all meta-schemas, so none is ever fetched."""
    return _class(draft)({"$ref": draft + ("#" if "draft-0" in draft else "")}, retriever=_refuse)


def _check_against_its_draft(where: str, schema: dict[str, Any], draft: str) -> None:
    meta = _meta_validator(draft)
    if meta.is_valid(schema):
        return
    found = sorted(set(_problems(schema, draft, meta)))
    more = f"; and {len(found) - MAX_PROBLEMS} more" if len(found) > MAX_PROBLEMS else ""
    raise ToolDefinitionError(f"{where} is not valid JSON Schema {'; '.join(found[:MAX_PROBLEMS])}{more}.")


def _problems(schema: dict[str, Any], draft: str, meta: Any) -> Iterator[str]:
    """The problems of a schema that its draft's meta-schema refuses, each with its place."""
    if _nodes(schema) > EXPLAINED_NODES:
        first = next(iter(meta.iter_errors(schema)))
        yield _placed(first.instance_path, first.message)
        return
    import jsonschema
    from jsonschema import exceptions

    validator = getattr(jsonschema, DRAFTS[draft])
    for error in validator(validator.META_SCHEMA).iter_errors(schema):
        # Of an anyOf, the reason is in the alternative that was most likely meant.
        reason = cast("Any", exceptions).best_match([error])
        yield _placed(reason.absolute_path, reason.message)


def _placed(path: Iterable[str | int], message: str) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"at ${steps}: {message[:400]}"


def _check_patterns(where: str, schema: dict[str, Any]) -> None:
    patterns = dict(_patterns(schema))
    if len(patterns) > MAX_PATTERNS:
        raise ToolDefinitionError(f"{where} has {len(patterns):,} patterns and may have {MAX_PATTERNS}. Use fewer.")
    for pattern, place in patterns.items():
        if pattern_weight(pattern) is None:
            raise ToolDefinitionError(
                f"{where} has a pattern at {place} that the linear-time engine does not take: {pattern[:100]!r}. "
                "Look-around ((?=…), (?<!…)) and back-references (\\1) can hang a matcher and are not among it, and a "
                "repetition must stay small. Rewrite the pattern, or drop it and check the value in the tool."
            )


def _patterns(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, dict[str, Any]]] = [("$", schema)]
    while pending:
        place, one = pending.pop()
        if isinstance(one.get("pattern"), str):
            yield one["pattern"], f"{place}.pattern"
        for key in cast("dict[str, Any]", one.get("patternProperties") or {}):
            yield key, f"{place}.patternProperties"
        for steps, sub in subschemas(one):
            if isinstance(sub, dict):
                pending.append((place + "".join(f".{step}" for step in steps), sub))


def _check_cost(where: str, schema: dict[str, Any]) -> None:
    try:
        cost = Cost(schema)
    except UnresolvedReference as failure:
        raise ToolDefinitionError(
            f"{where} refers to {str(failure)[:200]!r}, which is not in it. Nothing is fetched: put the schema into "
            "$defs and refer to '#/$defs/…'."
        ) from None
    except SelfReference:
        raise ToolDefinitionError(
            f"{where} refers to itself without going into the value, so judging would never end. Refer to itself only "
            "below properties or items."
        ) from None
    if cost.same > MAX_SAME:
        raise ToolDefinitionError(
            f"{where} unfolds to {min(cost.same, 10**12):,} checks of one value through allOf, anyOf, oneOf and $ref, "
            f"and may unfold to {MAX_SAME:,}. Refer to each schema once."
        )


def _first_line(failure: Exception) -> str:
    return str(failure).partition("\n")[0].rstrip(".") + "."
