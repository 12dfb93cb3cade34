"""Which files run later: names that a call may not create or change, even where it may write.

Whoever plants one of them runs code outside of the sandbox, some time later, when a person or a program opens the
directory. This is the one policy: the kernel's rules, the audit after a call and the write handle all ask it.

A name is a pattern of path components that holds at any depth below a writable root, and for all that is below what it
matches. `*` stands for a part of a component, `**` for one or more components. Names are compared after NFKC, case
folding and without invisible characters, trailing dots and spaces: a host's file system may take them for the same.
Invisible are those of category Cf, which HFS+ leaves out, and those that Unicode calls Default_Ignorable_Code_Point,
which directories of ext4 and f2fs leave out that fold cases (fs/unicode in the kernel).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

GIT_POINTER = ".git"
"""The one name that a directory does not have: the repository itself is written to by every commit."""

_TABLE = {
    "points git at a repository elsewhere": GIT_POINTER,
    "git runs these programs, or is told by it which ones": """
        .git/hooks .git/config .git/config.worktree .git/commondir .git/worktrees/*/config.worktree
        .git/worktrees/*/commondir .git/modules/**/hooks .git/modules/**/config .git/modules/**/config.worktree
        .git/modules/**/commondir .gitconfig .config/git .githooks .husky lefthook.yml lefthook.yaml .lefthook.yml
        .lefthook.yaml .pre-commit-config.yaml .overcommit.yml""",
    "a shell, a terminal or a login reads it": """
        .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
        .kshrc .cshrc .tcshrc .login .envrc .inputrc .tmux.conf .screenrc .xinitrc .xprofile .xsession .xsessionrc
        .config/fish .config/direnv .config/autostart .config/systemd .config/environment.d""",
    "an editor runs what it says": """
        .vscode *.code-workspace .idea .fleet .zed .helix .vim .vimrc .gvimrc .exrc .nvimrc .nvim.lua .config/nvim
        .emacs .emacs.d .dir-locals.el .dir-locals-2.el .devcontainer .devcontainer.json .gitpod.yml .replit""",
    "an agent starts the servers and hooks that it names": """
        .mcp.json .claude .claude.json .cursor .codex .gemini .qwen .windsurf .continue .roo .kiro .junie .amazonq
        .opencode opencode.json opencode.jsonc .aider.conf.yml .clinerules/hooks .github/hooks .factory crush.json
        .crush.json toolcell.toml""",
    "a CI service runs it": """
        .github/workflows .github/actions .gitea/workflows .forgejo/workflows .gitlab-ci.yml .gitlab/ci .circleci
        .travis.yml .appveyor.yml appveyor.yml .cirrus.yml .drone.yml .woodpecker .woodpecker.yml .buildkite .teamcity
        .semaphore Jenkinsfile azure-pipelines.yml .azure-pipelines bitbucket-pipelines.yml""",
    "Python imports it by itself": """
        sitecustomize sitecustomize.* usercustomize usercustomize.* *.pth conftest.py pyvenv.cfg .pdbrc .pythonrc
        .pythonrc.py .config/matplotlib""",
    "a package manager, debugger or client runs what it says": """
        .npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.cjs .cargo/config .cargo/config.toml .ssh
        .gnupg .gdbinit .gdbearlyinit .lldbinit .psqlrc .sqliterc .irbrc .pryrc .Rprofile .ghci .iex.exs .ocamlinit
        .octaverc .perldb .psysh.php .latexmkrc .mailcap""",
}
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Default_Ignorable_Code_Point, as DerivedCoreProperties.txt has it from Unicode 12.1, the kernel's, to 17."""

REASONS: "Mapping[str, str]" = {name: reason for reason, names in _TABLE.items() for name in names.split()}
"""Every protected name, and why it is one."""

DEFAULT_PROTECTED: tuple[str, ...] = tuple(REASONS)


def protects(path: str, names: Iterable[str], *, directory: bool = False) -> str:
    """The name of `names` that protects `path`, relative to a writable root; "" where none does.

    `directory` says that the path is, or would be, a directory. It matters to the name `.git` alone.
    """
    return matcher(tuple(names)).name_of(path, directory=directory)


def protects_below(path: str, roots: Iterable[str], names: Iterable[str], *, directory: bool = False) -> str:
    """`protects` for an absolute path, judged below the innermost of the writable `roots` that hold it."""
    around = [root for root in roots if path.startswith(root.rstrip("/") + "/")]
    if not around:
        return ""
    return protects(path[len(max(around, key=len).rstrip("/")) + 1 :], names, directory=directory)


def lifted(names: Iterable[str], *lift: str) -> tuple[str, ...]:
    """`names` without those of `lift`. ValueError, with the near name, for one that is not among them."""
    left = list(names)
    for name in lift:
        if name not in left:
            from difflib import get_close_matches  # pages that no cell needs

            near = [each for each in left if protects(name, [each])] or get_close_matches(name, left, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(left) or 'none'}."
            raise ValueError(f"There is no protected name {name!r} to lift. {hint}")
        left.remove(name)
    return tuple(left)


