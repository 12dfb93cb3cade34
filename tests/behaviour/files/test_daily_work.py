"""A coding agent's daily work in a Main session with default settings: git, venv, npm, pip and archives work as
usual.
"""

import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolcell import Limits, Profile, RecentJournal, Session, Supervisor, base_tools

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

WHO = "-c user.name=a -c user.email=b@c -c protocol.file.allow=always -c init.defaultBranch=main"
PATIENT = Profile.for_kind("main").replace(limits=Limits(wall_s=120))
"""The default, but for the time: the machine of the tests may be busy."""
Sh = Callable[[str], Awaitable[Any]]


@pytest.fixture
def quarantine(tmp_path: Path) -> Path:
    return tmp_path / "quarantine"


@pytest.fixture
async def supervisor(supervise: Any, quarantine: Path) -> AsyncIterator[Supervisor]:
    async with supervise(base_tools(), quarantine=quarantine, journal=RecentJournal()) as entered:
        yield entered


@pytest.fixture
async def session(supervisor: Supervisor, workspace: Path) -> Session:
    return await supervisor.open_session("main", workspace=workspace, profile=PATIENT)


@pytest.fixture
def sh(session: Session) -> Sh:
    """Run a command, which must succeed without notices. Return its output."""

    async def run(command: str) -> str:
        result = await session.call("shell", {"command": f'set -e; git() {{ command git {WHO} "$@"; }}; {command}'})
        output: Any = result.unwrap()
        assert output["exit_code"] == 0, f"{command}: {output}"
        assert {notice.kind for notice in result.notices} <= {"changed_files"}, (command, result.notices)
        return str(output["stdout"])

    return run


def git(directory: Path, *arguments: str) -> str:
    """Run git on the host, as a person does."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *WHO.split(), *arguments], cwd=directory, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    return done.stdout


async def test_a_repository_is_made_used_and_removed_over_many_calls(sh: Sh, workspace: Path, quarantine: Path) -> None:
    await sh("git init -q r && cd r && echo text > file && git add . && git commit -qm first")
    await sh("cd r && git remote add origin https://example.org/r.git && git config user.name 'Ada; # L.'")
    assert git(workspace / "r", "config", "--local", "user.name") == "Ada; # L.\n"
    await sh("git clone -q r c && cd c && git checkout -qb topic && echo more >> file && git commit -qam second")
    await sh("cd c && git push -q origin topic && git branch -u origin/topic && git fetch -q && git pull -q")
    await sh("cd r && git worktree add -q ../wt topic && cd ../wt && git log --format=%s && git status --short")
    await sh("cd r && git submodule add -q $PWD/../c sub && git commit -qm module && git submodule update --init")
    await sh("cd r/sub && git commit -q --allow-empty -m in && cd .. && git config -f .gitmodules x.y z")
    await sh("git init -q --bare b.git && cd r && git push -q ../b.git HEAD:refs/heads/main && git gc -q")
    await sh("cd r && git worktree remove ../wt && git worktree prune && git stash list")
    await sh("mv r r2 && cd r2 && git status --short && git config core.autocrlf input")
    await sh("rm -rf c b.git r2 && test ! -e r2")
    assert not quarantine.exists()


async def test_a_repository_that_was_there_is_worked_in(sh: Sh, workspace: Path, quarantine: Path) -> None:
    git(workspace, "init", "-q")
    git(workspace, "config", "alias.st", "status")
    (workspace / "file").write_text("text")
    git(workspace, "add", "file")
    git(workspace, "commit", "-qm", "first")
    await sh("git config user.name Ada && git remote add origin https://example.org/r.git && git st --short")
    await sh("git remote rename origin up && git branch topic && git config branch.topic.merge refs/heads/main")
    await sh("git worktree add -q wt topic && git submodule -q add $PWD sub && git commit -qm module")
    told = git(workspace, "config", "--list", "--local")
    for line in ("user.name=Ada", "remote.up.url=https://example.org/r.git", "alias.st=status", "submodule.sub.active"):
        assert line in told
    assert not quarantine.exists() and not list(workspace.glob(".git/*.lock"))


@pytest.mark.parametrize("there", [True, False], ids=["there", "made"])
async def test_what_stops_on_a_conflict_goes_on_in_later_calls(
    sh: Sh, workspace: Path, quarantine: Path, there: bool
) -> None:
    if there:
        git(workspace, "init", "-q", "r")
    else:
        await sh("git init -q r")
    commit = "git add . && git commit -q -m"
    await sh(
        f"cd r && echo 1 > f && {commit} one && git checkout -qb topic && echo 2 > f && {commit} two && touch g && "
        f"{commit} three && git checkout -q main && echo 3 > f && {commit} other && touch h && {commit} more"
    )
    goes_on = "cd r && echo 4 > f && git add f && GIT_EDITOR=true git"
    await sh("cd r && ! git rebase topic")
    await sh(
        "cd r && test -s .git/rebase-merge/git-rebase-todo && GIT_SEQUENCE_EDITOR='sed -i 1i#x' git rebase --edit-todo"
    )
    await sh(f"{goes_on} rebase --continue && test $(git rev-list --count HEAD) = 5")
    await sh("cd r && git reset -q --hard ORIG_HEAD && ! git rebase --apply topic")
    await sh(f"{goes_on} rebase --continue && git reset -q --hard HEAD~2 && ! git cherry-pick main@{{1}}~3 main@{{1}}")
    await sh(
        "cd r && git cherry-pick --abort && git branch topic2 && GIT_EDITOR='echo text >' git branch --edit-description"
    )
    assert not quarantine.exists()


async def test_a_virtual_environment_works_and_installs_the_project(sh: Sh, workspace: Path, quarantine: Path) -> None:
    (workspace / "pyproject.toml").write_text(
        '[project]\nname = "thing"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        'backend-path = ["."]\n'
    )
    (workspace / "thing.py").write_text("number = 5\n")
    (workspace / "backend.py").write_text(BACKEND)
    await sh("python3 -m venv .venv")
    await sh(".venv/bin/pip install -q --no-index --no-build-isolation --disable-pip-version-check -e .")
    assert await sh("cd /tmp && $OLDPWD/.venv/bin/python -c 'import thing; print(thing.number)'") == "5\n"
    assert not quarantine.exists()


BACKEND = """
import os, zipfile
def get_requires_for_build_editable(config_settings=None):
    return []
