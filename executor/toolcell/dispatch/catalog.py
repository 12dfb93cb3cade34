"""The catalog: what is worked out once for each tool, whichever session calls it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from toolcell.errors import UsageError
from toolcell.sessions.shipping import shipped
from toolcell.sessions.used import NOTHING, Use
from toolcell_tools.definition import Tool

from .output import OutputSchema
from .validate import Validator


@dataclass(frozen=True, slots=True)
class Checks:
    """The compiled schemas of a tool's arguments and of its output."""

    arguments: Validator
    output: OutputSchema | None


class Catalog:
    """The compiled schemas of each tool, and its shipment: what a cell needs to load it."""

    def __init__(self) -> None:
        self._checks: WeakKeyDictionary[Tool[..., Any], Checks] = WeakKeyDictionary()
        self._shipments: WeakKeyDictionary[Tool[..., Any], tuple[Mapping[str, object], Use]] = WeakKeyDictionary()

    def checks(self, tool: Tool[..., Any]) -> Checks:
        """The tool's schemas, compiled at the first call; UsageError where one does not compile."""
        checks = self._checks.get(tool)
        if checks is None:
            declaration = tool.declaration
            arguments = Validator(tool.name, declaration.parameters_schema, validate=tool.validate)
            schema = declaration.output_schema
            output = None if schema is None else OutputSchema(tool.name, schema)
            checks = self._checks[tool] = Checks(arguments, output)
        return checks

    def shipped(self, tool: Tool[..., Any]) -> tuple[Mapping[str, object], Use]:
        """The tool's shipment and what goes with it by value: made once, and anew where a global name that it uses was
        bound anew. UsageError where it cannot be sent."""
        found = self._shipments.get(tool)
        if found is None or not found[1].is_current():
            found = self._shipments[tool] = shipped(tool, NOTHING if found is None else found[1])
        return found

    def shipment(self, tool: Tool[..., Any]) -> Mapping[str, object]:
        """The tool's shipment alone."""
        return self.shipped(tool)[0]

    def can_ship(self, tool: Tool[..., Any]) -> bool:
        """Whether a cell can load the tool; calls of the tool itself say why not."""
        try:
            self.shipped(tool)
        except UsageError:
            return False
        return True