def check(names: Iterable[str]) -> None:
    """Raise ValueError for a pattern that could never hold."""
    for name in names:
        if not _is_pattern(name):
            raise ValueError(
                f"is no pattern of names: {name!r}. Write path components such as '.git/hooks' or '*.pth'."
            )


@lru_cache(maxsize=1024)
def _is_pattern(name: str) -> bool:
    parts = name.split("/")
    return not any(part in ("", ".", "..") or "\0" in part for part in parts) and any(map(folded, parts))


def folded(name: str) -> str:
    """A path component as the most lenient file system would compare it."""
    if not name.isascii():
        from unicodedata import category, normalize

        visible = "".join(letter for letter in _IGNORABLE.sub("", name) if category(letter) != "Cf")  # CVE-2014-9390
        name = normalize("NFKC", normalize("NFKC", visible).casefold())
    return name.lower().rstrip(" .")


class Matcher:
    """The names of one profile, compiled. Use `matcher`, which keeps them."""

    __slots__ = ("_beginnings", "_begun", "_last", "_last_patterns", "_names", "_patterns", "_pointer")

    def __init__(self, names: tuple[str, ...]) -> None:
        self._pointer = GIT_POINTER in names
        self._names = [name for name in names if name != GIT_POINTER]
        any_of = "|".join(f"({_expression(name)})" for name in self._names)
        self._patterns = re.compile(f"(?:^|/)(?:{any_of})(?:/|$)" if any_of else "(?!)", re.DOTALL)
        begun: dict[str, str] = {}  # what a name begins with, to the first such name
        for name in self._names:
            parts = name.split("/")
            for count in range(1, len(parts)):
                begun.setdefault(_expression("/".join(parts[:count])), name)
        begun.pop(_expression(GIT_POINTER), None)  # has a name of its own
        self._begun = list(begun.values())
        beginnings = "|".join(f"({expression})" for expression in begun)
        self._beginnings = re.compile(f"(?:^|/)(?:{beginnings})$" if beginnings else "(?!)", re.DOTALL)
        last = {name.rpartition("/")[2] for name in names}
        self._last = frozenset(folded(part) for part in last if "*" not in part)
        globs = "|".join(_component(part) for part in last if "*" in part)
        self._last_patterns = re.compile(f"(?:{globs})$" if globs else "(?!)", re.DOTALL)

    def may_end_in(self, name: str) -> bool:
        """Whether a path that ends in this component can be protected by its last component. Quick, for walks."""
        name = name.lower() if name.isascii() and name[-1] not in " ." else folded(name)
        return name in self._last or self._last_patterns.match(name) is not None

    def name_of(self, path: str, *, directory: bool) -> str:
        """See `protects`."""
        return self._find(path, directory=directory)[0]

    def name_of_link(self, path: str) -> str:
        """The name that protects a path where a symbolic link is. A `.github` that is one may lead to workflows."""
        found = self._beginnings.search("/".join(folded(part) for part in path.split("/")))
        begun = self._begun[found.lastindex - 1] if found is not None and found.lastindex else ""
        return self.name_of(path, directory=False) or begun

    def leading(self, path: str, *, directory: bool) -> tuple[str, ...]:
        """The directories above a protected path that its name begins with, outermost first: `.git` of `.git/hooks`.

        Whoever may rename one of them brings another in its place.
        """
        _name, first, end = self._find(path, directory=directory)
        parts = path.split("/")
        return tuple("/".join(parts[:count]) for count in range(first + 1, end))

    def _find(self, path: str, *, directory: bool) -> tuple[str, int, int]:
        """The name, and which components match it: from, to (exclusive)."""
        parts = [folded(part) for part in path.split("/")]
        text = "/".join(parts)
        found = self._patterns.search(text)
        if found is not None:
            assert found.lastindex is not None
            start, end = found.span(found.lastindex)
            return self._names[found.lastindex - 1], text.count("/", 0, start), text.count("/", 0, end) + 1
        if self._pointer and parts[-1] == GIT_POINTER and not directory:
            return GIT_POINTER, len(parts) - 1, len(parts)
        return "", 0, 0


@lru_cache(maxsize=64)
def matcher(names: tuple[str, ...]) -> Matcher:
    """The compiled names."""
    return Matcher(names)


def _expression(name: str) -> str:
    return "/".join(".+" if part == "**" else _component(part) for part in name.split("/"))


def _component(part: str) -> str:
    return "[^/]*".join(re.escape(folded_part) for folded_part in _pieces(part))


def _pieces(part: str) -> list[str]:
    """The literal pieces around each `*`, folded; a dot before a `*` stays, for it does not end the name."""
    pieces = part.split("*")
    return [*(piece.lower() if piece.isascii() else folded(piece) for piece in pieces[:-1]), folded(pieces[-1])]
