"""The options of a tool, the same for every way to make one, and the rules for them. Errors name the tool and the
remedy."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, cast, get_args

from .capability import CHANGING, LEAST_TIERS, NOT_READ_ONLY, Capability, PermissionTier
from .encode import encode_json
from .failures import ToolDefinitionError, Unencodable

if TYPE_CHECKING:
    from pydantic import ConfigDict

    from .signals import SignalKind

__all__ = [
    "Annotations",
    "Approval",
    "DynamicHostOptions",
    "DynamicOptions",
    "ExceptionsShown",
    "FailureMode",
    "Kind",
    "Lifetime",
    "Mutates",
    "Placement",
    "ToolOptions",
    "Variation",
]

Lifetime = Literal["call", "session"]
FailureMode = Literal["error", "return"]
ExceptionsShown = Literal["text", "type"]
"""What a model reads of an exception that a tool raised: its type and its text, or its type only."""
Placement = Literal["cell", "host", "provider"]
Kind = Literal["function", "typed", "dynamic", "host", "provider"]
Approval = bool | Callable[[Mapping[str, Any]], bool]
"""Whether a person is asked before a call runs: always, never, or decided by a function of the arguments. The function
runs in the supervisor's process, never in a cell."""
Mutates = Callable[[Mapping[str, Any]], bool]
"""Whether a call with these arguments may change anything. The function runs in the supervisor's process."""

_MUTATES_WORKSPACE = frozenset({Capability.WRITE, Capability.EXEC})


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """What a tool says about itself. The declaration replaces `None` by what the tool's tier and needs imply.

    `sequential` tools of one session never run side by side. `edit` marks changes that a UI can show as a diff.
    """

    # A declaration is a pydantic model and checks these values. A cell never makes one, so it does not load pydantic.
    __pydantic_config__: ClassVar["ConfigDict"] = {"extra": "forbid", "revalidate_instances": "always"}

    title: str | None = None
    read_only: bool | None = None
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    edit: bool = False
    sequential: bool | None = None

    def resolved(self, tier: PermissionTier, needs: frozenset[Capability]) -> "Annotations":
        """Return a copy in which `read_only` and `sequential` are not None."""
        return replace(
            self,
            read_only=tier is PermissionTier.READ_ONLY if self.read_only is None else self.read_only,
            sequential=bool(needs & _MUTATES_WORKSPACE) if self.sequential is None else self.sequential,
        )


LIMITS = frozenset([
    "wall_s", "cpu_s", "memory_bytes", "processes", "open_files", "file_bytes", "scratch_bytes", "scratch_inodes",
    "output_bytes", "result_bytes", "start_s", "grace_s",
])  # fmt: skip
"""The fields of `toolcell_sandbox.limits.Limits`."""
_WANTED: dict[str, tuple[tuple[type, ...], str]] = {
    "description": ((str, NoneType), "a text"),
    "version": ((str,), "a text such as '1.0.0'"),
    "tier": ((str, NoneType), "a PermissionTier"),
    "needs": ((Iterable,), "a set of capabilities"),
    "uses": ((Iterable,), "a set of capabilities"),
    "annotations": ((Annotations, NoneType), "Annotations(…)"),
    "signals": ((Iterable,), "a set of signals"),
    "limits": ((Mapping, NoneType), "a mapping such as {'wall_s': 5}"),
    "metadata": ((Mapping,), "a mapping of JSON data"),
    "parameters_schema": ((Mapping, NoneType), "a JSON Schema"),
}
"""For options that take few types: these types, and what to pass."""
_CHOICES: dict[str, tuple[str, ...]] = {
    "tier": tuple(PermissionTier),
    "lifetime": get_args(Lifetime),
    "failure_mode": get_args(FailureMode),
    "exceptions": get_args(ExceptionsShown),
}
_FLAGS = ("long_running", "return_direct", "confirms")
DESCRIPTION_CHARS = 1_024  # OpenAI's limit for a function's description, the lowest of all providers
INSTRUCTIONS_CHARS = 8_000  # of all tools together, they are in every request to a model
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NUMBER = r"(?:0|[1-9]\d*)"
_PRERELEASE = rf"(?:{_NUMBER}|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMANTIC = re.compile(  # the grammar of semver.org, version 2.0.0
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_RESERVED = frozenset({"handoff"})
_TIERS = tuple(PermissionTier)  # from the least to the greatest


