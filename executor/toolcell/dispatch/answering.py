"""Room for the answer to a handle request, and its way to the cell."""

import anyio

from toolcell.pool.run import Run
from toolcell.sessions import broker
from toolcell.wire.budget import Account, Charge
from toolcell.wire.frames import Field, TooLarge, Unpackable
from toolcell.wire.messages import Request


async def room_for(account: Account, bytes: int) -> Charge:
    """Wait for room for an answer of so many bytes. The caller releases the charge."""
    granted = anyio.Event()
    ask = account.ask(bytes, granted.set)
    if ask.charge is None:
        try:
            await granted.wait()
        except BaseException:
            ask.end()
            raise
    assert ask.charge is not None
    return ask.charge


def reply(run: Run, request: Request, ok: bool, value: Field, held: Charge) -> None:
    """Send the answer to the cell, which then owns the charge. An answer that no frame can hold becomes a refusal."""
    if run.cell is None:
        held.release()
        return
    try:
        run.cell.calls.reply(run, request.request, ok, value, held)
    except Unpackable as error:
        why = "is too large for this call" if isinstance(error, TooLarge) else "cannot be sent"
        refusal = broker.Refusal("execution", f"The answer {why}: {error}. Ask for less.")
        run.cell.calls.reply(run, request.request, False, refusal.to_wire(), held)
