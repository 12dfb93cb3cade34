"""The policy of protected names: which paths they hold for, and that a profile only ever adds to them."""

import os
from pathlib import Path

import pytest

from toolcell_sandbox import CellProfile
from toolcell_sandbox.trees.protected import (
    CLASSES,
    DEFAULT_PROTECTED,
    PROJECT_CODE,
    REASONS,
    folded,
    lifted,
    matcher,
    protects,
    protects_below,
)

EVERYWHERE = tuple(name.removeprefix("/") for name in (*DEFAULT_PROTECTED, *PROJECT_CODE))
"""All names of the table, with no regard to their reach."""


def example(name: str) -> str:
    """A path that a name holds for."""
    return name.removeprefix("/").replace("**", "deep/er").replace("*", "some")


@pytest.mark.parametrize("name", [*DEFAULT_PROTECTED, *PROJECT_CODE])
def test_each_name_holds_as_far_as_it_reaches_in_any_case_and_for_what_is_below(name: str) -> None:
    names = (*DEFAULT_PROTECTED, *PROJECT_CODE)
    for path in (example(name), example(name).upper(), f"{example(name)}. ."):
        assert protects(path, names) == name, path
        assert matcher(names).may_end_in(path.rpartition("/")[2])
        assert protects(f"a/b/{path}", names) == ("" if name.startswith("/") else name)
        assert matcher(names).name_of(f"a/b/{path}", directory=False, starts=(0, 2)) == name
    assert REASONS[name] and any(name in names for names in CLASSES.values())
    if name != ".git":
        assert protects(f"{example(name)}/below/it", names) == name
        assert protects(example(name), names, directory=True) == name
    assert not protects(example(name), lifted(names, name))
    assert not protects(f"x{example(name)}", names) or name.startswith(("*", "/*"))


def test_the_projects_own_code_is_protected_on_demand_alone() -> None:
    for path in (
        "conftest.py",
        "a/x.pth",
        "pyvenv.cfg",
        ".github/workflows/ci.yml",
        ".npmrc",
        ".pre-commit-config.yaml",
    ):
        assert protects(path, DEFAULT_PROTECTED) == ""
        assert protects(path, CellProfile(protected=("project_code",)).protected)


def test_what_is_a_repository_is_seen_by_what_is_in_it(tmp_path: Path) -> None:
    for made in ("w/bare/objects", "w/bare/refs", "w/p/.git/modules/m/objects", "w/p/.git/modules/m/refs", "w/q/.git"):
        (tmp_path / made).mkdir(parents=True)
    root = str(tmp_path / "w")
    for path, name in {
        "bare/config": ".git/config", "bare/HOOKS/x": ".git/hooks", "p/.git/modules/m/config": ".git/config",
        "q/.vscode/tasks.json": "/.vscode", "p/.config/nvim/x": "/.config/nvim", "p/a/.vscode/x": "", "r/.vscode": "",
        "bare/refs/config": "", ".vscode": "/.vscode", "bare": "", "p/.git/modules/m": "",
        "bare/rebase-merge/git-rebase-todo": ".git/rebase-merge",
    }.items():  # fmt: skip
        assert protects_below(f"{root}/{path}", [root], DEFAULT_PROTECTED, listed=os.listdir) == name, path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("ｃonftest.py", "conftest.py"),
        ("conﬁg/.ﬁsh", ""),
        (".config/ﬁsh", ".config/fish"),
        (".g\u200cit/config", ".git/config"),
        (".vſcode", ".vscode"),
        ("sub/.Git/HOOKS/pre-commit", ".git/hooks"),
        (".git/modules/a/modules/b/config", ""),  # where it is a part of a repository, a look tells
        ("\udcff.pth", "*.pth"),
        (".git/x/.vscode", ".vscode"),
        (".ocamlinit", ".ocamlinit"),
        ("a/.octaverc", ".octaverc"),
        (".perldb", ".perldb"),
        (".psysh.php", ".psysh.php"),
        (".clinerules/hooks/TaskStart", ".clinerules/hooks"),
        (".github/hooks/session.json", ".github/hooks"),
        (".factory/mcp.json", ".factory"),
        ("crush.json", "crush.json"),
        (".crush.json", ".crush.json"),
    ],
)
def test_look_alikes_are_held_for_the_same(path: str, name: str) -> None:
    assert protects(path, EVERYWHERE) == name


