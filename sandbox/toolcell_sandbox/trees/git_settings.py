"""Git's configuration files: a strict parser and a list of harmless keys.

The grammar is a subset of git-config(1)'s that every version of git reads in the same way. It has no continuation
lines, no comments after values, no control characters, no variables on the line of a section header, and no dots in a
section name. Text outside of the grammar is refused. Keys that are not on the list are refused too: too many keys name
programs that git runs, and each version adds some.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from . import walker

MAX_BYTES = 256 * 1024
KEY_CHARS = 64  # the most characters of a key in a text for a model
MAX_KEYS = 5
_BLANK = re.compile(r"[ \t]*(?:[#;].*)?")
_SECTION = re.compile(r'[ \t]*\[([A-Za-z0-9-]+)(?: +"((?:[^"\\]|\\["\\])*)")?\][ \t]*')
_VARIABLE = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=(.*))?")
_PLAIN = re.compile(r"""(?:[^"\\#;\t]|\\["\\nt])*""")
_QUOTED = re.compile(r"""[ \t]*"((?:[^"\\]|\\["\\nt])*)"[ \t]*""")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t"}
_SIZE = re.compile(r"-?[0-9]{1,9}[kKmMgG]?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:,=/+-]*")
_REFSPEC = re.compile(r"(?!-)[^\s:]*(?::[^\s:]*)?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES = frozenset(["https", "http", "ssh", "git", "git+ssh", "ssh+git", "file", "ftp", "ftps"])
_MODE = re.compile(r"06[046][04]")
_FILE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*")
_KEY_ID = re.compile(r"(?:0x)?[0-9A-Fa-f]{8,64}!?")
_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]+\]")  # of IPv6
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PIECE = re.compile(
    r"""(?:[#;][^\n]*+|\[[ \t]*+([^\]\s".]*+)(?:[^\]"\n]|"(?:[^"\\\n]|\\.)*+")*+\]"""
    r"""|([A-Za-z][A-Za-z0-9-]*+)[ \t]*(?:=((?:[^"\\\n#;]|\\[\s\S]|"(?:[^"\\\n]|\\[\s\S])*+"?)*+))?)"""
)
_BLANKS = re.compile(r"\s*+")
_LOOSE_ESCAPE = re.compile(r'\\\n|\\(.)|"')
_NAMING = ("core.hookspath", "core.worktree", "include.path", "includeif.path")
STRATEGIES = frozenset(["ort", "recursive", "resolve", "octopus", "ours", "subtree"])
"""Git's own strategies. For another one, git runs `git-merge-…` from PATH, or from the work tree if it has a `/`."""
_BOOLEANS = frozenset(["true", "false", "yes", "no", "on", "off", "1", "0", ""])


UNREADABLE = "it is not of the form that is known to be harmless"


class NotRead(Exception):
    """The text is outside of the grammar. The message names the line."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: its key as `git config --list` prints it, and its value; None without a `=`."""

    key: str
    value: str | None
    line: int = field(default=0, compare=False)  # from 1


def parse(raw: bytes) -> list[Variable]:
    """The variables of a file, in their order. NotRead for what the grammar does not cover."""
    if len(raw) > MAX_BYTES:
        raise NotRead(f"it has more than {MAX_BYTES:,} bytes")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise NotRead("it is not UTF-8") from None
    entries: list[Variable] = []
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if any(letter != "\t" and (letter < " " or letter == "\x7f" or letter == "\ufeff") for letter in line):
            raise NotRead(f"line {number} has a control character")
        if _BLANK.fullmatch(line):
            continue
        if (header := _SECTION.fullmatch(line)) is not None:
            name, sub = header[1].lower(), header[2]
            section = name if sub is None else f"{name}.{_unescaped(sub)}"
        elif section and (variable := _VARIABLE.fullmatch(line)) is not None:
            value = None if variable[2] is None else _value(variable[2], number)
            entries.append(Variable(f"{section}.{variable[1].lower()}", value, number))
        else:
            raise NotRead(f"line {number} is not of the plain form")
    return entries


def naming(raw: bytes) -> list[tuple[str, str]]:
    """The values that name further files, with their keys less the subsections, in the order of the file.

    This covers git's whole grammar, because a person may have written the file. What git does not read is passed over.
    """
    text, at, section = os.fsdecode(raw).removeprefix("\ufeff").replace("\r\n", "\n"), 0, ""
    named: list[tuple[str, str]] = []
    while (at := _next(text, at)) < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            at = text.find("\n", at) % (len(text) + 1)  # the end, if there is no further line
            continue
        at = piece.end()
        if piece[1] is not None:
            section = piece[1].lower()
        elif piece[3] and (key := f"{section}.{piece[2].lower()}") in _NAMING:
            value = _LOOSE_ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1] or ""), piece[3].strip())
            if value:
                named.append((key, os.path.expanduser(value)))
    return named


