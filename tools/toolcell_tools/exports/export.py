"""`Export`: tools in a provider's form, their names, the report, and the conversion of calls and results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any, Protocol, cast, runtime_checkable

from toolcell_tools.declaration import Declared, ToolDeclaration
from toolcell_tools.result import ToolResult

from .calls import ModelCall
from .canonical import Schema, canonical
from .codec import Codec, unmarked
from .dialect import Dialect, NameMap, Subset, fit_names
from .report import Difference, Inexpressible, Report, Unexportable
from .results import lost_output
from .rewrite import rewritten
from .roots import flat_root, renamed_parameters

__all__ = ["Declared", "Export", "Parameters", "ProviderDefined", "Written", "assemble", "plain", "within"]


@runtime_checkable
class ProviderDefined(Protocol):
    """A tool that a provider defines and runs, or whose schema its models know. It is passed on unchanged."""

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def definition(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Parameters:
    """A parameters schema in a dialect, marked for the codec, with the findings of its conversion."""

    marked: Schema
    findings: list[Difference] = field(default_factory=list[Difference])
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def schema(self) -> Schema:
        return cast("Schema", unmarked(self.marked))


@dataclass(frozen=True)
class Written:
    """One exported tool. `wrapped`: its output is sent as `{"result": …}`."""

    tool: dict[str, Any]
    parameters: Parameters
    wrapped: bool = False


@dataclass(frozen=True)
class Export:
    """The `tools` of a request to a provider's API, and everything that is needed to read its answers."""

    dialect: str
    tools: list[dict[str, Any]]
    names: NameMap
    report: Report
    _dialect: Dialect = field(repr=False)
    _codecs: Mapping[str, Codec] = field(repr=False)
    _wrapped: frozenset[str] = field(repr=False)

    def decode(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The tool's own arguments, from the arguments of a call. `name` is the exported name or the tool's own.

        If a strict schema made an optional property required, a `null` that the tool would refuse is left out.
        """
        codec = self._codecs.get(self.names.original(name))
        return arguments if codec is None else codec.decode(arguments)

    def encode(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments in the form of the exported schema, to replay a conversation. The inverse of `decode`."""
        codec = self._codecs.get(self.names.original(name))
        return arguments if codec is None else codec.encode(arguments)

    def parse_call(self, payload: Mapping[str, Any]) -> ModelCall:
        """The call in a provider's payload, with the tool's own name and arguments. Raises InvalidCall."""
        call = self._dialect.parse_call(payload)
        name = self.names.original(call.name)
        return replace(call, name=name, arguments=self.decode(call.name, call.arguments))

    def result_for(self, call: ModelCall, result: ToolResult) -> dict[str, Any]:
        """The result of `call` in the form that the provider expects."""
        return self._dialect.render(call, result, call.name in self._wrapped)


def assemble(
    dialect: Dialect,
    given: Iterable[ToolDeclaration | Declared | ProviderDefined],
    write: Callable[[ToolDeclaration, str], Written],
    arrange: Callable[[list[dict[str, Any]], list[dict[str, Any]]], list[dict[str, Any]]] = add,
) -> Export:
    """An export of everything given, in its order. `arrange` combines exported and passed-on tools."""
    declarations, foreign = _sorted(given)
    findings: list[Difference] = []
    passed = _passed(dialect, foreign, findings)
    taken = {str(one.definition.get("name", one.name)) for one in passed}
    names = fit_names((one.name for one in declarations), dialect.names, taken)
    own: list[dict[str, Any]] = []
    codecs: dict[str, Codec] = {}
    wrapped: set[str] = set()
    for declaration in declarations:
        name = declaration.name
        exported = names.exported(name)
        if exported != name:
            findings.append(
                Difference(name, "", "name", "renamed", f"to {exported!r}, a name that {dialect.name} takes")
            )
        try:
            entry = write(_described(dialect, declaration, findings), exported)
        except Unexportable as problem:
            findings.append(
                Difference(name, problem.pointer, problem.keyword, "refused", f"left out: {problem.detail}")
            )
            continue
        own.append(entry.tool)
        findings.extend(entry.parameters.findings)
        if declaration.output_schema is not None and not dialect.outputs:
            findings.append(lost_output(declaration, dialect.name))
        codecs[name] = Codec(entry.parameters.marked, entry.parameters.renamed)
        if entry.wrapped:
            wrapped.add(name)
    forward = {name: names.exported(name) for name in codecs}
    forward |= {one.name: str(one.definition.get("name", one.name)) for one in passed}
    tools = arrange(own, [dict(one.definition) for one in passed])
    return Export(dialect.name, tools, NameMap(forward), Report(tuple(findings)), dialect, codecs, frozenset(wrapped))


def _sorted(
    given: Iterable[ToolDeclaration | Declared | ProviderDefined],
) -> tuple[list[ToolDeclaration], list[ProviderDefined]]:
    declarations: list[ToolDeclaration] = []
    foreign: list[ProviderDefined] = []
    for one in given:
        if isinstance(one, ToolDeclaration):
            declarations.append(one)
        elif isinstance(one, ProviderDefined):
            foreign.append(one)
        else:
            declarations.append(one.declaration)
    seen: set[str] = set()
    for name in [*(one.name for one in declarations), *(one.name for one in foreign)]:
        if name in seen:
            raise ValueError(f"two tools are called {name!r}. Rename or prefix one of them before the export.")
        seen.add(name)
    return declarations, foreign


def _passed(dialect: Dialect, foreign: Sequence[ProviderDefined], findings: list[Difference]) -> list[ProviderDefined]:
    passed: list[ProviderDefined] = []
    for one in foreign:
        if one.provider.lower() in dialect.providers:
            passed.append(one)
            findings.append(Difference(one.name, "", "provider", "passed", "its definition is the provider's own"))
        else:
            detail = f"left out: a tool of {one.provider}, which {dialect.name} does not have"
            findings.append(Difference(one.name, "", "provider", "refused", detail))
    return passed


def _described(dialect: Dialect, declaration: ToolDeclaration, findings: list[Difference]) -> ToolDeclaration:
    limit, said = dialect.description_chars, declaration.description
    if limit is None or len(said) <= limit:
        return declaration
    detail = f"cut to {limit:,} of {len(said):,} characters"
    findings.append(Difference(declaration.name, "", "description", "narrowed", detail))
    return declaration.model_copy(update={"description": said[: limit - 1] + "…"})


def plain(declaration: ToolDeclaration, dialect: Dialect) -> Parameters:
    """The parameters for the dialect's lenient mode: the schema itself, with an object at its root."""
    schema, findings = flat_root(declaration.name, canonical(declaration.parameters_schema))
    schema, renamed, more = renamed_parameters(declaration.name, schema, dialect.parameters)
    return Parameters(schema, [*findings, *more], renamed)


def enforced(declaration: ToolDeclaration, dialect: Dialect, subset: Subset) -> Parameters:
    """The parameters in the subset that the dialect enforces. Raises Inexpressible."""
    schema, findings = flat_root(declaration.name, canonical(declaration.parameters_schema))
    schema, more = rewritten(declaration.name, schema, subset)
    schema, renamed, last = renamed_parameters(declaration.name, schema, dialect.parameters)
    return Parameters(schema, [*findings, *more, *last], renamed)


def within(
    declaration: ToolDeclaration,
    dialect: Dialect,
    subset: Subset,
    lenient: Callable[[ToolDeclaration], Parameters],
    measure: Callable[[Schema], None] = lambda _: None,
    mode: str = "strict mode",
) -> tuple[Parameters, bool]:
    """The parameters in the dialect's subset, and True; or the lenient ones with the reason, and False. `measure`
    raises Inexpressible for a schema that is too large."""
    try:
        parameters = enforced(declaration, dialect, subset)
        measure(parameters.schema)
        return parameters, True
    except Inexpressible as problem:
        detail = f"{mode} cannot express it: {problem.detail}"
        why = Difference(declaration.name, problem.pointer, problem.keyword, "fallback", detail)
        found = lenient(declaration)
        return Parameters(found.marked, [why, *found.findings], found.renamed), False