IGNORED = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180D, 0x180E, 0x180F, 0x200B, 0x200F, 0x202A),
    *(0x202E, 0x2060, 0x2065, 0x206F, 0x3164, 0xFE00, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF0, 0xFFF8, 0x1BCA0, 0x1BCA3),
    *(0x1D173, 0x1D17A, 0xE0000, 0xE0001, 0xE007F, 0xE01EF, 0xE0FFF),
]
"""Ends of the ranges of Default_Ignorable_Code_Point, which ext4 and f2fs leave out where they fold cases."""


@pytest.mark.parametrize("code", IGNORED, ids=lambda code: f"U+{code:04X}")
def test_code_points_that_a_file_system_may_leave_out_change_no_name(code: int) -> None:
    for path in (
        "con{}ftest.py",
        "{}conftest.py",
        "conftest.py{}",
        ".git/hoo{}ks/x",
        ".g{}it",
        "a/x.p{}th",
        "C{}ONFTEST.py",
    ):
        assert protects(path.format(chr(code)), EVERYWHERE) == protects(path.format(""), EVERYWHERE) != ""


def test_no_fold_leaves_or_makes_a_code_point_that_may_be_left_out() -> None:
    ignored = {chr(code) for code in IGNORED}
    for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000)):
        assert not ignored & set(folded(f"a{chr(code)}b")), hex(code)


def test_what_is_visible_is_kept() -> None:
    for name in (
        "conf\u00e9test.py",
        "conf\u0301test.py",
        "\u1100conftest.py",
        "conftest\ufffc.py",
        "co\u2028nftest.py",
    ):
        assert protects(name, EVERYWHERE) == "", name


@pytest.mark.parametrize(
    "path",
    [
        "Makefile", "package.json", "setup.py", "pyproject.toml", "src/main.py", "README.md", ".gitignore",
        ".gitattributes", ".gitmodules", ".editorconfig", "git/hooks", ".git/objects/ab", ".git/HEAD", ".git/index",
        ".git/config.lock", ".github/CODEOWNERS", ".github", ".clinerules/style.md", "factory",
        ".git/modules/a/HEAD", "x.git/config", "config", "hooks", "test_conftest.py",
        "conftest.pyi", "AGENTS.md", "CLAUDE.md", ".env", "...", ".git/modules/config",
        "worktrees/a/commondir",
    ],
)  # fmt: skip
def test_ordinary_work_is_not_protected(path: str) -> None:
    assert protects(path, EVERYWHERE) == ""


def test_a_git_file_is_protected_and_a_git_directory_is_not() -> None:
    assert protects("a/.git", EVERYWHERE) == ".git"
    assert protects("a/.git", EVERYWHERE, directory=True) == ""


@pytest.mark.parametrize("path", [".github", "a/.Config", ".cargo", ".yarn"])
def test_no_link_may_stand_where_a_name_begins(path: str) -> None:
    assert matcher(EVERYWHERE).name_of_link(path) and not protects(path, EVERYWHERE)


def test_the_directories_that_a_name_begins_with_are_known() -> None:
    names = matcher(EVERYWHERE)
    assert names.leading("a/.git/hooks/x", directory=False) == ("a/.git",)
    assert names.leading("a/.config/fish/x", directory=False) == ("a/.config",)
    assert names.leading("a/.vscode", directory=True) == () == names.leading("a/b", directory=False)


