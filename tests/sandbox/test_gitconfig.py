"""Git's settings: what our grammar accepts, git itself reads in the same way, and no dangerous key is harmless."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcell_sandbox.trees.git_settings import (
    NotRead,
    Variable,
    change_objection,
    harmless_part,
    is_inside,
    objection,
    parse,
    redirected,
)

USUAL = b"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\tworktree = ../../../sub
# a comment
[user]
\tname = "Ada ; # L."
\temail = ada@example.org
[remote "origin"]
\turl = git@example.org:a/b.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "feature/x.y"]
\tremote = origin
\tmerge = refs/heads/feature/x.y
[submodule "sub"]
\turl = /w/origin
\tactive
"""


def inside(path: str) -> bool:
    return path in (".", "../../../sub")


def read_by_git(tmp_path: Path, raw: bytes) -> list[Variable] | None:
    file = tmp_path / "config"
    file.write_bytes(raw)
    done = subprocess.run(["git", "config", "--list", "-z", "-f", str(file)], capture_output=True, check=False)
    if done.returncode != 0:
        return None
    entries: list[Variable] = []
    for each in done.stdout.decode(errors="surrogateescape").split("\0")[:-1]:
        key, newline, value = each.partition("\n")
        entries.append(Variable(key, value if newline else None))
    return entries


def test_the_settings_of_everyday_repositories_are_harmless(tmp_path: Path) -> None:
    entries = parse(USUAL)
    assert objection(entries, inside=inside) == ""
    assert entries == read_by_git(tmp_path, USUAL)


NEVER = [
    *("core.fsmonitor=true", "core.hooksPath=h", "core.sshCommand=x", "core.pager=x", "core.editor=x", "alias.st=!x"),
    *("core.worktree=/etc", "core.worktree=~/x", "core.gitProxy=x", "core.askPass=x", "core.attributesFile=x"),
    *("core.alternateRefsCommand=x", "filter.a.clean=x", "filter.a.process=x", "diff.a.command=x", "diff.a.textconv=x"),
    *("diff.external=x", "diff.tool=x", "merge.a.driver=x", "merge.tool=x", "mergetool.a.cmd=x", "include.path=x"),
    *("includeIf.onbranch:a.path=x", "credential.helper=!x", "credential.https://a.helper=x", "gpg.program=x"),
    *("gpg.ssh.program=x", "url.a.insteadOf=b", "protocol.ext.allow=always", "protocol.allow=always"),
    *("remote.a.uploadpack=x", "remote.a.receivepack=x", "remote.a.vcs=x", "remote.a.proxy=x", "http.proxy=x"),
    *("submodule.a.update=!x", "sequence.editor=x", "pager.log=x", "trailer.a.command=x", "interactive.diffFilter=x"),
    *(
        "uploadpack.packObjectsHook=x",
        "web.browser=x",
        "browser.a.cmd=x",
        "sendemail.smtpServer=/x",
        "gpg.format=x509",
        "branch.a.mergeOptions=-s x/y",
        "pull.octopus=x/y",
        "pull.twohead=ort x/y",
        "rebase.instructionFormat=%s%nexec x",
        "submodule.a.update=!true",
        "core.fsmonitor=false",
        "core.sharedRepository=0666",
        "core.sharedRepository=0602",
        "commit.template=/etc/shadow",
        "user.signingKey=/etc/x",
        "core.commentChar=x",
        "lfs.url=https://example.org",
        "advice.a.b=true",
        "user.name=-x",
        "user.name=a\nb",
    ),
    *("remote.a.url=ext::sh -c x", "remote.a.url=-x", "remote.a.url=helper://x", "remote.a.pushurl=fd::3"),
    *("remote.a.url=ssh://a@-oProxyCommand=x/y", "remote.a.url=a@-oProxyCommand=x:y", "remote.a.url=ext::[::1]"),
    *("remote.a.url=ssh://-oProxyCommand=x/y", "branch.a.remote=ext::x", "branch.a.pushRemote=a://b"),
    *("extensions.partialClone=origin", "remote.a.promisor=true", "remote.a.partialCloneFilter=blob:none"),
    *("extensions.refStorage=files:///x", "extensions.refStorage=reftable:///x", "extensions.refStorage=file"),
    "core.preferSymlinkRefs=true",
    *("remote.pushDefault=ext::x", "submodule.a.url=ext::x", "remote.-a.url=x", "http.sslVerify=false", "new.key=1"),
]


