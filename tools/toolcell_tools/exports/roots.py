"""Make the root of a parameters schema a plain object without combinators, as the providers require.

OpenAI refuses a function whose schema does "not have type 'object'" or has 'oneOf', 'anyOf', 'allOf', 'enum', 'const'
or 'not' "at the top level". Anthropic refuses an input_schema with "oneOf, allOf, or anyOf at the top level".
"""

from collections.abc import Mapping
from typing import Any, cast

from .canonical import Schema, is_nothing, keywords
from .dialect import NameRule, fit_names
from .merge import Definitions, distinct, merge, types_of
from .report import Action, Difference, Unexportable, described, in_words

__all__ = ["flat_root", "renamed_parameters"]

_NOT_AT_THE_ROOT = ("enum", "const", "not")
_SPEAK_OF_NAMES = keywords("if then else dependentRequired dependentSchemas propertyNames patternProperties")


def flat_root(tool: str, schema: Schema) -> tuple[Schema, list[Difference]]:
    """A canonical schema with a root that every provider accepts, and the findings."""
    root = _SchemaRoot(tool, Definitions(schema.get("$defs", {})))
    result = root.flat({key: value for key, value in schema.items() if key != "$defs"})
    for keyword in _NOT_AT_THE_ROOT:
        if keyword in result:
            root.drop(result, keyword, "providers take none at the top level")
    if "unevaluatedProperties" in result and (root.findings or "additionalProperties" in result):
        root.drop(result, "unevaluatedProperties", "what it depends on was rewritten")
    kinds = types_of(result)
    if kinds is not None and "object" not in kinds:
        raise Unexportable("/type", "type", f"arguments are an object, and the schema wants {' or '.join(kinds)}")
    result = cast("Schema", {"type": "object", "properties": {}}) | result | {"type": "object"}
    if root.phrases:
        result["description"] = described(result.get("description"), root.phrases)
    if "$defs" in schema:
        result["$defs"] = schema["$defs"]
    return result, root.findings


class _SchemaRoot:
    """A root that is being flattened, and the findings so far."""

    def __init__(self, tool: str, definitions: Definitions) -> None:
        self.tool, self.definitions = tool, definitions
        self.findings: list[Difference] = []
        self.phrases: list[str] = []

    def note(self, keyword: str, action: Action, detail: str, *, tightens: bool = False) -> None:
        self.findings.append(Difference(self.tool, f"/{keyword}", keyword, action, detail, True, tightens))

    def drop(self, schema: Schema, keyword: str, detail: str) -> None:
        self.say(keyword, schema.pop(keyword))
        self.note(keyword, "dropped", detail)

    def say(self, keyword: str, value: Any) -> None:
        phrase = in_words(keyword, value)
        if phrase is not None:
            self.phrases.append(phrase)

    def flat(self, schema: Schema) -> Schema:
        """An object schema without combinators that accepts at least what `schema` accepts. Exceptions are noted."""
        result = self.unconditional(schema)
        for keyword in ("anyOf", "oneOf"):
            if keyword in result:
                self.say(keyword, result[keyword])
                self.spread(result, keyword)
        return result

    def unconditional(self, schema: Schema) -> Schema:
        """`schema` without `$ref` and `allOf` at its top. As much of them as possible is merged in."""
        result, lost = self.definitions.joined(schema)
        for _ in range(lost):
            self.note("allOf", "widened", "a part that cannot be merged with the others was left out")
        return result

    def spread(self, result: Schema, keyword: str) -> None:
        """Combine the properties of all variants. A property is required only if every variant requires it."""
        variants = [self.unconditional(one) for one in result.pop(keyword) if not is_nothing(one)]
        variants = [one for one in variants if "object" in (types_of(one) or ["object"])]
        for variant in variants:
            self.definitions.step()
            for nested in ("anyOf", "oneOf"):
                if nested in variant:
                    self.spread(variant, nested)
        closed = [one.get("additionalProperties") is False and "patternProperties" not in one for one in variants]
        own = dict(cast("Schema", result.get("properties", {})))
        tightens = False
        for name in dict.fromkeys(name for one in variants for name in one.get("properties", {})):
            said = [one.get("properties", {}).get(name) for one in variants]
            kinds = distinct(one for one in said if one is not None)
            union = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            if name not in own:
                own[name] = union
                tightens |= any(one is None and not shut for one, shut in zip(said, closed, strict=True))
            elif all(one is not None for one in said):
                own[name] = merge(own[name], union) or own[name]
        required = list(result.get("required", []))
        for name in cast("list[str]", variants[0].get("required", [])) if variants else ():
            if name not in required and all(name in one.get("required", []) for one in variants):
                required.append(name)
        result |= {"properties": own, "required": required}
        if "additionalProperties" not in result and variants and all(closed):
            result["additionalProperties"] = False
        self.note(keyword, "rewritten", "the variants' properties stand side by side", tightens=tightens)


def renamed_parameters(
    tool: str, schema: Schema, rule: NameRule | None
) -> tuple[Schema, Mapping[str, str], list[Difference]]:
    """Rename the parameters that `rule` refuses. Returns the schema, the exported names and the findings."""
    if rule is None:
        return schema, {}, []
    changed = fit_names(schema["properties"], rule).changed
    if not changed:
        return schema, {}, []
    result = dict(schema)
    result["properties"] = {changed.get(name, name): one for name, one in schema["properties"].items()}
    if "required" in schema:
        result["required"] = [changed.get(name, name) for name in schema["required"]]
    by_name = bool(_SPEAK_OF_NAMES & schema.keys())
    loosens = by_name or schema.get("additionalProperties") is not False
    findings = [
        Difference(
            tool, f"/properties/{mine}", "properties", "renamed", f"to {theirs!r}, a name it takes", loosens, by_name
        )
        for mine, theirs in changed.items()
    ]
    return result, changed, findings
