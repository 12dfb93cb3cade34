"""`RolloutTask`: data for an agent, with an id by which a resumed rollout recognises it."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from toolcell.errors import UsageError
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import Unencodable

__all__ = ["AttemptKey", "RolloutTask", "digest_of", "tasks_of"]

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """A task. `id` is unique in its rollout. It has up to 100 letters, digits, dots, hyphens and underscores, because
    it names directories and sessions. `data` is JSON data, which only the agent reads."""

    id: str
    data: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or _ID.fullmatch(self.id) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"A task cannot have the id {self.id!r}. Use 1 to 100 letters, digits, dots, hyphens and underscores, "
                "with a letter or a digit first."
            )


class AttemptKey(NamedTuple):
    """One attempt of a rollout; `number` counts from 1."""

    task_id: str
    number: int


def tasks_of(given: Iterable[Any]) -> list[RolloutTask]:
    """The tasks. Data that is not a RolloutTask gets its index as id. Raises UsageError if two tasks have one id."""
    tasks = [one if isinstance(one, RolloutTask) else RolloutTask(str(index), one) for index, one in enumerate(given)]
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise UsageError(f"Two tasks have the id {task.id!r}. Give each task an id of its own.")
        seen.add(task.id)
    return tasks


def digest_of(task: RolloutTask) -> str:
    """The SHA-256 of the task's data, in hexadecimal. Raises UsageError if the data is not JSON data."""
    try:
        text = json.dumps(encode_json(task.data), sort_keys=True)
    except Unencodable as error:
        raise UsageError(f"The data of the task {task.id!r} is not JSON data: {error}.") from None
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
