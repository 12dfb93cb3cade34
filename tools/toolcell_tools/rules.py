"""What a declaration must obey, whatever kind of tool it is for. Refusals name the tool and the remedy."""

import re
from collections.abc import Iterable, Mapping

from .capability import Capability, PermissionTier
from .failures import ToolDefinitionError

__all__ = ["DESCRIPTION_CHARS", "capabilities", "check_description", "check_name", "check_positive", "tier_of"]

DESCRIPTION_CHARS = 1_024  # OpenAI's limit for a function's description; the strictest of the providers
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_RESERVED = frozenset({"handoff"})
_OBSERVING = frozenset({Capability.READ, Capability.MEMORY_READ, Capability.WEB})
_CHANGING = _OBSERVING | {Capability.WRITE, Capability.MEMORY_WRITE}


def check_name(name: str) -> str:
    """`name`, if a tool may have it."""
    if not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"tool name {name!r}: a name is a small letter, then at most 62 small letters, digits or underscores. "
            f"Rename the function or pass name={_suggestion(name)!r}."
        )
    if name in _RESERVED or name.startswith("toolcell_"):
        raise ToolDefinitionError(f"tool name {name!r} is reserved. Rename the function or pass name='my_{name}'.")
    return name


def _suggestion(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    cleaned = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:63]
    return cleaned if _NAME.fullmatch(cleaned) else f"tool_{cleaned}"[:63] if cleaned else "my_tool"


def check_description(tool: str, description: str) -> str:
    """`description`, if it is short enough."""
    if len(description) > DESCRIPTION_CHARS:
        raise ToolDefinitionError(
            f"tool {tool!r}: the description has {len(description):,} characters and may have {DESCRIPTION_CHARS:,}. "
            "Shorten the docstring (its Args section does not count) or pass description='…'."
        )
    return description


def check_positive(tool: str, option: str, value: float | None) -> float | None:
    """`value`, if it is None or a number above 0."""
    if value is not None and not value > 0:
        raise ToolDefinitionError(
            f"tool {tool!r}: {option}={value!r}. Pass a number above 0, or None for the profile's."
        )
    return value


def check_limits(tool: str, limits: Mapping[str, float] | None) -> dict[str, float] | None:
    """A copy of `limits`, if every one is above 0; what they are called is the profile's business."""
    if limits is None:
        return None
    for key, value in limits.items():
        check_positive(tool, f"limits[{key!r}]", value)
    return dict(limits)


def capabilities(tool: str, option: str, given: Iterable[Capability | str]) -> frozenset[Capability]:
    """The set of capabilities that `given` names."""
    if isinstance(given, str):
        raise ToolDefinitionError(f"tool {tool!r}: {option}={given!r} is not a set. Write {option}={{{given!r}}}.")
    try:
        return frozenset(Capability(one) for one in given)
    except ValueError as failure:
        known = ", ".join(Capability)
        raise ToolDefinitionError(f"tool {tool!r}: {option}: {failure}. Use members of Capability: {known}.") from None


def tier_of(rights: frozenset[Capability]) -> PermissionTier:
    """The tier of a tool that did not choose one, from all that it needs and uses."""
    if rights <= _OBSERVING:
        return PermissionTier.READ_ONLY
    return PermissionTier.WORKSPACE if rights <= _CHANGING else PermissionTier.SYSTEM
