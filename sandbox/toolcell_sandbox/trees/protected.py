"""Protected names: files that run later, which a call may not create or change, even where it may write.

A planted file with such a name runs code outside of the sandbox later, when a person or a program works in the
directory. This module is the one policy: mounts, the audit after a call and the write handle all ask it.

There are two classes. Files that *run by themselves* are protected by default: git, shells, editors, agents and direnv
run them as soon as somebody works there. The *project's own code* (`conftest.py`, CI workflows) runs when somebody
tests, builds or pushes the project. A profile protects it on demand, by the word `project_code` among its names.

A name is a pattern of path components. It protects what it matches, and everything below. It has one of two reaches:
any depth below a writable root; or, with a leading `/`, only the root itself and the root of each repository below it.
`*` matches a part of a component, `**` one or more components. The rule: a name holds at any depth if its program reads
it while somebody works in a directory above or changes into the directory (git, direnv). It holds in the roots alone if
a person must open that very directory, or start a program in it (an editor, an agent, a debugger).

Git follows a link in its own directory and writes to the target, with text that a commit chooses. So where `.git` is
protected, everything in a git directory that is neither a regular file nor a directory is protected too.

Names are compared after NFKC normalisation and case folding, without invisible characters, trailing dots and trailing
spaces, because a host's file system may treat such names as equal. Invisible characters are those of category Cf, which
HFS+ ignores, and those with the property Default_Ignorable_Code_Point, which ext4 and f2fs ignore in directories that
fold cases (fs/unicode in the kernel).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

GIT_POINTER = ".git"
"""The one name that protects files only, not directories: every commit writes to the directory `.git`."""

GIT_ODD = ".git/**"
"""Stands for the entries of a git directory, at any depth, that are neither regular files nor directories. It is not in
the table: it holds where `.git` is protected."""

_RUNS_BY_ITSELF = {
    "it points git at a repository elsewhere": GIT_POINTER,
    "git runs these programs": ".git/hooks",
    "git is told by it which programs to run": ".git/config .git/config.worktree .gitconfig .config/git",
    "git takes its settings from where it points": ".git/commondir",
    "git runs what it says when a stopped rebase, cherry-pick or am goes on": """
        .git/rebase-merge .git/rebase-apply .git/sequencer""",
    "lazygit is told by it which programs to run": ".lazygit.yml .git/lazygit.yml",
    "Mercurial is told by it which programs to run": ".hg/hgrc .hg/hgrc-not-shared .hg/sharedpath",
    "Sapling is told by it which programs to run": ".sl/config .sl/sharedpath",
    "Jujutsu is told by it which programs to run": ".jj/repo/config.toml .jj/workspace-config.toml",
    "Darcs is told by it which programs to run": "_darcs/prefs/defaults",
    "a shell runs it on entering the directory": ".envrc .autoenv .autoenv.zsh",
    "a version manager takes programs from where it says, and runs its hooks": """
        .tool-versions mise.toml .mise.toml mise.local.toml .mise.local.toml .mise/config.toml mise/config.toml
        .rtx.toml""",
    "a shell, a terminal or a login reads it": """
        /.bashrc /.bash_profile /.bash_login /.bash_logout /.bash_aliases /.profile /.zshrc /.zshenv /.zprofile /.zlogin
        /.zlogout /.kshrc /.cshrc /.tcshrc /.login /.inputrc /.tmux.conf /.screenrc /.xinitrc /.xprofile /.xsession
        /.xsessionrc /.config/fish /.config/direnv /.config/autostart /.config/systemd /.config/environment.d /.ssh
        /.gnupg /.mailcap""",
    "an editor runs what it says": """
        /.vscode /*.code-workspace /.idea /.fleet /.zed /.helix /.vim /.vimrc /.gvimrc /.exrc /.nvimrc /.nvim.lua
        /.config/nvim /.emacs /.emacs.d /.dir-locals.el /.dir-locals-2.el /.devcontainer /.devcontainer.json
        /.gitpod.yml /.replit""",
    "an agent starts the servers and hooks that it names": """
        /.mcp.json /.claude /.claude.json /.cursor /.codex /.gemini /.qwen /.windsurf /.continue /.roo /.kiro /.junie
        /.amazonq /.opencode /.agents /opencode.json /opencode.jsonc /.aider.conf.yml /.clinerules/hooks /.github/hooks
        /.factory /crush.json /.crush.json /toolcell.toml""",
    "a debugger, a prompt or a client that is started there runs it": """
        /.gdbinit /.gdbearlyinit /.lldbinit /.pdbrc /.pythonrc /.pythonrc.py /.psqlrc /.sqliterc /.irbrc /.pryrc
        /.Rprofile /.RData /.Renviron /.ghci /.iex.exs /.ocamlinit /.octaverc /.perldb /.psysh.php /.latexmkrc
        /.config/matplotlib""",
}
_PROJECT_CODE = {
    "a hook of git that a person has installed runs what it says": """
        .githooks .husky lefthook.yml lefthook.yaml lefthook.toml lefthook.json .lefthook.yml .lefthook.yaml
        .lefthook.toml .lefthook.json lefthook-local.yml lefthook-local.yaml lefthook-local.toml lefthook-local.json
        .lefthook-local.yml .lefthook-local.yaml .lefthook-local.toml .lefthook-local.json .pre-commit-config.yaml
        .overcommit.yml""",
    "a CI service runs it": """
        .github/workflows .github/actions .gitea/workflows .forgejo/workflows .gitlab-ci.yml .gitlab/ci .circleci
        .travis.yml .appveyor.yml appveyor.yml .cirrus.yml .drone.yml .woodpecker .woodpecker.yml .buildkite .teamcity
        .semaphore Jenkinsfile azure-pipelines.yml .azure-pipelines bitbucket-pipelines.yml""",
    "Python imports it by itself": """
        sitecustomize sitecustomize.* usercustomize usercustomize.* *.pth conftest.py pyvenv.cfg""",
    "a package manager runs what it says": """
        .npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .cargo/config .cargo/config.toml
        bunfig.toml .bundle/config .mvn""",
    "a runtime or a compiler is loaded from where it says": """
        .pnp.cjs .pnp.loader.mjs rust-toolchain rust-toolchain.toml""",
}
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Default_Ignorable_Code_Point of DerivedCoreProperties.txt, from Unicode 12.1 (the kernel's) to 17."""

REASONS: "Mapping[str, str]" = {
    name: reason
    for table in (_RUNS_BY_ITSELF, _PROJECT_CODE)
    for reason, names in table.items()
    for name in names.split()
} | {GIT_ODD: "git reads and writes through it, because it is neither a file nor a directory"}
"""Every name of the table, with its reason."""

DEFAULT_PROTECTED: tuple[str, ...] = tuple(name for names in _RUNS_BY_ITSELF.values() for name in names.split())
"""The names of files that run by themselves."""

PROJECT_CODE: tuple[str, ...] = tuple(name for names in _PROJECT_CODE.values() for name in names.split())
"""The names of the project's own code, which a profile protects on demand."""

CLASSES: "Mapping[str, tuple[str, ...]]" = {"runs_by_itself": DEFAULT_PROTECTED, "project_code": PROJECT_CODE}
"""The names of each class, by the word that stands for them."""

GIT_STATES: "Mapping[str, str]" = {part: f".git/{part}" for part in ("rebase-merge", "rebase-apply", "sequencer")}
"""The directories in which git keeps a stopped operation: part to name, as in `GIT_PARTS`. They come and go with
ordinary work, so a mount protects one only if its content would run something."""

GIT_DIRECTORIES: "Mapping[str, str]" = {"hooks": ".git/hooks", **GIT_STATES}
"""The protected directories of a repository."""

GIT_PARTS: "Mapping[str, str]" = {
    **GIT_DIRECTORIES,
    **{part: f".git/{part}" for part in ("config", "config.worktree", "commondir", "lazygit.yml")},
}
"""The protected parts of a repository, to the name that protects each. They count at any path of the repository."""

REPOSITORY_MARKS = frozenset(["objects", "refs", "commondir", "head", "worktrees", GIT_POINTER])
"""The folded entries that mark a repository or the root of a work tree."""
ANCHORED_PARTS = 3
"""The most components of a name with a leading `/`."""


def is_repository(entries: "Container[str]") -> bool:
    """Whether git may use a directory with these folded entries as a repository: a whole one, the common directory of
    another one, or one whose common directory is elsewhere (gitrepository-layout(5))."""
    return "commondir" in entries or ("objects" in entries and "refs" in entries)


def is_git_directory(name: str, entries: "Container[str]") -> bool:
    """Whether git uses the directory with this name and these folded entries as its own: it is called `.git`, or is a
    repository with a HEAD or with work trees, which have a HEAD each. Stricter than `is_repository`, because a project
    with directories `objects` and `refs` may have links anywhere."""
    return folded(name) == GIT_POINTER or (is_repository(entries) and ("head" in entries or "worktrees" in entries))


def reason_of(name: str) -> str:
    """The reason why a name is protected."""
    return REASONS.get(name, "the profile protects it")


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once, with the word of a class replaced by the names of the class."""
    return tuple(dict.fromkeys(each for name in names for each in CLASSES.get(name, (name,))))


def protects(path: str, names: Iterable[str], *, directory: bool = False) -> str:
    """The name of `names` that protects `path`, which is relative to a writable root; "" if none does.

    `directory` says that the path is, or would be, a directory; only the name `.git` depends on that. This function
    does not look at the tree, so it knows repositories below the root only by the name `.git`.
    """
    return matcher(tuple(names)).name_of(path, directory=directory)


def protects_below(
    path: str,
    roots: Iterable[str],
    names: Iterable[str],
    *,
    directory: bool = False,
    link: bool = False,
    listed: "Callable[[str], list[str]] | None" = None,
) -> str:
    """`protects` for an absolute path, relative to the innermost of the writable `roots` above it. `link` says that the
    path is, or would be, a symbolic link.

    `listed` returns the entries of a directory, to detect repositories, and raises OSError if there is none.
    """
    around = [root for root in roots if path.startswith(root.rstrip("/") + "/")]
    if not around:
        return ""
    root = max(around, key=len).rstrip("/")
    parts = path[len(root) + 1 :].split("/")
    matching = matcher(tuple(names))

    def name_of(path: str, start: int) -> str:
        if link:
            return matching.name_of_link(path, (start,))
        return matching.name_of(path, directory=directory, starts=(start,))

    found = name_of("/".join(parts), 0)
    if found or listed is None:
        return found
    for count in range(len(parts) - 1, -1, -1):
        try:
            entries = {folded(entry) for entry in listed("/".join([root, *parts[:count]]))} & REPOSITORY_MARKS
        except OSError:
            continue  # it does not exist yet
        if is_repository(entries):
            found = found or matching.name_of("/".join([GIT_POINTER, *parts[count:]]), directory=directory)
        if GIT_POINTER in entries:
            found = found or name_of("/".join(parts), count)
        if link and matching.has_pointer and is_git_directory("", entries):
            found = found or GIT_ODD
    return found


def lifted(names: Iterable[str], *lift: str) -> tuple[str, ...]:
    """`names` without those of `lift`. An entry of `lift` may be the word of a class, and may lack its leading `/`.

    Raises ValueError, with the near name, for an entry that is not in `names`. Names of the project's own code need not
    be in `names`.
    """
    left = list(names)
    for name in expanded(lift):
        which = name if name in left else f"/{name}"
        if which in left:
            left.remove(which)
        elif name not in PROJECT_CODE:
            from difflib import get_close_matches  # not needed in cells; its pages would be

            near = [each for each in left if protects(name, [each])] or get_close_matches(name, left, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(left) or 'none'}."
            raise ValueError(f"There is no protected name {name!r} to lift. {hint}")
    return tuple(left)


def check(names: Iterable[str]) -> None:
    """Raise ValueError for a pattern that can never match."""
    for name in names:
        if not _is_pattern(name):
            raise ValueError(
                f"is no pattern of names: {name!r}. Write path components such as '.git/hooks', '*.pth' or '/.vscode'; "
                f"with a leading '/', at most {ANCHORED_PARTS}."
            )


@lru_cache(maxsize=1024)
def _is_pattern(name: str) -> bool:
    parts = name.removeprefix("/").split("/")
    if name.startswith("/") and (len(parts) > ANCHORED_PARTS or "**" in parts):
        return False
    return not any(part in ("", ".", "..") or "\0" in part for part in parts) and any(map(folded, parts))


def folded(name: str) -> str:
    """The form of a path component in which the most lenient file system compares it."""
    if not name.isascii():
        from unicodedata import category, normalize

        visible = "".join(letter for letter in _IGNORABLE.sub("", name) if category(letter) != "Cf")  # CVE-2014-9390
        name = normalize("NFKC", normalize("NFKC", visible).casefold())
    return name.lower().rstrip(" .")


class Matcher:
    """The compiled names of one profile. Use `matcher`, which caches them.

    `starts` are the indices of the components at which roots begin in a path: 0 for the writable root, and one for each
    repository above the path.
    """

    __slots__ = ("_anywhere", "_at_roots", "_last", "_last_patterns", "has_pointer")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.has_pointer = GIT_POINTER in names
        self._anywhere = _CompiledNames(
            [name for name in names if name != GIT_POINTER and not name.startswith("/")], "(?:^|/)"
        )
        self._at_roots = _CompiledNames([name for name in names if name.startswith("/")], "^")
        last = {name.rpartition("/")[2] for name in names}
        self._last = frozenset(folded(part) for part in last if "*" not in part)
        globs = "|".join(_component(part) for part in last if "*" in part)
        self._last_patterns = re.compile(f"(?:{globs})$" if globs else "(?!)", re.DOTALL)

    def may_end_in(self, name: str) -> bool:
        """Whether the last component can make a path protected. Fast, for walks."""
        name = quick(name)
        return name in self._last or self._last_patterns.match(name) is not None

    def name_of(self, path: str, *, directory: bool, starts: tuple[int, ...] = (0,)) -> str:
        """See `protects`."""
        return self._find(path, directory=directory, starts=starts)[0]

    def name_of_link(self, path: str, starts: tuple[int, ...] = (0,)) -> str:
        """The name that protects a symbolic link at this path: a link `.github`, for example, may lead to workflows."""
        parts = [folded(part) for part in path.split("/")]
        begun = self._anywhere.begun("/".join(parts))
        for start in starts:
            begun = begun or self._at_roots.begun("/".join(parts[start:]))
        odd = GIT_ODD if self.has_pointer and GIT_POINTER in parts[:-1] else ""
        return self.name_of(path, directory=False, starts=starts) or begun or odd

    def leading(self, path: str, *, directory: bool, starts: tuple[int, ...] = (0,)) -> tuple[str, ...]:
        """The directories above a protected path that are part of its name, outermost first: `.git` for `.git/hooks`.

        They are pinned, because a call that renames one could put another in its place.
        """
        _name, first, end = self._find(path, directory=directory, starts=starts)
        parts = path.split("/")
        return tuple("/".join(parts[:count]) for count in range(first + 1, end))

    def _find(self, path: str, *, directory: bool, starts: tuple[int, ...]) -> tuple[str, int, int]:
        """The name, and the range of components that match it: start and end (exclusive)."""
        parts = [folded(part) for part in path.split("/")]
        found = self._anywhere.find("/".join(parts))
        if found[0]:
            return found
        for start in starts:
            name, first, end = self._at_roots.find("/".join(parts[start:]))
            if name:
                return name, start + first, start + end
        if self.has_pointer and parts[-1] == GIT_POINTER and not directory:
            return GIT_POINTER, len(parts) - 1, len(parts)
        return "", 0, 0


class _CompiledNames:
    """The names of one reach, as regular expressions of whole names and of their leading components."""

    __slots__ = ("_beginnings", "_begun", "_names", "_patterns")

    def __init__(self, names: list[str], anchor: str) -> None:
        self._names = names
        any_of = "|".join(f"({_expression(name)})" for name in names)
        self._patterns = re.compile(f"{anchor}(?:{any_of})(?:/|$)" if any_of else "(?!)", re.DOTALL)
        begun: dict[str, str] = {}  # leading components to the first name that has them
        for name in names:
            parts = name.removeprefix("/").split("/")
            for count in range(1, len(parts)):
                begun.setdefault(_expression("/".join(parts[:count])), name)
        begun.pop(_expression(GIT_POINTER), None)  # has a name of its own
        self._begun = list(begun.values())
        beginnings = "|".join(f"({expression})" for expression in begun)
        self._beginnings = re.compile(f"{anchor}(?:{beginnings})$" if beginnings else "(?!)", re.DOTALL)

    def find(self, text: str) -> tuple[str, int, int]:
        found = self._patterns.search(text)
        if found is None:
            return "", 0, 0
        assert found.lastindex is not None
        start, end = found.span(found.lastindex)
        return self._names[found.lastindex - 1], text.count("/", 0, start), text.count("/", 0, end) + 1

    def begun(self, text: str) -> str:
        found = self._beginnings.search(text)
        return self._begun[found.lastindex - 1] if found is not None and found.lastindex else ""


def quick(name: str) -> str:
    """`folded`, fast, for walks."""
    return name.lower() if name.isascii() and name[-1] not in " ." else folded(name)


@lru_cache(maxsize=64)
def matcher(names: tuple[str, ...]) -> Matcher:
    """The compiled names."""
    return Matcher(names)


def _expression(name: str) -> str:
    return "/".join(".+" if part == "**" else _component(part) for part in name.removeprefix("/").split("/"))


def _component(part: str) -> str:
    return "[^/]*".join(re.escape(folded_part) for folded_part in _pieces(part))


def _pieces(part: str) -> list[str]:
    """The folded literal pieces around each `*`. A dot before a `*` is kept, because it is no trailing dot."""
    pieces = part.split("*")
    return [*(piece.lower() if piece.isascii() else folded(piece) for piece in pieces[:-1]), folded(pieces[-1])]
