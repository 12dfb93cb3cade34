"""SkyRL: the tools of a session as a ToolGroup of a SkyRL Gym environment.

    class Env(BaseTextEnv):
        def __init__(self, …):
            self.init_tool_groups([CellToolGroup(session)])        # a session of toolcell.blocking

Needs the extra `[skyrl]`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from skyrl_gym.tools.core import ToolGroup

from toolcell.adapters.result_forms import text_of
from toolcell.blocking import Session
from toolcell.errors import UsageError
from toolcell_tools.declaration import ToolDeclaration

from .session_source import answered

__all__ = ["CellToolGroup"]


class CellToolGroup(ToolGroup):
    """The tools of one session, by name. Make one group for each environment, so that each trajectory has its own
    session.

    SkyRL passes the arguments of a tool as a list or a tuple, in the order of the schema's parameters. A single mapping
    of arguments by name works too. The answer is a text, also for an error of the tool. An infrastructure error raises
    InfrastructureFailure. The environment's `close` must close the session.
    """

    def __init__(self, session: Session, name: str = "toolcell") -> None:
        self._session = session
        super().__init__(name=name)

    def _register_tools(self) -> None:
        """Called by the base class."""
        registry = cast("dict[str, Callable[..., str]]", self._tool_registry)
        for one in self._session.tools():
            if one.kind != "provider" and one.metadata.get("audience") != "program":
                registry[one.name] = partial(self._call, one)

    def _call(self, declaration: ToolDeclaration, *args: Any, **kwargs: Any) -> str:
        arguments = _named(declaration, args, kwargs)
        return text_of(answered(self._session.call(declaration.name, arguments)))


def _named(declaration: ToolDeclaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name. Raises UsageError for more than the tool has parameters."""
    properties: Mapping[str, Any] = declaration.parameters_schema.get("properties", {})
    if len(args) == 1 and isinstance(args[0], Mapping) and not kwargs:
        given = cast("Mapping[str, Any]", args[0])
        if given.keys() <= properties.keys():
            return dict(given)
    if len(args) > len(properties):
        raise UsageError(
            f"{declaration.name} has {len(properties)} parameters ({', '.join(properties)}), and got {len(args)}."
        )
    return {**dict(zip(properties, args, strict=False)), **kwargs}
