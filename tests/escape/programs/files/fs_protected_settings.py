"""With WRITE: settings that make git run something, in repositories of every shape, and pointers that lead there.

Source: F31; F33; git-config(1); safe.bareRepository
"""

import os

from tests.escape.kit import Scene, Told

EXPECT = Told("and 3 more")
GRANTS = "read write"
RUNS = "[core]\n\tfsmonitor = ./evil\n"


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def attack(scene: Scene) -> object:
    at = scene.workspace
    for repository in ("bare", "plain/.git", "plain/.git/modules/m", "common"):
        for name in ("objects", "refs"):
            os.makedirs(f"{at}/{repository}/{name}")
        if repository != "common":
            write(f"{at}/{repository}/HEAD", "ref: refs/heads/main\n")
        write(f"{at}/{repository}/config", RUNS)
    write(f"{at}/bare/config.worktree", '[include]\n\tpath = "evil"\n')
    write(f"{at}/bare/commondir", "../common\n")
    os.mkdir(f"{at}/wt")
    write(f"{at}/wt/.git", f"gitdir: {scene.outside}/repository\n")
    write(f"{at}/evil", RUNS)
    os.symlink("evil", f"{at}/plain/.git/config.worktree")
    return "planted"
