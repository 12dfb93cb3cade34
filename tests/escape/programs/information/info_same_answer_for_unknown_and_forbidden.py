"""What exists and is not granted is refused like what does not exist.

Source: I17
"""

from tests.escape.kit import Scene, call_number, frame_of, receive, send

EXPECT = True


def attack(scene: Scene) -> object:
    number = call_number()
    answers = []
    for index, name in enumerate(("memory.search", "memory.sparch")):
        send(frame_of(20, number, index + 1, name, {}))
        refusal = receive()[4]
        answers.append((refusal["kind"], refusal["message"].replace(name, "")))
    return answers[0] == answers[1]
