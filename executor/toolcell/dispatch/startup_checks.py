"""Check hooks and policies early: hooks that would never be called, policies that cannot decide, rules for no tool."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, cast

from toolcell.errors import UsageError
from toolcell.rules.policy import Policy, StricterPolicy, TierPolicy, named_tools_of
from toolcell.store.journal import Journal, Record
from toolcell_tools.definition import Tool
from toolcell_tools.preview import printable, shortened

from .hooks import Hook

_METHODS = {
    "before_call": ("call",),
    "after_call": ("call", "result"),
    "on_error": ("call", "error"),
    "on_session": ("session", "event", "result"),
    "on_suspend": ("session",),
    "on_resume": ("session",),
}
"""The methods of a hook, each with its arguments."""
_NEAR = 0.75  # "before_cal" and "beforeCall" are near to "before_call", "call" and "error" are not
_LIKE = 0.5  # if a hook has no hook method at all, a weaker similarity is enough
_log = logging.getLogger("toolcell.policy")


def checked_hooks(hooks: Iterable[object]) -> tuple[object, ...]:
    """The hooks. Raises UsageError for a hook without a hook method, with a misspelt one, or one that is not
    callable."""
    if not isinstance(hooks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - one hook is passed by mistake
        raise UsageError(f"hooks is no list but {_shown(hooks)}. Put the one hook in a list.")
    found = tuple(hooks)
    for hook in found:
        _check_hook(hook)
    return found


def _check_hook(hook: object) -> None:
    if isinstance(hook, type):
        raise UsageError(
            f"hooks holds {hook.__qualname__}, which is a class. Pass an instance: {hook.__qualname__}(…)."
        )
    own = [name for name in _METHODS if _has(hook, name)]
    others = [name for name in _METHODS if name not in own]
    for name in _public_methods(hook):
        near = get_close_matches(_snake(name), others, n=1, cutoff=_NEAR if own else _LIKE)
        if near and name not in _METHODS:
            raise UsageError(
                f"The hook {_name(hook)} has a method {name!r}. Did you mean {near[0]!r}? "
                "If not, give it another name, or one that begins with an underscore."
            )
    if not own:
        raise UsageError(f"hooks holds {_shown(hook)}, which has no hook methods. Define one of {', '.join(_METHODS)}.")
    for name in own:
        _check_method(hook, name, getattr(hook, name))


def _check_method(hook: object, name: str, method: object) -> None:
    what = f"{name} of {_name(hook)}"
    if not callable(method):
        raise UsageError(f"{what} is not callable. Write: async def {name}(self, …).")
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        raise UsageError(f"{what} is a generator. Return its answer, without yield.")
    if not _takes(method, len(_METHODS[name])):
        given = ", ".join(("self", *_METHODS[name]))
        raise UsageError(f"{what} does not take what it is given. Write: async def {name}({given}).")


def _has(hook: object, name: str) -> bool:
    """Whether the hook has this method, from any class but Hook, whose methods do nothing."""
    method = getattr(hook, name, None)
    return method is not None and getattr(method, "__func__", None) is not vars(Hook)[name]


def _public_methods(hook: object) -> Iterator[str]:
    for name in dir(hook):
        if not name.startswith("_") and callable(_unbound(inspect.getattr_static(hook, name, None))):
            yield name


def _unbound(method: object) -> object:
    function: object = getattr(method, "__func__", method)  # of a static or a class method
    return function


def _takes(method: Callable[..., object], count: int) -> bool:
    try:
        inspect.signature(method).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # written in C, with no signature to look at
        return True
    return True


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)


def checked_policy(policy: Policy | None) -> Policy:
    """The policy, or the default one. Raises UsageError for an object that cannot decide at once."""
    if policy is None:
        return TierPolicy()
    if isinstance(policy, type):
        raise UsageError(f"policy is the class {policy.__qualname__}. Pass an instance: {policy.__qualname__}(…).")
    decide = getattr(policy, "decide", None)
    if not callable(decide):
        near = get_close_matches("decide", _public_methods(policy), n=1, cutoff=_NEAR)
        hint = f" It has {near[0]!r}; did you mean 'decide'?" if near else ""
        raise UsageError(f"policy is {_shown(policy)}, which has no method decide(call, declaration, session).{hint}")
    if inspect.iscoroutinefunction(decide) or inspect.isasyncgenfunction(decide) or inspect.isgeneratorfunction(decide):
        raise UsageError(f"decide of {_name(policy)} is async or a generator. Write a plain def: it is asked at once.")
    if not _takes(decide, 3):
        raise UsageError(f"decide of {_name(policy)} does not take (call, declaration, session). Write them all.")
    return policy


class PendingRules:
    """The tools that a policy names and that have not been offered yet.

    If all tools are known, an unknown name is a UsageError. With toolsets, or in a policy of the user's settings, which
    serve other programs too, it is reported once, in the log and as an incident in the journal: when the toolsets were
    asked and did not offer it, or at the end.
    """

    def __init__(self, policy: Policy, known: Iterable[str], *, open_ended: bool) -> None:
        named = named_tools_of(policy)
        self._known = set(known)
        self._unmatched = set(named - self._known)
        if self._unmatched and not open_ended:
            raise UsageError(f"The policy {self._said(min(self._unmatched))} Correct the name, or remove the rule.")
        self._told: set[str] = set()

    def met(self, names: Iterable[str], session_id: str, journal: Journal) -> None:
        """Note the tools that the toolsets have offered, and report the rules that match none so far."""
        if self._unmatched:
            self._known.update(names)
            self._unmatched -= self._known
            self.report(journal, session_id)

    def report(self, journal: Journal, session_id: str = "") -> None:
        """Report each rule that has matched no tool, once."""
        for name in sorted(self._unmatched - self._told):
            what = f"The policy {self._said(name)} That rule has matched nothing so far."
            self._told.add(name)
            _log.warning("%s", what)
            journal.write(Record("incident", session_id, data={"policy": name, "what": what}))

    def _said(self, name: str) -> str:
        near = get_close_matches(name, sorted(self._known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"has a rule for {shortened(printable(repr(name)))}, and there is no tool {name[:64]!r}.{hint}"


def unknown_arguments(policy: Policy, tools: Mapping[str, Tool[..., Any]], *, open_ended: bool) -> Iterator[str]:
    """The complaint about each pattern for an argument that none of the rule's tools has: the rule fits no call.

    `open_ended` means that there may be other tools. A tool whose schema is open has every argument.
    """
    own = policy.policy if isinstance(policy, StricterPolicy) else policy
    for rule in own.all_rules if isinstance(own, TierPolicy) else ():
        if not rule.arguments or (rule.tool not in tools if rule.tool else open_ended):
            continue
        concerned = [tools[rule.tool]] if rule.tool else tools.values()
        taken = [_parameters(tool.declaration.parameters_schema) for tool in concerned]
        known = {name for names in taken for name in names or ()}
        for name in rule.arguments if None not in taken else ():
            if name not in known and not any(name.startswith(f"{each}.") for each in known):
                yield _unknown_argument(name, rule.tool, known)


def _unknown_argument(name: str, tool: str, known: set[str]) -> str:
    near = get_close_matches(name.partition(".")[0], sorted(known), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known)) or 'none'}."
    who = f"the tool {tool!r} does not have" if tool else "no tool has"
    return f"The policy has a rule for the argument {shortened(printable(repr(name)))}, which {who}. {hint}"


def _parameters(schema: Mapping[str, Any]) -> Iterable[str] | None:
    """The names of all arguments that a tool takes. None if the schema does not tell."""
    properties: object = schema.get("properties", {})
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        return None
    return None if "patternProperties" in schema else cast("Mapping[str, object]", properties)


def _name(guard: object) -> str:
    return type(guard).__name__


def _shown(guard: object) -> str:
    return shortened(printable(repr(guard)))
