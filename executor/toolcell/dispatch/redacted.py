"""Remove secrets from a result, and the text of an exception from an outcome, before a model reads them."""

from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from toolcell.backends.threads import NoThread, in_thread
from toolcell.pool.run import Outcome
from toolcell.rules.redaction import Redaction
from toolcell_tools.content import ResourceBlock, TextBlock
from toolcell_tools.errors import ToolError
from toolcell_tools.raised import type_shown
from toolcell_tools.result import CapturedOutput, ToolResult

INLINE_BYTES = 16 * 1024
"""The most received bytes of a result that is redacted on the event loop. More takes a thread."""

M = TypeVar("M", bound=BaseModel)


def type_only(outcome: Outcome) -> Outcome:
    """The outcome of a call that raised, with types in place of the texts of exceptions. What was written for the model
    stays."""
    hidden = outcome.payload.get("hidden")
    if isinstance(hidden, str):
        return replace(outcome, message=hidden)
    if outcome.reason != "exception":
        return outcome
    name = outcome.message.partition(":")[0]
    return replace(outcome, message=f"{type_shown(name)} was raised. Its text is not shown.")


async def redacted(result: ToolResult, redaction: Redaction, received_bytes: int) -> ToolResult:
    """The result without the secrets, in all parts that a model may read."""
    if received_bytes + sum(len(each.path) + len(each.diff or "") for each in result.artifacts) > INLINE_BYTES:
        try:
            return await in_thread(partial(_redacted, result, redaction))
        except NoThread:
            pass
    return _redacted(result, redaction)


def redacted_error(error: ToolError, redaction: Redaction) -> ToolError:
    """The error without the secrets."""
    return _model(error, redaction)


def _redacted(result: ToolResult, redaction: Redaction) -> ToolResult:
    clean = redaction.text
    changed: dict[str, Any] = {"output": redaction.value(result.output), "display": clean(result.display)}
    if result.content:
        changed["content"] = [
            _model(block, redaction) if isinstance(block, (TextBlock, ResourceBlock)) else block
            for block in result.content
        ]
    if result.artifacts:
        changed["artifacts"] = [
            replace(each, path=clean(each.path), diff=clean(each.diff) if each.diff else each.diff)
            for each in result.artifacts
        ]
    if result.error is not None:
        changed["error"] = redacted_error(result.error, redaction)
    if result.notices:
        changed["notices"] = tuple([_model(notice, redaction) for notice in result.notices])
    if result.signals:
        changed["signals"] = tuple([replace(each, reason=clean(each.reason)) for each in result.signals])
    for name in ("stdout", "stderr"):
        captured: CapturedOutput = getattr(result, name)
        if captured.text:
            changed[name] = _model(captured, redaction)
    return result.model_copy(update=changed)


def _model(model: M, redaction: Redaction) -> M:
    """A copy of a model with clean texts. Its `kind` or `type` stays."""
    changed: dict[str, Any] = {}
    for name, value in vars(model).items():
        if isinstance(value, BaseModel):
            changed[name] = _model(value, redaction)
        elif type(value) in (str, list, dict) and name not in ("kind", "type"):
            changed[name] = redaction.value(value)
    return model.model_copy(update=changed)
