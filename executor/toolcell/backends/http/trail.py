"""The records of the HTTP requests of one call. Each request and each redirect has one, whatever its outcome."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from toolcell.backends.errors import BackendError, Refused

__all__ = ["HttpOutcome", "Trail"]


@dataclass(slots=True, eq=False)
class HttpOutcome:
    """The record of one request. `allowed` is the decision. `reason` says why it was refused, or why there is no
    answer.

    `path` is without its query. `credentials` are the names of the headers that the supervisor added, never their
    values. Bytes are those of the bodies; `in` is towards the cell.
    """

    method: str = ""
    scheme: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    rule: str = ""
    address: str = ""
    credentials: tuple[str, ...] = ()
    allowed: bool = False
    reason: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Trail:
    """`write` takes each record, once its request is over. `close` is for the end of the call."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._open: dict[HttpOutcome, None] = {}

    @contextmanager
    def outcome(self) -> Generator[HttpOutcome]:
        """The outcome of one request, which the caller fills in. It is recorded when the block ends."""
        outcome = HttpOutcome()
        self._open[outcome] = None
        try:
            yield outcome
        except BackendError as error:
            outcome.allowed = outcome.allowed and not isinstance(error, Refused)
            outcome.reason = str(error)
            raise
        except Exception:
            outcome.reason = "the client failed"
            raise
        except BaseException:
            outcome.reason = outcome.reason or "the call ended"
            raise
        finally:
            self._end(outcome)

    def close(self) -> None:
        """Record the open requests, because the call is over. Called before the caller gets the result."""
        for outcome in list(self._open):
            outcome.reason = "the call ended"
            self._end(outcome)

    def _end(self, outcome: HttpOutcome) -> None:
        if outcome in self._open:
            del self._open[outcome]
            self._write({**asdict(outcome), "credentials": list(outcome.credentials)})