class _Words(TypedDict, total=False):
    name: str | None
    description: str | None
    parameters_schema: Mapping[str, Any] | None


class _Anywhere(TypedDict, total=False):
    version: str
    tier: PermissionTier | None
    annotations: Annotations | None
    timeout: float | None
    requires_approval: Approval
    return_direct: bool
    metadata: Mapping[str, Any]
    instructions: str
    exceptions: ExceptionsShown


class _Bounds(_Anywhere, total=False):
    limits: Mapping[str, float] | None


class _Behaviour(TypedDict, total=False):
    needs: Iterable[Capability | str]
    failure: object
    failure_mode: FailureMode
    preview: Callable[..., object] | None
    long_running: bool
    signals: "Iterable[SignalKind]"
    confirms: bool


class DynamicHostOptions(_Anywhere, _Behaviour, total=False):
    """The options of dynamic tools that also apply outside a cell. See ToolOptions."""

    harmless: bool


class DynamicOptions(_Bounds, _Behaviour, total=False):
    """The options of every tool, except those that a dynamic tool gives by other parameters. See ToolOptions."""

    uses: Iterable[Capability | str]
    mutates: Mutates | None
    lifetime: Lifetime


class Variation(_Words, _Bounds, total=False):
    """The options that `Tool.replace` may change: presentation and bounds, never function or rights.

    A `parameters_schema` replaces the derived one, in the declaration and in validation. It names only parameters of
    the function. Each parameter that the function requires is required in it, or has a default there.
    """


class ToolOptions(_Words, DynamicOptions, total=False):
    """All options. An option that is left out comes from the function, or has its least permissive value.

    `output_schema` and `failure` are JSON Schemas or types, for results and for the data of failures; a type also
    serialises the results. `failure_mode="return"` turns a ToolFailure into a result that is marked as failed.
    `preview` takes parameters of the tool, by name, and its context, and says what a call would do, without doing it.
    If `mutates` returns False for a call, the call is granted no capability of `uses` that changes anything. A
    `long_running` tool returns a `Pending`. `return_direct` ends the agent's turn with the result. `instructions` is a
    text for the system prompt of a model that is offered the tool. `signals` are those that the tool may give to the
    loop. A tool that `confirms` may call `ctx.confirm`. With `exceptions="type"`, a model reads only the type of an
    exception that the tool raised; the profile may ask for that too. `harmless` is for host tools: see `host_tool`.
    """

    output_schema: object
    harmless: bool


def check_name(name: str) -> str:
    """Return `name` if a tool may have it; else raise ToolDefinitionError."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolDefinitionError(f"tool name {name!r} is not a text. Pass name='…'.")
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"tool name {name!r}: a name is a small letter, then at most 62 small letters, digits or underscores. "
            f"Rename the function or pass name={suggested_name(name)!r}."
        )
    if _is_reserved(name):
        cure = suggested_name(name)
        raise ToolDefinitionError(f"tool name {name!r} is reserved. Rename the function or pass name={cure!r}.")
    return name


def _is_reserved(name: str) -> bool:
    return name in _RESERVED or name.startswith("toolcell_")


def suggested_name(name: str) -> str:
    """The valid tool name that is nearest to `name`: `SaveFile` gives `save_file`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    cleaned = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:63]
    if _is_reserved(cleaned):
        return f"my_{cleaned}"[:63]
    return cleaned if _NAME.fullmatch(cleaned) else f"tool_{cleaned}"[:63] if cleaned else "my_tool"