def prepare_metadata_for_build_editable(directory, config_settings=None):
    os.makedirs(f"{directory}/thing-1.dist-info", exist_ok=True)
    open(f"{directory}/thing-1.dist-info/METADATA", "w").write("Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
    return "thing-1.dist-info"
def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.writestr("__editable__.thing.pth", os.getcwd() + "\\n")
        wheel.writestr("thing-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: thing\\nVersion: 1\\n")
        wheel.writestr("thing-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("thing-1.dist-info/RECORD", "")
    return name
"""
PACKAGED = """
    .github/workflows/ci.yml .github/actions/x/action.yml conftest.py tests/conftest.py setup.cfg x.pth .travis.yml
    .pre-commit-config.yaml .gitlab-ci.yml .npmrc .yarnrc.yml .circleci/config.yml .readthedocs.yaml appveyor.yml
    .husky/pre-commit .git_archival.txt .gitattributes .vscode/settings.json .idea/x.xml .editorconfig .mcp.json
    sitecustomize.py .cargo/config.toml
"""


@pytest.mark.parametrize("field", ["readable", "writable"])
async def test_git_works_in_a_linked_work_tree_if_the_profile_names_the_repository(
    supervisor: Supervisor, tmp_path: Path, field: str
) -> None:
    repository, linked = tmp_path / "project", tmp_path / "linked"
    git(tmp_path, "init", "-q", str(repository))
    git(repository, "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "worktree", "add", "-q", str(linked))
    profile = PATIENT.replace(**{field: (str(repository / ".git"),)})
    for kind, opened in (("without", PATIENT), (field, profile)):
        session = await supervisor.open_session("main", workspace=linked, profile=opened)
        command = f"touch new && git add new && git {WHO} commit -qm second; git log --format=%s"
        output: Any = (await session.call("shell", {"command": command})).unwrap()
        said = {"without": "", "readable": "first\n", "writable": "second\nfirst\n"}[kind]
        assert (output["stdout"], output["exit_code"]) == (said, 0 if said else 128), output


async def test_archives_are_unpacked_whole(sh: Sh, workspace: Path, quarantine: Path) -> None:
    with tarfile.open(workspace / "thing-1.tar.gz", "w:gz") as archive:
        for path in PACKAGED.split():
            archive.addfile(tarfile.TarInfo(f"thing-1/{path}"), io.BytesIO())
    await sh("tar xzf thing-1.tar.gz")
    assert len([path for path in (workspace / "thing-1").rglob("*") if path.is_file()]) == len(PACKAGED.split())
    await sh("rm -rf thing-1")
    assert not quarantine.exists()


async def test_npm_installs_packages_with_all_that_they_ship(sh: Sh, workspace: Path, quarantine: Path) -> None:
    for number in range(9):
        package = workspace / f"src/p{number}"
        for path in PACKAGED.split():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text("")
        (package / "package.json").write_text(json.dumps({"name": f"p{number}", "version": "1.0.0"}))
    wanted = {f"p{number}": f"file:src/p{number}" for number in range(9)}
    (workspace / "package.json").write_text(json.dumps({"name": "w", "version": "1.0.0", "dependencies": wanted}))
    await sh(
        "npm install --offline --no-audit --no-fund --install-links --cache /tmp/c >&2 "
        "&& test -f node_modules/p8/conftest.py"
    )
    assert (workspace / "node_modules/p3/.vscode/settings.json").exists() and not quarantine.exists()


async def test_java_compiles_and_runs_a_program(sh: Sh, workspace: Path) -> None:
    (workspace / "A.java").write_text(
        "public class A { public static void main(String[] a) { System.out.println(7); } }"
    )
    small = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m"
    assert (await sh(f"JAVA_TOOL_OPTIONS='{small}' javac A.java 2>&1 && java {small} A")).strip().endswith("7")
