from typing import Any

class SafeSerializer:
    SAFE_PREFIX: str
    @staticmethod
    def dumps(obj: Any, allow_pickle: bool = ...) -> str: ...
    @staticmethod
    def loads(data: str, allow_pickle: bool = ...) -> Any: ...