def _next(text: str, at: int) -> int:
    blank = _BLANKS.match(text, at)
    return blank.end() if blank is not None else at


def _value(text: str, number: int) -> str:
    quoted = _QUOTED.fullmatch(text)
    text = quoted[1] if quoted is not None else text.strip(" \t")
    if quoted is None and not _PLAIN.fullmatch(text):
        raise NotRead(f"the value in line {number} is not of the plain form")
    return _unescaped(text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), text)


def _shown(key: str) -> str:
    return repr(key if len(key) <= KEY_CHARS else f"{key[:KEY_CHARS]}…")


def objection(entries: Iterable[Variable], *, inside: Callable[[str], bool]) -> str:
    """The reason why the first harmful variable is refused; "" if all are harmless.

    `inside` says whether a path in the file lies in the workspace, as git resolves it.
    """
    for entry in entries:
        rule = _rule_of(entry.key)
        if rule is None:
            return f"it sets {_shown(entry.key)}, which is not among the settings that are known to be harmless"
        value = "true" if entry.value is None and rule is _boolean else entry.value
        if value is None or not (inside(value) if rule is _path else rule(value)):
            return f"the value of {_shown(entry.key)} is not among those that are known to be harmless"
    return ""


def change_objection(old: bytes, new: bytes, *, inside: Callable[[str], bool]) -> str:
    """The reason why a changed file may not replace the old one; "" if it may.

    Variables that are not known to be harmless must be the same in both files.
    """
    try:
        before, after = parse(old), parse(new)
    except NotRead as problem:
        return f"{UNREADABLE}: {problem}"
    kept = [entry for entry in before if objection([entry], inside=inside)]
    wrong = [entry for entry in after if objection([entry], inside=inside)]
    if kept == wrong:
        return ""
    new_ones = [entry for entry in wrong if entry not in kept]
    return objection(new_ones, inside=inside) if new_ones else "it changes settings that only a person may change"


def harmless_part(
    raw: bytes, *, inside: Callable[[str], bool], kept: Iterable[Variable] = ()
) -> tuple[bytes, tuple[str, ...]]:
    """The file without the lines of variables that are not harmless, and the keys in these lines. Raises NotRead as
    `parse` does.

    `kept` are such variables that may stay, each once, because a person set them.
    """
    may_stay, dropped = list(kept), list[Variable]()
    for entry in parse(raw):
        if not objection([entry], inside=inside):
            continue
        if entry in may_stay:
            may_stay.remove(entry)
        else:
            dropped.append(entry)
    lines = {entry.line for entry in dropped}
    rest = b"\n".join(line for number, line in enumerate(raw.split(b"\n"), 1) if number not in lines)
    return rest, tuple(dict.fromkeys(entry.key for entry in dropped))


def in_words(keys: tuple[str, ...]) -> str:
    """A text for a model about the removed settings."""
    return f"settings that are not known to be harmless: {keys_in_words(keys)}"