def test_an_absolute_path_is_judged_below_the_innermost_root() -> None:
    roots = ["/w", "/w/.vscode"]
    assert protects_below("/w/.vscode/tasks.json", roots, EVERYWHERE) == ""
    assert protects_below("/w/.vscode/.mcp.json", roots, EVERYWHERE) == ".mcp.json"
    assert protects_below("/w/a/.vscode/tasks.json", roots, EVERYWHERE) == ".vscode"
    assert protects_below("/elsewhere/.vscode", roots, EVERYWHERE) == ""


def test_a_path_made_to_be_slow_is_judged_in_no_time() -> None:
    assert protects(".git/modules/" * 300 + "x", EVERYWHERE) == ""


def test_a_profile_lifts_by_name_and_tells_the_near_one() -> None:
    profile = CellProfile.for_kind("main")
    assert profile.protected == DEFAULT_PROTECTED and profile.lifting("conftest.py") == profile
    profile = profile.narrow(protected=["project_code"])
    assert profile.protected == (*DEFAULT_PROTECTED, *PROJECT_CODE)
    assert profile.lifting("project_code").protected == DEFAULT_PROTECTED
    without = profile.lifting("conftest.py", ".git/hooks", ".vscode", "/.mcp.json")
    assert set(profile.protected) - set(without.protected) == {"conftest.py", ".git/hooks", "/.vscode", "/.mcp.json"}
    assert not without.is_narrower_than(profile) and profile.is_narrower_than(without)
    for wrong, hint in (
        ("conftest", "Did you mean 'conftest.py'?"),
        ("sitecustomize.py", "Did you mean 'sitecustomize.*'?"),
        (".vscode/tasks.json", "Did you mean '/.vscode'?"),
    ):
        with pytest.raises(ValueError) as caught:
            profile.lifting(wrong)
        assert hint in str(caught.value)
    with pytest.raises(ValueError, match="Known: none"):
        CellProfile(protected=()).lifting(".envrc")


def test_narrowing_adds_names_and_they_cross_the_wire() -> None:
    profile = CellProfile.for_kind("main").lifting(".envrc")
    narrow = profile.narrow(protected=["Makefile"])
    assert narrow.protected == (*profile.protected, "Makefile") and narrow.is_narrower_than(profile)
    assert CellProfile.from_wire(narrow.to_wire()) == narrow


@pytest.mark.parametrize(
    "name", ["", "/", "//etc", "/a/b/c/d", "/a/**/b", "a//b", "../x", "a/..", "a\0", ".", "..", "...", ". ."]
)
def test_a_pattern_that_could_never_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"Profile.protected is no pattern"):
        CellProfile(protected=(name,))


def test_a_profile_tells_what_it_protects() -> None:
    told = " ".join(CellProfile.for_kind("main").explain().split())
    assert (
        "made or changed nowhere, for they run later: .git (a link, or a file that leads out of the workspace)" in told
    )
    assert "), .git/hooks (but git's own samples), .git/config (but harmless settings)," in told
    assert ", .envrc, " in told
    assert "no name: it may write" in CellProfile.for_kind("main").replace(protected=()).explain()
    assert "protected" not in CellProfile.for_kind("worker").explain()


