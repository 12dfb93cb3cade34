"""The API without `await`, for programs that have no event loop; calls from several threads run side by side."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from toolcell import SessionKind, base_tools, tool
from toolcell.blocking import Supervisor


@tool
def factor(number: int) -> list[int]:
    """The prime factors of a number.

    Args:
        number: Above 1.
    """
    found: list[int] = []
    divisor = 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found


with tempfile.TemporaryDirectory() as project, Supervisor(tools=[*base_tools(), factor]) as supervisor:
    session = supervisor.open_session(SessionKind.MAIN, workspace=project)
    numbers = [1001, 1002, 1003, 1004]
    with ThreadPoolExecutor(4) as threads:
        calls = {number: threads.submit(session.call, "factor", {"number": number}) for number in numbers}
    lines = [f"{number} = {' * '.join(map(str, call.result().unwrap()))}" for number, call in calls.items()]
    written = session.call("write", {"path": "factors.txt", "content": "\n".join(lines) + "\n"})
    print(written.display)
    print(Path(project, "factors.txt").read_text(), end="")
