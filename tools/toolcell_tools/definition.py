"""Tool: a function, its declaration, and the way from JSON arguments to a call; and `tool`, the decorator for it."""

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, ParamSpec, Self, TypeVar, Unpack, cast, overload

from .capability import Capability, PermissionTier
from .context import HostContext, ToolContext
from .failures import ToolDefinitionError
from .options import (
    Annotations,
    ExceptionsShown,
    FailureMode,
    Kind,
    Lifetime,
    Placement,
    ToolOptions,
    Variation,
    capabilities,
    check_description,
    check_instructions,
    check_known,
    check_limits,
    check_metadata,
    check_mutates,
    check_name,
    check_options,
    check_positive,
    check_read_only,
    check_tier,
    defaults_of,
    suggested_name,
    tier_of,
)
from .returned import written
from .signature import (
    MISSING,
    Binder,
    Parameter,
    context_parameter,
    evaluated,
    fields_of,
    is_async,
    is_generator,
    parameters,
    underlying,
    whole_parameter,
)

if TYPE_CHECKING:
    from asyncio import Runner

    from pydantic import TypeAdapter

    from .declaration import Documented, ToolDeclaration
    from .preview import Preview, Previewer
    from .signals import SignalKind

__all__ = ["Tool", "deriving", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

deriving: bool = os.environ.get("TOOLCELL_IN_CELL") != "1"
"""Whether `tool` derives and checks the declaration at once. The cell's runner sets this to False: the supervisor's
process has checked the tools, and a cell must not spend 100 ms on pydantic and griffe to do it again."""


class _Derived(NamedTuple):
    """What was derived from the function, before any option replaces it. Variants share it."""

    description: str
    parameters_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    failure_schema: dict[str, Any] | None


class Tool(Generic[P, R_co]):
    """A function that models may call. Called from Python, it is that function.

    With `derive=True`, every mistake in the declaration raises a ToolDefinitionError at once. With False (in a cell,
    because the supervisor's copy was checked) the declaration is derived and checked when it is first read.
    `validate` says whether the supervisor validates arguments against the schema; only a dynamic tool can be without.
    """

    kind: ClassVar[Kind] = "function"
    placement: ClassVar[Placement] = "cell"
    context_type: ClassVar[type] = ToolContext

    fn: Callable[P, R_co]
    __name__: str  # and the other attributes that functools.update_wrapper sets

    def __init__(
        self,
        fn: Callable[P, R_co],
        *,
        derive: bool = True,
        localns: Mapping[str, object] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        update_wrapper(self, fn)
        self.fn = fn
        self._configure(options)
        if is_generator(fn):
            raise ToolDefinitionError(
                f"tool {self.name!r} is a generator, and a tool gives one result. Return a list; report on the "
                "way with ctx.progress(…)."
            )
        self.is_async = is_async(fn)
        self.validate = True
        self.context_parameter = self._context_of(fn)
        self.takes_context = self.context_parameter is not None  # for a call, or for work before the first call
        self._original: Tool[P, R_co] | None = None
        self._parameters: tuple[Parameter, ...] | None = None
        self._binder: Binder | None = None
        self._previewer: Previewer | None = None
        self._output: TypeAdapter[Any] | None = None
        self._loop: Runner | None = None
        self._derived: _Derived | None = None
        self._declaration: ToolDeclaration | None = None
        if derive:
            self._derive(localns)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        needs = ", ".join(sorted(self.needs)) or "nothing"
        return f"<Tool {self.name} {self.version} [{self.tier.value} · needs: {needs}]>"

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def declaration(self) -> "ToolDeclaration":
        """The data that a model and a policy see of this tool."""
        if self._declaration is None:
            self._declaration = self._declared(self._derived or self._derive(None))
        return self._declaration

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a model fills in, types resolved."""
        if self._parameters is None:
            self._parameters = self._parameters_of(None)
        return self._parameters

    @property
    def whole(self) -> str:
        """The parameter whose fields are the arguments, or "". A call may also give it by its name, as other frameworks
        declare it, unless a field or an author's schema has that name."""
        found = whole_parameter(self.parameters)
        if found is None or found.name in self._author_names() or found.name in fields_of(found.annotation):
            return ""
        return found.name

    @property
    def origin(self) -> str:
        """Where the tool was defined: `module:qualname`, with file and line if no import can reach that name."""
        function = underlying(self.fn)
        module, qualname = getattr(function, "__module__", "?"), getattr(function, "__qualname__", repr(function))
        return f"{module}:{qualname}{self.line if module == '__main__' or '<' in qualname else ''}"

    @property
    def line(self) -> str:
        """The file and line of the function, as ` (file:line)`; "" if it has none."""
        code = getattr(underlying(self.fn), "__code__", None)
        return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"

    @property
    def stranger(self) -> str:
        """The name of the tool's untrusted source, else "". An untrusted tool cannot take another tool's name."""
        return ""

    @property
    def original(self) -> "Tool[P, R_co]":
        """The tool of which this one is a variant, else itself. A cell that has the original runs all its variants."""
        return self._original or self

    def runs_like(self, other: "Tool[..., Any]") -> bool:
        """Whether a cell would run a call of `other` exactly as a call of this tool."""
        preview, output = (one._options.get("preview") for one in (self, other)), "output_schema"
        return (
            type(self) is type(other)
            and self.fn is other.fn
            and len(set(preview)) == 1
            and self._options.get(output) is other._options.get(output)
            and self.lifetime == other.lifetime
            and self._defaults == other._defaults
        )

    def replace(self, **changes: Unpack[Variation]) -> Self:
        """A variant of this tool: the same function and rights, with another presentation or other bounds.

        Raises ToolDefinitionError for an option that a variant cannot change and for a value that no tool can have.
        """
        check_known(self.name, changes, Variation.__annotations__)
        derived = self._derived or self._derive(None)
        variant = object.__new__(type(self))
        variant.__dict__.update(self.__dict__)
        variant._original = self.original
        variant._configure({**self._options, **changes})
        variant._declaration = variant._declared(derived)
        return variant

    def requires_approval_for(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the tool itself requires a person's approval for a call with these arguments."""
        asked = self._options.get("requires_approval", False)
        return asked if isinstance(asked, bool) else bool(asked(arguments))

    def mutates_for(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments may change anything. If not, it gets no grant that changes anything."""
        asked = self._options.get("mutates")
        return asked is None or bool(asked(arguments))

    # -- one call of it ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Build now what `bind` and `encoded` need, so that processes forked later share it."""
        if self._binder is None:
            self._binder = Binder(self.parameters)
        self._output_adapter()

    def bind(self, arguments: Mapping[str, Any], context: object) -> dict[str, Any]:
        """The keyword arguments for `fn`, made from `arguments` that fit the parameters schema.

        Raises pydantic's ValidationError if a conversion fails; its location begins with the parameter's name.
        """
        binder = self._binder
        if binder is None:
            binder = self._binder = Binder(self.parameters)
        bound = {**self._defaults, **arguments}
        if binder.converts:
            binder.convert(bound)
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    def run(self, bound: Mapping[str, Any], context: object) -> object:
        """Call `fn` once with the keyword arguments of `bind`, run its coroutine if it is async, and encode the result.

        An async tool with `lifetime="session"` keeps one event loop for all its calls, so its connections stay open.
        """
        try:
            value: object = self.fn(**bound)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
            if type(value) not in _PLAIN:
                value = self._completed(value)
            return self.encoded(value) if self.writes_output else value
        finally:
            if self._loop is not None and self.lifetime == "call":
                self.close()

    def close(self) -> None:
        """Close the event loop that `run` keeps between calls, before the process ends."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def encoded(self, value: object) -> object:
        """`value` serialised by the type in `output_schema`, if that is a type. Raises Unencodable if it is no fit."""
        kind = self._output_adapter()
        return value if kind is None else written(kind, value)

    def _output_adapter(self) -> "TypeAdapter[Any] | None":
        if self._output is None and self.writes_output:
            from pydantic import TypeAdapter

            kind: Any = self._options.get("output_schema")
            self._output = TypeAdapter(kind)
        return self._output

    def preview(self, context: object, arguments: Mapping[str, Any]) -> "Preview":
        """What a call with these arguments would do, by the tool's preview function; without one, the arguments."""
        from .preview import Preview

        if not self.has_preview:
            return Preview.of_call(self.name, arguments)
        if self._previewer is None:
            self._previewer = self._preview_function()
        return self._previewer(self._values(self.bind(arguments, context)), context)

    # -- how it is made ----------------------------------------------------------------------------------------------

    def _configure(self, options: ToolOptions) -> None:
        """Check and set everything that does not come from the function."""
        name = options.get("name")
        self.name = check_name(name if name is not None else self._own_name())
        check_options(self.name, options)
        self._options = options
        self.version = options.get("version", "1.0.0")
        self.needs = self._needed(options)
        self.uses = capabilities(self.name, "uses", options.get("uses", ()))
        rights, tier, annotations = self.needs | self.uses, options.get("tier"), options.get("annotations")
        self.tier = self._default_tier() if tier is None else PermissionTier(tier)
        check_tier(self.name, self.tier, rights, f"Leave tier out, {self._less}.")
        if annotations is not None and annotations.read_only:
            check_read_only(self.name, rights, f"Leave read_only out, {self._less}.")
        self.timeout = check_positive(self.name, "timeout", options.get("timeout"))
        self.limits: Mapping[str, float] | None = check_limits(self.name, options.get("limits"))
        self.lifetime: Lifetime = options.get("lifetime", "call")
        self.failure_mode: FailureMode = options.get("failure_mode", "error")
        self.exceptions: ExceptionsShown = options.get("exceptions", "text")
        self.long_running = options.get("long_running", False)
        self.return_direct = options.get("return_direct", False)
        self.signals = self._declared_signals(options)
        self.confirms = options.get("confirms", False)
        self.instructions = check_instructions(self.name, options.get("instructions", ""))
        check_mutates(self.name, options.get("mutates"), self.needs, self.lifetime)
        given = options.get("output_schema")
        self.writes_output = given is not None and not isinstance(given, Mapping)  # by a type that cells need
        self.sometimes_mutates = options.get("mutates") is not None  # by the call's arguments: see `mutates_for`
        self.metadata: Mapping[str, Any] = check_metadata(self.name, options.get("metadata", {}))
        self._defaults = defaults_of(options.get("parameters_schema"))

    def _declared_signals(self, options: ToolOptions) -> "frozenset[SignalKind]":
        given = options.get("signals")
        if not given:
            return frozenset()
        from .signals import declared_signals  # only for tools that give some

        return declared_signals(self.name, given)

    def _own_name(self) -> str:
        return _own_name(self.fn)

    def _needed(self, options: ToolOptions) -> frozenset[Capability]:
        if "harmless" in options:
            raise ToolDefinitionError(
                f"tool {self.name!r} takes no harmless: it is for host tools, because a cell holds a tool to its needs."
            )
        return capabilities(self.name, "needs", options.get("needs", ()))

    @property
    def _less(self) -> str:
        return "or name fewer needs and uses"

    def _default_tier(self) -> PermissionTier:
        return tier_of(self.needs | self.uses)

    @property
    def has_preview(self) -> bool:
        return self._options.get("preview") is not None

    def _context_of(self, fn: Callable[..., object]) -> str | None:
        wrong: type = HostContext if self.context_type is ToolContext else ToolContext
        misplaced = context_parameter(self.name, fn, wrong)
        if misplaced is not None:
            where = "the supervisor's process" if wrong is ToolContext else "a cell"
            raise ToolDefinitionError(
                f"tool {self.name!r} runs in {where}, and there is no {wrong.__name__} there. "
                f"Write `{misplaced}: {self.context_type.__name__}`."
            )
        return context_parameter(self.name, fn, self.context_type)

    def _parameters_of(self, localns: Mapping[str, object] | None) -> tuple[Parameter, ...]:
        found = parameters(self.name, self.fn, self.context_parameter, localns)
        given = _given_by_partial(self.fn)
        return tuple(one for one in found if one.name not in given) if given else found

    def _derive(self, localns: Mapping[str, object] | None) -> _Derived:
        from .schemas.of_types import schema_of

        if self._parameters is None:
            self._parameters = self._parameters_of(localns)
        words = self._words()
        options = self._options
        output, failure = options.get("output_schema"), options.get("failure")
        self._derived = _Derived(
            words.description,
            self._derived_parameters(words),
            self._returned(localns) if output is None else schema_of(self.name, "output_schema", output),
            None if failure is None else schema_of(self.name, "failure", failure),
        )
        if self.has_preview:
            self._previewer = self._preview_function()
            self._previewer.check(self._value_names())
        self._declaration = self._declared(self._derived)
        return self._derived

    def _words(self) -> "Documented":
        from .declaration import documented

        return documented(self.fn)

    def _derived_parameters(self, words: "Documented") -> dict[str, Any]:
        from .schemas.of_types import closed, object_schema, parameters_schema

        schema = parameters_schema(self.name, self.parameters, words.parameters)
        whole = whole_parameter(self.parameters)
        if whole is None or (whole.name in self._author_names() and whole.name not in fields_of(whole.annotation)):
            return schema
        return closed(object_schema(self.name, whole.annotation), whole.annotation)

    def _author_names(self) -> Mapping[str, Any]:
        given = self._options.get("parameters_schema") or {}
        return cast("Mapping[str, Any]", given.get("properties", {}))

    def _declared(self, derived: _Derived) -> "ToolDeclaration":
        from .declaration import ToolDeclaration, fingerprint
        from .schemas.of_types import given_schema

        options = self._options
        given, schema = options.get("parameters_schema"), derived.parameters_schema
        if given is not None:
            schema = given_schema(self.name, schema, given)
        description = options.get("description")
        description = derived.description if description is None else description.strip()
        if self.long_running:
            description = f"{description}\n\n{_LONG_RUNNING_NOTE}".lstrip()
        asked = options.get("requires_approval", False)
        rights: list[object] = [sorted(self.needs), sorted(self.uses), self.tier, self.placement]
        if self.instructions or self.signals or self.confirms:
            rights += [self.instructions, sorted(self.signals), self.confirms]
        if self.exceptions != "text":
            rights.append(self.exceptions)
        return ToolDeclaration(
            name=self.name,
            description=check_description(self.name, description),
            version=self.version,
            tier=self.tier,
            needs=self.needs,
            uses=self.uses,
            parameters_schema=schema,
            output_schema=derived.output_schema,
            failure_schema=derived.failure_schema,
            failure_mode=self.failure_mode,
            annotations=(options.get("annotations") or Annotations()).resolved(self.tier, self.needs | self.uses),
            timeout=self.timeout,
            requires_approval=asked if isinstance(asked, bool) else "depends",
            has_preview=self.has_preview,
            long_running=self.long_running,
            return_direct=self.return_direct,
            metadata=dict(self.metadata),
            instructions=self.instructions,
            signals=self.signals,
            confirms=self.confirms,
            exceptions=self.exceptions,
            fingerprint=fingerprint([self.name, self.version, description, schema, rights], *self._code()),
            kind=self.kind,
            placement=self.placement,
        )

    def _code(self) -> tuple[object, ...]:
        """The functions and classes that do the work, for the fingerprint."""
        return (self.fn,)

    def _returned(self, localns: Mapping[str, object] | None) -> dict[str, Any] | None:
        from .schemas.of_types import returned_schema

        function = underlying(self.fn)
        annotation: object = getattr(function, "__annotations__", {}).get("return")
        try:
            resolved = evaluated(self.name, "return", annotation, getattr(function, "__globals__", {}), localns)
        except ToolDefinitionError:  # a type that exists for type checkers only
            return None
        return returned_schema(resolved)

    def _preview_function(self) -> "Previewer":
        from .preview import Previewer

        fn = self._options.get("preview")
        if not callable(fn):
            raise ToolDefinitionError(f"tool {self.name!r}: preview={fn!r} is not a function.")
        return Previewer(self.name, fn, self._context_of(fn))

    def _value_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parameters)

    def _values(self, bound: dict[str, Any]) -> dict[str, Any]:
        """The values that a preview can take: the bound arguments, defaults included."""
        defaults = {one.name: one.default for one in self.parameters if one.default is not MISSING}
        return defaults | bound

    def _completed(self, value: object) -> object:
        """`value`, or its result if it is a coroutine. All coroutines of one call run in one event loop."""
        if not isinstance(value, Coroutine):
            return value
        from asyncio import Runner

        if self._loop is None:
            self._loop = Runner()
        return self._loop.run(cast("Coroutine[Any, Any, object]", value))

    def __getstate__(self) -> dict[str, Any]:
        """The state that a cell needs. It lacks validators, which do not pickle, and what only the supervisor reads."""
        options = {key: value for key, value in self._options.items() if key not in ("requires_approval", "mutates")}
        rebuilt = ("_binder", "_declaration", "_derived", "_loop", "_original", "_output", "_previewer")
        return self.__dict__ | dict.fromkeys(rebuilt) | {"_options": options}


_LONG_RUNNING_NOTE = (  # the wording of ADK, which models follow
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned some intermediate "
    "or pending status."
)
_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})  # what most tools return; none is a coroutine


def _own_name(fn: Callable[..., object]) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else suggested_name(type(fn).__name__)


def _given_by_partial(fn: Callable[..., object]) -> set[str]:
    """The parameters whose values a partial has fixed. A model neither sees nor changes them."""
    given: set[str] = set()
    while isinstance(fn, partial):
        given |= fn.keywords.keys()
        fn = fn.func
    return given


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a Tool of `fn`: `@tool`, `@tool(needs={Capability.WRITE})` or `tool(fn, name="…")`.

    Name and description come from the function, the parameters schema from its types and docstring, the tier from its
    `needs` and `uses`. Raises ToolDefinitionError, which says how to correct the definition.
    """
    if fn is not None:
        return _made(fn, options, _locals_above() if deriving else None)

    def decorate(decorated: Callable[P, R]) -> Tool[P, R]:
        return _made(decorated, options, _locals_above() if deriving else None)

    return decorate


def _made(fn: Callable[P, R], options: ToolOptions, localns: Mapping[str, object] | None) -> Tool[P, R]:
    if isinstance(fn, Tool):
        raise ToolDefinitionError(f"{fn.name!r} is a tool already. Pass its function: tool({fn.name}.fn, …).")
    if not callable(fn):
        raise ToolDefinitionError(f"{fn!r} is not a function. Write @tool above a def, or tool(fn, …).")
    return Tool(fn, **options, derive=deriving, localns=localns)


def _locals_above() -> Mapping[str, object]:
    """The locals of the caller of `tool`. Annotations may name types that are defined in the same function."""
    return sys._getframe(2).f_locals  # pyright: ignore[reportPrivateUsage]
