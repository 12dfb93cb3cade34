"""Tool: a function, what it declares, and how JSON arguments become a call of it."""

from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from .binder import Binder
from .capability import Capability, PermissionTier
from .failures import ToolDefinitionError
from .rules import capabilities, check_description, check_limits, check_name, check_positive, tier_of
from .signature import Parameter, context_parameter, evaluated, is_async, is_generator, parameters, underlying

if TYPE_CHECKING:
    from .annotations import Annotations
    from .context import ToolContext
    from .declaration import ToolDeclaration

__all__ = ["Lifetime", "Tool"]

P = ParamSpec("P")
R = TypeVar("R")
Lifetime = Literal["call", "session"]


class Tool(Generic[P, R]):
    """A function that models may call. Called from Python, it is that function.

    Made with `derive=True`, everything wrong with the declaration is a ToolDefinitionError at once; with False (in a
    cell, where the supervisor's copy was checked) it is derived when it is first asked for, and then as loudly.
    """

    fn: Callable[P, R]
    __name__: str  # with the rest of what functools.update_wrapper sets

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        version: str = "1.0.0",
        tier: PermissionTier | None = None,
        needs: Iterable[Capability | str] = (),
        uses: Iterable[Capability | str] = (),
        annotations: "Annotations | None" = None,
        timeout: float | None = None,
        limits: Mapping[str, float] | None = None,
        output_schema: object = None,
        lifetime: Lifetime = "call",
        derive: bool = True,
        localns: Mapping[str, object] | None = None,
    ) -> None:
        update_wrapper(self, fn)
        self.fn = fn
        self.name = check_name(name if name is not None else _own_name(fn))
        self.version = version
        self.needs = capabilities(self.name, "needs", needs)
        self.uses = capabilities(self.name, "uses", uses)
        self.tier = tier_of(self.needs | self.uses) if tier is None else PermissionTier(tier)
        self.timeout = check_positive(self.name, "timeout", timeout)
        self.limits: Mapping[str, float] | None = check_limits(self.name, limits)
        if lifetime not in ("call", "session"):
            raise ToolDefinitionError(f"tool {self.name!r}: lifetime={lifetime!r}. Pass 'call' or 'session'.")
        self.lifetime: Lifetime = lifetime
        if is_generator(fn):
            raise ToolDefinitionError(
                f"tool {self.name!r} is a generator, and a tool gives one result. Return a list; report on the "
                "way with ctx.progress(…)."
            )
        self.is_async = is_async(fn)
        self.context_parameter = context_parameter(self.name, fn)
        self._description = description
        self._annotations = annotations
        self._output_schema = output_schema
        self._parameters: tuple[Parameter, ...] | None = None
        self._binder: Binder | None = None
        self._declaration: ToolDeclaration | None = None
        if derive:
            self._parameters = parameters(self.name, fn, self.context_parameter, localns)
            self._declaration = self._derived(localns)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        needs = ", ".join(sorted(self.needs)) or "nothing"
        return f"<Tool {self.name} {self.version} [{self.tier.value} · needs: {needs}]>"

    @property
    def declaration(self) -> "ToolDeclaration":
        """What a model and a policy see of this tool."""
        if self._declaration is None:
            self._declaration = self._derived(None)
        return self._declaration

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a model fills in, types resolved."""
        if self._parameters is None:
            self._parameters = parameters(self.name, self.fn, self.context_parameter)
        return self._parameters

    def prepare(self) -> None:
        """Build now what `bind` needs, so that processes forked later share it."""
        if self._binder is None:
            self._binder = Binder(self.parameters)

    def bind(self, arguments: Mapping[str, Any], context: "ToolContext | None") -> dict[str, Any]:
        """The keyword arguments for `fn`, of `arguments` that were validated against the parameters schema.

        Raises pydantic's ValidationError, its location beginning with the parameter's name, where a conversion fails.
        """
        binder = self._binder
        if binder is None:
            binder = self._binder = Binder(self.parameters)
        bound = binder.bind(arguments)
        if self.context_parameter is not None:
            bound[self.context_parameter] = context
        return bound

    def _derived(self, localns: Mapping[str, object] | None) -> "ToolDeclaration":
        from .annotations import Annotations
        from .declaration import ToolDeclaration, fingerprint
        from .docstrings import documented
        from .schema import output_schema, parameters_schema

        words = documented(self.fn)
        description = words.description if self._description is None else self._description.strip()
        schema = parameters_schema(self.name, self.parameters, words.parameters)
        given = self._output_schema
        return ToolDeclaration(
            name=self.name,
            description=check_description(self.name, description),
            version=self.version,
            tier=self.tier,
            needs=self.needs,
            uses=self.uses,
            parameters_schema=schema,
            output_schema=self._returned(localns) if given is None else output_schema(self.name, given),
            annotations=(self._annotations or Annotations()).resolved(self.tier, self.needs),
            timeout=self.timeout,
            fingerprint=fingerprint(self.name, self.version, description, schema, self.fn),
        )

    def _returned(self, localns: Mapping[str, object] | None) -> dict[str, Any] | None:
        from .schema import returned_schema

        function = underlying(self.fn)
        annotation: object = getattr(function, "__annotations__", {}).get("return")
        try:
            resolved = evaluated(self.name, "return", annotation, getattr(function, "__globals__", {}), localns)
        except ToolDefinitionError:  # a type for checkers only; nothing at run time depends on it
            return None
        return returned_schema(resolved)

    def __getstate__(self) -> dict[str, Any]:
        """What can be rebuilt stays behind: pydantic's validators do not pickle, and the cell needs no declaration."""
        return self.__dict__ | {"_binder": None, "_declaration": None}


def _own_name(fn: Callable[..., object]) -> str:
    name = getattr(fn, "__name__", None)
    if isinstance(name, str):
        return name
    raise ToolDefinitionError(f"a {type(fn).__qualname__} has no name of its own. Pass name='…' to tool().")
