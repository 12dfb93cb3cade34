"""What a validator makes of arguments that it accepts."""

from typing import Any

from toolcell.dispatch.validate import Valid, Validator


def taken(validator: Validator, arguments: Any) -> dict[str, Any]:
    """The copy that is sent."""
    answer = validator.check(arguments)
    assert isinstance(answer, Valid)
    return answer.arguments