NAMES = """
    *.code-workspace *.pth .Rprofile .aider.conf.yml .amazonq .appveyor.yml .azure-pipelines .bash_aliases
    .bash_login .bash_logout .bash_profile .bashrc .buildkite .cargo/config .cargo/config.toml .circleci
    .cirrus.yml .claude .claude.json .codex .config/autostart .config/direnv .config/environment.d .config/fish
    .config/git .config/matplotlib .config/nvim .config/systemd .continue .cshrc .cursor .devcontainer
    .devcontainer.json .dir-locals-2.el .dir-locals.el .drone.yml .emacs .emacs.d .envrc .exrc .fleet
    .forgejo/workflows .gdbearlyinit .gdbinit .gemini .ghci .git .git/commondir .git/config .git/config.worktree
    .git/hooks .git/rebase-apply .git/rebase-merge .git/sequencer
    .gitconfig
    .gitea/workflows .githooks .github/actions .github/workflows .gitlab-ci.yml .gitlab/ci .gitpod.yml .gnupg
    .gvimrc .helix .husky .idea .iex.exs .inputrc .irbrc .junie .kiro .kshrc .latexmkrc .lefthook.yaml
    .lefthook.yml .lldbinit .login .mailcap .mcp.json .npmrc .nvim.lua .nvimrc .opencode .overcommit.yml .pdbrc
    .pnpmfile.cjs .pre-commit-config.yaml .profile .pryrc .psqlrc .pythonrc .pythonrc.py .qwen .replit .roo
    .screenrc .semaphore .sqliterc .ssh .tcshrc .teamcity .tmux.conf .travis.yml .vim .vimrc .vscode .windsurf
    .woodpecker .woodpecker.yml .xinitrc .xprofile .xsession .xsessionrc .yarn/plugins .yarn/releases .yarnrc
    .yarnrc.yml .zed .zlogin .zlogout .zprofile .zshenv .zshrc Jenkinsfile appveyor.yml azure-pipelines.yml
    bitbucket-pipelines.yml conftest.py lefthook.yaml lefthook.yml opencode.json opencode.jsonc pyvenv.cfg
    sitecustomize sitecustomize.* toolcell.toml usercustomize usercustomize.*
    .agents .bundle/config .git/lazygit.yml .jj/repo/config.toml .jj/workspace-config.toml .lazygit.yml
    .lefthook-local.json .lefthook-local.toml .lefthook-local.yaml .lefthook-local.yml .lefthook.json .lefthook.toml
    .mise.local.toml .mise.toml .mise/config.toml .mvn .pnp.cjs .pnp.loader.mjs .rtx.toml .sl/config .sl/sharedpath
    .tool-versions _darcs/prefs/defaults bunfig.toml lefthook-local.json lefthook-local.toml lefthook-local.yaml
    lefthook-local.yml lefthook.json lefthook.toml mise.local.toml mise.toml mise/config.toml rust-toolchain
    rust-toolchain.toml
"""
"""All names, once more: one that goes missing from the policy is missed here."""


def test_no_name_has_gone_missing() -> None:
    assert set(NAMES.split()) <= set(EVERYWHERE)


def test_a_link_in_a_git_directory_is_protected_and_a_file_there_is_not(tmp_path: Path) -> None:
    for made in ("w/r/.git", "w/bare/objects", "w/bare/refs", "w/bare/HEAD", "w/part/objects", "w/part/refs"):
        (tmp_path / made).mkdir(parents=True)
    root = str(tmp_path / "w")
    for path, name in {
        "r/.git/logs/HEAD": ".git/**", "r/.GIT/x": ".git/**", "bare/logs/HEAD": ".git/**", "part/logs/HEAD": "",
        "r/logs/HEAD": "", "r/.git": ".git", "bare/hooks": ".git/hooks", "new/.git/x/y": ".git/**",
    }.items():  # fmt: skip
        assert protects_below(f"{root}/{path}", [root], DEFAULT_PROTECTED, link=True, listed=os.listdir) == name, path
        assert protects_below(f"{root}/{path}", [root], (), link=True, listed=os.listdir) == ""
        found = protects_below(f"{root}/{path}", [root], DEFAULT_PROTECTED, listed=os.listdir)
        assert found == ("" if name == ".git/**" else name), path
    assert matcher(lifted(DEFAULT_PROTECTED, ".git")).name_of_link(".git/logs/HEAD") == ""


def test_a_link_that_points_git_elsewhere_is_protected_as_the_file_is() -> None:
    assert matcher(EVERYWHERE).name_of_link("sub/.git") == ".git"
    assert matcher(EVERYWHERE).name_of_link("sub/git") == ""