def keys_in_words(keys: tuple[str, ...]) -> str:
    """The first five of these keys, for a model."""
    more = f" and {len(keys) - MAX_KEYS:,} more" if len(keys) > MAX_KEYS else ""
    return f"{', '.join(map(_shown, keys[:MAX_KEYS]))}{more}"


def redirected(old: bytes, new: bytes) -> tuple[str, ...]:
    """The changed keys by which a fetch or a push may go elsewhere than it did with the old settings.

    A remote that is added, renamed or removed redirects nothing by itself, nor does a new branch that follows a remote
    that was there.
    """
    try:
        before, after = _by_key(parse(old)), _by_key(parse(new))
    except NotRead:
        return ()
    known = {value for name in _remotes(before) for value in _urls(before, name)}
    both, lost = _remotes(before) & _remotes(after), _remotes(before) - _remotes(after)

    def is_elsewhere(key: str, was: list[str], now: list[str]) -> bool:
        section, _, rest = key.partition(".")
        sub, _, name = rest.rpartition(".")
        if section == "remote" and sub:
            return sub in both or bool(lost and name in ("url", "pushurl") and not known.issuperset(now))
        if key == "remote.pushdefault" or (section == "branch" and name in ("remote", "pushremote")):
            if was and now:
                return _urls(before, was[-1]) != _urls(after, now[-1])
            return now[-1] != "." and not known.issuperset(_urls(after, now[-1])) if now else name != "remote"
        return section in ("branch", "submodule") and name in ("merge", "url") and bool(was and now)

    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return tuple(key for key in keys if is_elsewhere(key, before.get(key, []), after.get(key, [])))