@pytest.mark.parametrize("setting", NEVER)
def test_what_makes_git_run_a_program_is_never_harmless(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "config"
    key, _, value = setting.partition("=")
    subprocess.run(["git", "config", "-f", str(file), key, value], check=True)
    said = objection(parse(file.read_bytes()), inside=inside)
    assert key.lower() in said.lower() or "value" in said


HARMLESS = [
    *("extensions.refStorage=files", "extensions.refStorage=reftable"),
    *("commit.gpgSign=true", "tag.gpgSign=yes", "push.gpgSign=if-asked", "user.signingKey=0xABCDEF0123456789"),
    *("core.sharedRepository=2", "core.sharedRepository=group", "core.sharedRepository=0660"),
    *("user.name=Ada\tL.", "user.name=Ada\u3000L.", "user.name=\U0001f469\u200d\U0001f4bb", "pull.octopus=octopus"),
    *('branch.a.description=Why:\n\n- "it" # so; \\\n\tthere\n', "remote.a.url=ssh://[2001:db8::1]:22/x"),
    *(
        "remote.a.url=[::1]:x",
        "submodule.a.update=rebase",
        "maintenance.strategy=incremental",
        "core.commentChar=;",
        "core.commentChar=auto",
    ),
    *("branch.sort=-committerdate", "color.status.changed=red bold", "notes.displayRef=refs/notes/*", "fetch.all=1"),
    *("gc.pruneExpire=2 weeks ago", "merge.renormalize=true", "pack.useBitmaps=on", "fetch.unpackLimit=1"),
    *("blame.ignoreRevsFile=.git-blame-ignore-revs", "lfs.https://a/b.access=basic", "branch.a.gh-merge-base=main"),
]


@pytest.mark.parametrize("setting", HARMLESS)
def test_what_ordinary_work_writes_is_harmless_and_read_as_git_reads_it(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "config"
    key, _, value = setting.partition("=")
    subprocess.run(["git", "config", "-f", str(file), key, value], check=True)
    entries = parse(file.read_bytes())
    assert objection(entries, inside=inside) == "" and entries == read_by_git(tmp_path, file.read_bytes())
    assert entries[0].value == value


@pytest.mark.parametrize(
    "raw",
    [
        b"[core]\n\tbare = fal\\\nse\n",  # a continuation
        b"[core]\n\tbare = a#b\n",
        b"[core] bare = true\n",
        b"[a.b]\n\tc = d\n",
        b"[core]\r\n\tbare = true\r\n",
        b"\xef\xbb\xbf[core]\n",
        b"[core]\n\tbare = \x00\n",
        b"[core]\n\tbare = \xff\n",
        b'[core]\n\tname = "a\n',
        b'[core]\n\tname = "a" "b"\n',
        b'[core]\n\tname = "a\\bb"\n',
        b"[core]\n\tname = a\tb\n",
        b'[remote "a\\b"]\n\turl = x\n',
        b"bare = true\n",
        b"[core\n\tbare = true\n",
        b"#" * (256 * 1024 + 1),
    ],
)
def test_what_the_grammar_does_not_cover_is_refused(raw: bytes) -> None:
    with pytest.raises(NotRead):
        parse(raw)


def test_a_value_has_no_control_character() -> None:
    for value in ("a\x1bb", "a\x9bb", "a\rb"):
        assert objection([Variable("user.name", value)], inside=inside)
        assert objection([Variable("branch.a.description", value)], inside=inside)


def test_a_key_is_told_escaped_and_bounded() -> None:
    said = objection(parse(f'[x "a\u202e{"y" * 500}"]\n\tz = 1\n'.encode()), inside=inside)
    assert said.isprintable() and "\\u202e" in said and len(said) < 200


PIECES = st.sampled_from(
    [
        *(
            "[core]",
            "[Core]",
            '[remote "a"]',
            '[remote "a.B\\"c\\\\"]',
            "[a.b]",
            "[core] ",
            "[",
            "]",
            '"',
            "\\",
            "#",
            ";",
        ),
        *(
            "\n",
            "\n",
            "\n\t",
            " ",
            "\t",
            "=",
            " = ",
            "bare",
            "fsmonitor",
            "hooksPath",
            "url",
            "x",
            "true",
            "\\\n",
            "\\n",
        ),
        *("\r\n", '"a b"', "include", "path", "alias", "é", "\u2028", "\x0b", "\x7f", "."),
    ]
)
FILES = st.lists(PIECES, max_size=24).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=FILES, head=st.sampled_from(["", "[core]\n\t", '[remote "a"]\n\turl = ']))
def test_git_reads_what_is_accepted_in_the_same_way(tmp_path: Path, text: str, head: str) -> None:
    raw = (head + text).encode()
    try:
        entries = parse(raw)
    except NotRead:
        return
    assert entries == read_by_git(tmp_path, raw)


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES, sub=st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=8))
def test_what_git_writes_is_read_in_the_same_way_or_refused(tmp_path: Path, value: str, sub: str) -> None:
    file = tmp_path / "written"
    file.unlink(missing_ok=True)
    done = subprocess.run(["git", "config", "-f", str(file), f"remote.{sub}.url", value], check=False)
    if done.returncode != 0:
        return
    try:
        entries = parse(file.read_bytes())
    except NotRead:
        assert not (value.isprintable() and sub.isprintable()) or "\t" in value
        return
    assert entries == [Variable(f"remote.{sub}.url", value)]


