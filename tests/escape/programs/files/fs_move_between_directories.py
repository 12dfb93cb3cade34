"""With WRITE: rename, link, replace and exchange across directories, which a cell may do where it writes.

Source: own; git, package managers and editors do it all day
"""

import os

from tests.escape.kit import NO_NAMESPACES, Scene, all_of, asked, tried

EXPECT = "ok"
VARIES = {NO_NAMESPACES: {"workspace": "ok", "scratch": "EACCES"}}
GRANTS = "read write"


def attack(scene: Scene) -> object:
    return all_of(workspace=moves(f"{scene.workspace}/moves"), scratch=moves("/tmp/moves"))


def moves(at: str) -> object:
    made = all_of(**{part: tried(os.makedirs, f"{at}/{part}") for part in ("a/inner", "b/other")})
    if made != "ok":
        return made
    for name in ("a/renamed", "a/linked", "a/new", "b/old"):
        os.close(os.open(f"{at}/{name}", os.O_CREAT | os.O_WRONLY, 0o600))
    answers = all_of(
        rename=tried(os.rename, f"{at}/a/renamed", f"{at}/b/renamed"),
        link=tried(os.link, f"{at}/a/linked", f"{at}/b/linked"),
        replace=tried(os.replace, f"{at}/a/new", f"{at}/b/old"),
        exchange=asked("renameat2", -100, f"{at}/a/inner", -100, f"{at}/b/other", 2),
        directory=tried(os.rename, f"{at}/a/inner", f"{at}/inner"),
    )
    for name in ("b/renamed", "a/linked", "b/linked", "b/old"):
        if os.path.exists(f"{at}/{name}"):
            os.unlink(f"{at}/{name}")
    return answers
