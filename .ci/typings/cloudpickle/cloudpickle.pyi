from types import ModuleType
from typing import Any

def dynamic_subimport(name: str, vars: dict[str, Any]) -> ModuleType: ...