def test_a_change_keeps_what_a_person_has_set_and_adds_only_what_is_harmless() -> None:
    old = USUAL + b'[alias]\n\tst = status\n[filter "lfs"]\n\tclean = git-lfs clean\n'
    for new, why in [
        (old + b'[remote "b"]\n\turl = https://example.org/b\n', ""),
        (old + b"[core]\n\tfsmonitor = ./x\n", "fsmonitor"),
        (old.replace(b"st = status", b"st = !x"), "alias.st"),
        (old.replace(b"\tst = status\n", b""), "only a person"),
        (old + b"\tx = \\\n", "plain form"),
    ]:
        said = change_objection(old, new, inside=inside)
        assert said == "" if not why else why in said, new


REMOTES = b"""[remote "origin"]
\turl = https://example.org/a
\tfetch = +refs/heads/*:refs/remotes/origin/*
[remote "up"]
\turl = https://example.org/b
\tpushurl = https://example.org/b2
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[branch "topic"]
\tremote = origin
\tpushRemote = up
[submodule "m"]
\turl = https://example.org/m
[remote]
\tpushDefault = origin
"""


@pytest.mark.parametrize(
    ("commands", "keys"),
    [
        ("config remote.origin.url x", ["remote.origin.url"]),
        ("remote set-url --add origin x", ["remote.origin.url"]),
        ("config remote.origin.pushurl x", ["remote.origin.pushurl"]),
        ("config remote.origin.push main:evil", ["remote.origin.push"]),
        ("config remote.origin.mirror true", ["remote.origin.mirror"]),
        ("config remote.origin.fetch +refs/*:refs/*", ["remote.origin.fetch"]),
        ("config --unset remote.up.pushurl", ["remote.up.pushurl"]),
        ("config remote.pushDefault up", ["remote.pushdefault"]),
        ("config remote.pushDefault https://example.org/evil", ["remote.pushdefault"]),
        ("config --unset remote.pushDefault", ["remote.pushdefault"]),
        ("config branch.main.pushRemote https://example.org/evil", ["branch.main.pushremote"]),
        ("config branch.main.remote up", ["branch.main.remote"]),
        ("config --unset branch.topic.pushRemote", ["branch.topic.pushremote"]),
        ("config branch.main.merge refs/heads/evil", ["branch.main.merge"]),
        ("config submodule.m.url x", ["submodule.m.url"]),
        ("config branch.new.remote x", ["branch.new.remote"]),
        ("remote add evil x; config branch.main.remote evil", ["branch.main.remote"]),
        ("remote remove origin; remote add evil x", ["remote.evil.url"]),
        ("remote rename origin o; remote add origin x", ["remote.origin.url"]),
        ("remote add new x", []),
        ("remote rename origin o", []),
        ("remote remove up", ["branch.topic.pushremote"]),
        ("config branch.new.remote origin; config branch.new.merge refs/heads/new", []),
        ("config branch.new.remote .", []),
        ("config --remove-section branch.main", []),
        ("config user.name Ada; config submodule.n.url x", []),
    ],
)
def test_a_change_by_which_a_push_or_a_fetch_goes_elsewhere_is_told(
    tmp_path: Path, commands: str, keys: list[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    file = tmp_path / ".git/config"
    old = file.read_bytes() + REMOTES
    file.write_bytes(old)
    for command in commands.split("; "):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    new = file.read_bytes()
    assert set(keys) <= set(redirected(old, new)) and bool(keys) == bool(redirected(old, new))
    assert redirected(old, old) == redirected(new, new) == ()


def test_a_path_is_inside_only_if_no_link_leads_there(tmp_path: Path) -> None:
    root = tmp_path / "w"
    (root / "a/.git").mkdir(parents=True)
    (root / "link").symlink_to("a")
    for path, is_in in {
        "..": True, "../../b": True, "../..": True, "../../..": False, "../../../w2": False, "../../link": False,
        "/etc": False, "~/x": False, "": False, str(root): True,
    }.items():  # fmt: skip
        assert is_inside(str(root / "a/.git"), str(root))(path) is is_in, path


LINES = ["[core]", "[user]", '[remote "x"]', "\tbare = false", "\tfsmonitor = x", "\tname = A", "\turl = ext::x", "# x"]


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_what_is_left_of_settings_is_harmless_and_all_that_was(lines: list[str]) -> None:
    raw = "\n".join(lines).encode()
    try:
        entries = parse(raw)
    except NotRead:
        return
    rest, keys = harmless_part(raw, inside=inside)
    assert parse(rest) == [entry for entry in entries if not objection([entry], inside=inside)]
    assert set(keys) == {entry.key for entry in entries if objection([entry], inside=inside)}


def test_what_a_person_has_set_stays_once() -> None:
    raw = b"[alias]\n\tst = status\n\tst = status\n\tco = checkout\n[user]\n\tname = Ada\n"
    rest, keys = harmless_part(raw, inside=inside, kept=[Variable("alias.st", "status")])
    assert rest == b"[alias]\n\tst = status\n[user]\n\tname = Ada\n" and keys == ("alias.st", "alias.co")