def _by_key(entries: Iterable[Variable]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for entry in entries:
        values.setdefault(entry.key, []).append(entry.value or "")
    return values


def _remotes(settings: dict[str, list[str]]) -> set[str]:
    names = (key.removeprefix("remote.").rpartition(".")[0] for key in settings if key.startswith("remote."))
    return {name for name in names if name}


def _urls(settings: dict[str, list[str]], remote: str) -> list[str]:
    """The URLs of a remote; the name itself if there is no such remote, because git takes it as a URL."""
    urls = [value for key in ("url", "pushurl") for value in settings.get(f"remote.{remote}.{key}", [])]
    return urls or [remote]


def _boolean(value: str) -> bool:
    return value.lower() in _BOOLEANS


def _size(value: str) -> bool:
    return _SIZE.fullmatch(value) is not None


def _word(value: str) -> bool:
    return _WORD.fullmatch(value) is not None and "::" not in value


def _sort(value: str) -> bool:
    return _word(value.removeprefix("-"))


def _prose(value: str) -> bool:
    """Text with no control characters but tabs and line ends."""
    return not _CONTROL.search(value)


def _text(value: str) -> bool:
    return _prose(value) and "\n" not in value and not value.startswith("-")


def _shared(value: str) -> bool:
    """A mode that lets nobody write but the owner and the group."""
    return value.lower() in (*_BOOLEANS, "2", "umask", "group", "all", "world", "everybody") or bool(
        _MODE.fullmatch(value)
    )


def _strategies(value: str) -> bool:
    return STRATEGIES.issuperset(value.split())


def _update(value: str) -> bool:
    return value in ("checkout", "rebase", "merge", "none")


def _file(value: str) -> bool:
    """A path in the work tree."""
    return _FILE.fullmatch(value) is not None


def _key_id(value: str) -> bool:
    return _KEY_ID.fullmatch(value) is not None


def _ref_storage(value: str) -> bool:
    """A format. Git 2.55 also takes a URI, whose path it writes to."""
    return value in ("files", "reftable")


def _comment(value: str) -> bool:
    return value == "auto" or (len(value) == 1 and "!" <= value <= "~" and not value.isalnum())


def _refspec(value: str) -> bool:
    return value.isprintable() and _REFSPEC.fullmatch(value) is not None


def _url(value: str) -> bool:
    """A URL without a remote helper (`ext::…`, `any-scheme://`) that ssh cannot read as an option."""
    known = _ADDRESS.sub("", value)
    if not value.isprintable() or "::" in known or value.startswith("-") or "@-" in value or "://-" in value:
        return False
    scheme = _SCHEME.match(value)
    return scheme is None or scheme[1].lower() in _SCHEMES


def _path(value: str) -> bool:
    raise AssertionError("a path is the caller's to judge")


_Rule = Callable[[str], bool]


def _either(value: str) -> bool:
    return _boolean(value) or _word(value)


def _tags(value: str) -> bool:
    return value in ("--tags", "--no-tags")


def _rules(rule: _Rule, keys: str) -> dict[str, _Rule]:
    return dict.fromkeys(keys.split(), rule)


_RULES: dict[str, _Rule] = {
    **_rules(
        _boolean,
        """core.filemode core.bare core.ignorecase core.precomposeunicode core.symlinks
        core.quotepath core.trustctime core.sparsecheckout core.sparsecheckoutcone core.commitgraph
        core.multipackindex core.longpaths core.fscache core.preloadindex
        core.splitindex extensions.worktreeconfig extensions.preciousobjects extensions.relativeworktrees
        user.useconfigonly pull.ff-only push.followtags push.autosetupremote push.useforceifincludes
        fetch.prune fetch.prunetags fetch.writecommitgraph fetch.showforcedupdates fetch.fsckobjects
        merge.autostash rebase.autostash rebase.autosquash rebase.updaterefs rebase.stat rebase.forkpoint
        rerere.enabled rerere.autoupdate status.short status.branch status.aheadbehind status.showstash
        commit.verbose commit.status diff.mnemonicprefix diff.noprefix diff.suppressblankempty gc.autodetach
        maintenance.auto feature.manyfiles feature.experimental index.sparse receive.denynonfastforwards
        receive.denydeletes receive.fsckobjects receive.autogc receive.updateserverinfo
        receive.advertisepushoptions uploadpack.allowfilter uploadpack.allowtipsha1inwant
        uploadpack.allowreachablesha1inwant uploadpack.allowanysha1inwant transfer.fsckobjects
        worktree.guessremote checkout.guess submodule.recurse submodule.propagatebranches log.abbrevcommit
        log.follow log.mailmap log.showroot tag.forcesignannotated advice.* commit.gpgsign tag.gpgsign
        rebase.abbreviatecommands merge.renormalize merge.branchdesc fetch.all core.warnambiguousrefs am.keepcr
        pack.usebitmaps pack.usesparse repack.writebitmaps gui.gcwarning lfs.locksverify""",
    ),
    **_rules(
        _either,
        """core.logallrefupdates core.autocrlf core.safecrlf core.abbrev core.untrackedcache core.eol
        core.checkstat core.hidedotfiles core.notesref core.whitespace extensions.objectformat
        extensions.compatobjectformat init.defaultbranch init.defaultobjectformat
        pull.rebase pull.ff push.default push.recursesubmodules fetch.recursesubmodules
        fetch.negotiationalgorithm merge.ff merge.conflictstyle merge.renames merge.log merge.stat
        merge.directoryrenames diff.renames diff.algorithm diff.colormoved diff.colormovedws diff.submodule
        diff.ignoresubmodules diff.indentheuristic diff.wserrorhighlight rebase.missingcommitscheck
        status.showuntrackedfiles status.renames status.relativepaths status.submodulesummary commit.cleanup
        column.ui column.branch column.status color.ui color.branch color.diff color.status color.interactive
        log.date log.decorate receive.denycurrentbranch receive.denydeletecurrent branch.autosetupmerge
        branch.autosetuprebase grep.linenumber grep.extendedregexp grep.patterntype
        apply.whitespace apply.ignorewhitespace http.version push.gpgsign merge.suppressdest diff.dirstat
        fetch.output remotes.default rebase.backend submodule.alternatelocation submodule.alternateerrorstrategy
        core.fsync core.fsyncmethod maintenance.strategy notes.rewritemode index.threads i18n.commitencoding
        i18n.logoutputencoding pack.allowpackreuse""",
    ),
    **_rules(_ref_storage, "extensions.refstorage"),
    **_rules(_sort, "branch.sort tag.sort versionsort.suffix"),
    **_rules(_shared, "core.sharedrepository"),
    **_rules(_strategies, "pull.octopus pull.twohead"),
    **_rules(_comment, "core.commentchar"),
    **_rules(_file, "blame.ignorerevsfile"),
    **_rules(_key_id, "user.signingkey"),
    **_rules(_text, "gc.pruneexpire gc.reflogexpire gc.reflogexpireunreachable gc.worktreepruneexpire log.graphcolors"),
    **_rules(_text, "notes.displayref notes.rewriteref log.excludedecoration"),
    **_rules(
        _size,
        """core.repositoryformatversion core.compression core.loosecompression core.bigfilethreshold
        core.deltabasecachelimit core.packedgitlimit core.packedgitwindowsize gc.auto gc.autopacklimit index.version
        pack.threads pack.window pack.depth pack.windowmemory pack.compression pack.packsizelimit
        diff.renamelimit diff.context diff.interhunkcontext merge.renamelimit merge.verbosity fetch.parallel
        submodule.fetchjobs checkout.workers http.postbuffer http.lowspeedlimit http.lowspeedtime
        fetch.unpacklimit receive.unpacklimit transfer.unpacklimit receive.maxinputsize diff.statgraphwidth
        commitgraph.generationversion pack.deltacachesize""",
    ),
    **_rules(_text, "user.name user.email author.name author.email committer.name committer.email"),
    **_rules(_path, "core.worktree"),
    **_rules(_text, "submodule.active"),
    **_rules(_size, "lfs.repositoryformatversion"),
    # with a subsection of any name
    **_rules(
        _url,
        """remote.pushdefault checkout.defaultremote remote.*.url remote.*.pushurl
        submodule.*.url branch.*.remote branch.*.pushremote""",
    ),
    **_rules(_refspec, "remote.*.fetch remote.*.push branch.*.merge"),
    **_rules(
        _boolean,
        """remote.*.mirror remote.*.prune remote.*.prunetags remote.*.skipdefaultupdate remote.*.skipfetchall
        submodule.*.active submodule.*.shallow""",
    ),
    **_rules(
        _either,
        """remote.*.followremotehead branch.*.rebase submodule.*.branch
        submodule.*.ignore submodule.*.fetchrecursesubmodules""",
    ),
    **_rules(_prose, "branch.*.description"),
    **_rules(_text, "branch.*.gh-merge-base branch.*.vscode-merge-base branch.*.github-pr-owner-number color.*.*"),
    **_rules(_update, "submodule.*.update"),
    **_rules(_word, "lfs.*.access"),
    **_rules(_tags, "remote.*.tagopt"),
    **_rules(_word, "remote.*.gh-resolved"),
}


def _rule_of(key: str) -> _Rule | None:
    section, _, rest = key.partition(".")
    sub, dot, name = rest.rpartition(".")
    if not dot:
        return _RULES.get(key) or _RULES.get(f"{section}.*" if section == "advice" else "")
    if not sub.isprintable() or sub.startswith("-") or "::" in sub:
        return None
    if section in ("advice", "color"):
        return _RULES["color.*.*"] if section == "color" else None
    return _RULES.get(f"{section}.*.{name}")


def is_inside(base: str, root: str) -> Callable[[str], bool]:
    """A check whether a path, relative to the directory `base`, lies in the directory `root`. Both are absolute. A path
    through a symbolic link does not count as inside, because the link may change later."""

    def inside(path: str) -> bool:
        if not path or "\0" in path or path.startswith("~"):
            return False
        whole = os.path.normpath(os.path.join(base, path))
        try:
            real = walker.real_path(whole)
        except OSError:
            return False
        return real == whole and (whole == root or whole.startswith(root.rstrip("/") + "/"))

    return inside
