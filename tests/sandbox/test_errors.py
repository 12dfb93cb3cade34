"""The error of the sandbox: what happened, and what to do."""

from toolcell_sandbox import SandboxError
from toolcell_sandbox.order import NotEntered, pack, unpack


def test_an_error_says_what_happened_and_what_to_do_and_crosses_the_wire() -> None:
    error = SandboxError("step failed", step="a step", mechanism="landlock", errno=1, cure="Do this.")
    assert str(error) == "step failed: Operation not permitted (errno 1). Do this."
    again = unpack(pack(NotEntered.of(error))).error()
    assert (str(again), again.step, again.mechanism, again.errno, again.cure) == (
        str(error),
        "a step",
        "landlock",
        1,
        "Do this.",
    )