def legal_names(names: Iterable[str], *, prefix: str = "", taken: Iterable[str] = ()) -> dict[str, str]:
    """Map foreign names to names that tools may have: `{"SearchTool": "search_tool"}`. No two results are equal, and
    none is in `taken`.

    `prefix` is put before each name. A legal name is kept. Any other becomes the nearest legal name, with a digest at
    its end if that is taken. The order of the names does not matter.
    """
    used, found = set(taken), dict[str, str]()
    wanted = {name: f"{prefix}{name}" for name in names}
    for name in sorted(wanted, key=lambda name: (not _is_legal(wanted[name]), name)):
        legal = wanted[name] if _is_legal(wanted[name]) else suggested_name(wanted[name])
        if legal in used:
            from hashlib import sha256  # memory that no cell needs

            digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            plain = suggested_name(f"tool_{legal}")
            longer = (f"{plain[: 62 - size]}_{digest[:size]}" for size in range(6, 62))
            legal = next(one for one in longer if one not in used)
        used.add(legal)
        found[name] = legal
    return {name: found[name] for name in wanted}


def _is_legal(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not _is_reserved(name)


def check_description(tool: str, description: str) -> str:
    """Return `description` if it is short enough; else raise ToolDefinitionError."""
    if len(description) > DESCRIPTION_CHARS:
        raise ToolDefinitionError(
            f"tool {tool!r}: the description has {len(description):,} characters and may have {DESCRIPTION_CHARS:,}. "
            "Shorten the docstring (its Args section does not count) or pass description='…'."
        )
    return description


def check_options(tool: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown option, and a value that the option does not take."""
    check_known(tool, options, ToolOptions.__annotations__)
    for option in options.keys() & _WANTED.keys():
        value, (types, wanted) = options[option], _WANTED[option]
        if not isinstance(value, types):
            raise ToolDefinitionError(f"tool {tool!r}: {option}={value!r}. Pass {wanted}.")
    for option, choices in _CHOICES.items():
        value = options.get(option, choices[0])
        if value not in choices and (option, value) != ("tier", None):
            raise ToolDefinitionError(
                f"tool {tool!r}: {option}={value!r}. Pass {' or '.join(repr(str(one)) for one in choices)}."
            )
    for option in _FLAGS:
        check_flag(tool, option, options.get(option, False))
    asked = options.get("requires_approval", False)
    if not callable(asked):
        check_flag(tool, "requires_approval", asked)
    version = options.get("version", "1.0.0")
    if not _SEMANTIC.fullmatch(version):
        raise ToolDefinitionError(
            f"tool {tool!r}: version={version!r} is not semantic. Write major.minor.patch, such as '1.2.3', "
            "'2.0.0-beta.1' or '1.0.0+build5'."
        )


def check_mutates(tool: str, mutates: object, needs: frozenset[Capability], lifetime: Lifetime) -> None:
    """Refuse a value that is no function, and a function for a tool that could not be held to its word."""
    if mutates is None:
        return
    if not callable(mutates):
        raise ToolDefinitionError(
            f"tool {tool!r}: mutates={mutates!r} is no function. Pass one of the arguments, or leave it out."
        )
    always = ", ".join(sorted(needs & CHANGING))
    if always:
        raise ToolDefinitionError(
            f"tool {tool!r} needs {always} in each call, so mutates would hold none to its word. Name in uses "
            "what only some calls need."
        )
    if lifetime == "session":
        raise ToolDefinitionError(
            f"tool {tool!r} keeps one process over its calls, which has what any of them is granted. Leave "
            'mutates out, or lifetime="session".'
        )


def check_known(tool: str, given: Iterable[object], known: Iterable[str], what: str = "option") -> None:
    """Refuse an unknown option. The message has the most similar known name."""
    names = sorted(known)
    for option in given:
        if option not in names:
            from difflib import get_close_matches  # memory that no cell needs

            near = get_close_matches(str(option), names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}."
            raise ToolDefinitionError(f"tool {tool!r} has no {what} {option!r}. {hint}")


def check_flag(tool: str, option: str, value: object) -> None:
    """Refuse a value other than True and False: another truthy value is usually a mistake."""
    if type(value) is not bool:
        raise ToolDefinitionError(f"tool {tool!r}: {option}={value!r}. Pass True or False.")


def check_instructions(tool: str, text: object) -> str:
    """Return `text` if a system prompt can have it; else raise ToolDefinitionError."""
    if not isinstance(text, str):
        raise ToolDefinitionError(f"tool {tool!r}: instructions={text!r}. Pass a text for the system prompt.")
    if len(text) > INSTRUCTIONS_CHARS:
        raise ToolDefinitionError(
            f"tool {tool!r}: its instructions have {len(text):,} characters, and at most {INSTRUCTIONS_CHARS:,} are "
            "allowed. Shorten them."
        )
    return text.strip()


def check_metadata(tool: str, metadata: Mapping[str, Any], option: str = "metadata") -> dict[str, Any]:
    """A copy of `metadata` as plain JSON data."""
    try:
        return cast("dict[str, Any]", encode_json(dict(metadata)))
    except Unencodable as failure:
        raise ToolDefinitionError(f"tool {tool!r}: {option} is not JSON data: {failure}.") from failure


def answers_parameter(metadata: Mapping[str, Any]) -> str:
    """The parameter for the answers of the client's user, from `toolcell.mcp.mcp_metadata`; "" if there is none."""
    given: object = metadata.get("mcp")
    found: object = cast("Mapping[str, object]", given).get("answers") if isinstance(given, Mapping) else None
    return found if isinstance(found, str) else ""


def check_positive(tool: str, option: str, value: float | None) -> float | None:
    """Return `value` if it is None or a number above 0; else raise ToolDefinitionError."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (is_number and value > 0):
        raise ToolDefinitionError(
            f"tool {tool!r}: {option}={value!r}. Pass a number above 0, or None for the profile's."
        )
    return value


def check_limits(tool: str, limits: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return a copy of `limits` if its names are those of `Limits` and its values can be limits."""
    if limits is None:
        return None
    check_known(tool, limits, LIMITS, "limit")
    for key, value in limits.items():
        check_positive(tool, f"limits[{key!r}]", value)
        if not key.endswith("_s") and not isinstance(value, int):
            raise ToolDefinitionError(f"tool {tool!r}: limits[{key!r}]={value!r}. Pass a whole number above 0.")
    return dict(limits)


def capabilities(tool: str, option: str, given: Iterable[Capability | str]) -> frozenset[Capability]:
    """The set of capabilities that `given` names. Raises ToolDefinitionError for anything else."""
    if isinstance(given, str):
        raise ToolDefinitionError(f"tool {tool!r}: {option}={given!r} is not a set. Write {option}={{{given!r}}}.")
    try:
        return frozenset(Capability(one) for one in given)
    except (TypeError, ValueError) as failure:
        known = ", ".join(Capability)
        raise ToolDefinitionError(f"tool {tool!r}: {option}: {failure}. Use members of Capability: {known}.") from None


def tier_of(rights: frozenset[Capability]) -> PermissionTier:
    """The least tier of a tool with these needs and uses."""
    return max((LEAST_TIERS[one] for one in rights), key=_TIERS.index, default=PermissionTier.READ_ONLY)


def is_below(tier: PermissionTier, rights: frozenset[Capability]) -> bool:
    """Whether this tier is lower than the least one for these needs and uses."""
    return _TIERS.index(tier) < _TIERS.index(tier_of(rights))


def check_tier(tool: str, tier: PermissionTier, rights: frozenset[Capability], cure: str) -> None:
    """Refuse a tier below what the needs and uses imply."""
    if is_below(tier, rights):
        least = tier_of(rights)
        names = ", ".join(sorted(one for one in rights if LEAST_TIERS[one] is least))
        raise ToolDefinitionError(
            f"tool {tool!r}: tier={tier.value!r} is too low for a tool with {names}; the least is {least.value!r}. "
            f"{cure}"
        )


def check_read_only(tool: str, rights: frozenset[Capability], cure: str) -> None:
    """Refuse the annotation `read_only` for a tool that may change something."""
    names = ", ".join(sorted(rights & NOT_READ_ONLY))
    if names:
        raise ToolDefinitionError(f"tool {tool!r}: read_only=True does not fit a tool with {names}. {cure}")


def defaults_of(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The defaults in an author's schema, which the binder must apply."""
    properties: Any = {} if schema is None else schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return {}
    items = cast("Mapping[str, Any]", properties).items()
    return {key: one["default"] for key, one in items if isinstance(one, Mapping) and "default" in one}
