"""The catalog: data that is computed once for each tool, for all sessions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from toolcell.errors import UsageError
from toolcell.sessions.closure import NOTHING, Use
from toolcell.sessions.shipping import shipped
from toolcell_tools.definition import Tool

from .output import OutputSchema
from .validate import Validator


@dataclass(frozen=True, slots=True)
class Checks:
    """The compiled schemas of a tool's arguments and of its output."""

    arguments: Validator
    output: OutputSchema | None


_checks: WeakKeyDictionary[Tool[..., Any], Checks] = WeakKeyDictionary()
"""Of all supervisors of this program: they depend on the tool alone."""


class Catalog:
    """The compiled schemas of each tool, and its shipment: what a cell needs to load it."""

    def __init__(self) -> None:
        self._shipments: WeakKeyDictionary[Tool[..., Any], tuple[Mapping[str, object], Use]] = WeakKeyDictionary()

    def checks(self, tool: Tool[..., Any]) -> Checks:
        """The tool's schemas, compiled at the first call. Raises UsageError if one does not compile."""
        checks = _checks.get(tool)
        if checks is None:
            declaration = tool.declaration
            arguments = Validator(tool.name, declaration.parameters_schema, validate=tool.validate, whole=tool.whole)
            schema = declaration.output_schema
            output = None if schema is None else OutputSchema(tool.name, schema)
            checks = _checks[tool] = Checks(arguments, output)
        return checks

    def shipped(self, tool: Tool[..., Any]) -> tuple[Mapping[str, object], Use]:
        """The tool's shipment and the objects that are sent with it by value. It is made once, and again if a global
        name that it uses is rebound. Raises UsageError if it cannot be sent."""
        found = self._shipments.get(tool)
        if found is None or not found[1].is_current():
            found = self._shipments[tool] = shipped(tool, NOTHING if found is None else found[1])
        return found

    def shipment(self, tool: Tool[..., Any]) -> Mapping[str, object]:
        """The tool's shipment alone."""
        return self.shipped(tool)[0]

    def can_ship(self, tool: Tool[..., Any]) -> bool:
        """Whether a cell can load the tool. If not, calls of the tool get the reason."""
        try:
            self.shipped(tool)
        except UsageError:
            return False
        return True
