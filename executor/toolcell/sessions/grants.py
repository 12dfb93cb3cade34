"""What a session and a call may do: the grants, the profile of a child session, and the profile of a call's cell.

`grants_for` is the only function that computes the grants of a call, before anything is sent. `confine` makes of them
the `CellProfile` that the kernel enforces.
"""

import glob
import os
import site
import sys
import sysconfig
from collections.abc import Set
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import toolcell_sandbox
import toolcell_tools
from toolcell.rules import hosts, pages
from toolcell.rules.profile import CHANGES, EXCEPTIONS, Profile
from toolcell.sessions.written_places import WrittenPlaces
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.network import HostNetwork, Network, NoNetwork, ProxyNetwork, common
from toolcell_sandbox.profile import QUARANTINED, UNCHECKED, CellProfile, is_below
from toolcell_tools.capability import CHANGING, KIND_GRANTS, Capability, SessionKind
from toolcell_tools.result import SandboxSummary


@dataclass(frozen=True, slots=True)
class Grants:
    """`given` determines the cell, the kernel's rules and the broker's table. If anything is `missing`, the call does
    not run.
    """

    given: frozenset[Capability]
    missing: frozenset[Capability]


def grants_for(
    session: Set[Capability], needs: Set[Capability], uses: Set[Capability], *, mutates: bool = True
) -> Grants:
    """The session's grants ∩ the tool's needs and uses. A need that the session lacks is missing; a use is not.

    A call that must not change anything has no use that could.
    """
    if not mutates:
        uses -= CHANGING
    return _grants(frozenset(session), frozenset(needs), frozenset(uses))


@lru_cache(maxsize=1024)  # many sessions have few combinations, and share the results
def _grants(session: frozenset[Capability], needs: frozenset[Capability], uses: frozenset[Capability]) -> Grants:
    return Grants(given=session & (needs | uses), missing=needs - session)


def session_grants(kind: SessionKind, profile: Profile, parent: Set[Capability] | None) -> frozenset[Capability]:
    """The grants of a session: those of its kind that its profile and its parent also have. The channel's level "none"
    grants no channel."""
    names = profile.grants - {Capability.CHANNEL} if profile.channel.level == "none" else profile.grants
    return _session_grants(kind, names, None if parent is None else frozenset(parent))


@lru_cache(maxsize=1024)
def _session_grants(
    kind: SessionKind, names: frozenset[str], parent: frozenset[Capability] | None
) -> frozenset[Capability]:
    grants = frozenset(KIND_GRANTS[kind] & {Capability(name) for name in names})
    return grants if parent is None else grants & parent


def resolved(profile: Profile, written: WrittenPlaces, workspace: str) -> Profile:
    """The profile with resolved paths. Called before the session's first cell, which could replace a path by a link.
    Raises UsageError for a link that a cell of another session may have made.
    """
    if not (profile.readable or profile.writable):
        return profile.replace(follow_links=False)
    what = "A path of the profile"
    writable = tuple(written.real(what, path, (workspace,)) for path in profile.writable)
    return profile.replace(
        readable=tuple(written.real(what, path, (workspace, *writable)) for path in profile.readable),
        writable=writable,
        follow_links=False,
    )


def within(profile: Profile, parent: Profile) -> Profile:
    """A child session's profile, narrowed to its parent's: no path, limit, grant, variable, host, rule or channel
    level goes beyond the parent's, and every name that the parent protects is protected.
    """
    readable = (*parent.readable, *parent.writable, *parent.system)
    return profile.replace(
        grants=profile.grants & parent.grants,
        limits=profile.limits.narrow(parent.limits),
        readable=tuple(path for path in profile.readable if is_below(path, readable)),
        writable=tuple(path for path in profile.writable if is_below(path, parent.writable)),
        system=tuple(path for path in profile.system if is_below(path, readable)),
        pass_env=tuple(name for name in profile.pass_env if name in parent.pass_env),
        network=common(profile.network, parent.network),
        http=hosts.common(profile.http, parent.http),
        web=profile.web if parent.web == pages.ALL else pages.common(profile.web, parent.web),
        channel=profile.channel.narrowed(parent.channel),
        exceptions=max(parent.exceptions, profile.exceptions, key=EXCEPTIONS.index),
        changes=max(parent.changes, profile.changes, key=CHANGES.index),
        changed_files=max(parent.changed_files, profile.changed_files),
        proc=profile.proc and parent.proc,
        protected=tuple(dict.fromkeys((*parent.protected, *profile.protected))),
        unchecked=max(parent.unchecked, profile.unchecked, key=UNCHECKED.index),
        quarantined=max(parent.quarantined, profile.quarantined, key=QUARANTINED.index),
    )


def confine(profile: Profile, given: Set[Capability], workspace: Path, limits: Limits) -> CellProfile:
    """The profile of one cell: the session's profile, narrowed to the grants.

    READ binds the workspace read-only at its real path, WRITE binds it read-write; without either, the cell does not
    see it. The profile's network policy applies only with NET; otherwise the cell has no network. Request rules are not
    included: the supervisor makes the requests, and applies the session's rules.
    """
    here = str(workspace)
    readable = list(profile.readable)
    writable = list(profile.writable) if Capability.WRITE in given else []
    if Capability.WRITE in given:
        writable.append(here)
    elif Capability.READ in given:
        readable.append(here)
        readable += [path for path in profile.writable if path not in readable]
    sees_workspace = bool({Capability.READ, Capability.WRITE} & given)
    return profile.for_cell(
        network=profile.network if Capability.NET in given else NoNetwork(),
        grants=frozenset(str(capability.value) for capability in given),
        readable=tuple(readable),
        writable=tuple(writable),
        system=(*profile.system, *code_roots()),
        limits=limits,
        cwd=here if sees_workspace else "/tmp",
    )


def summary_for(summary: SandboxSummary, network: Network) -> SandboxSummary:
    """The sandbox summary in the results of such a cell: the network policy's name, and without mechanisms that the
    policy does not use."""
    if isinstance(network, HostNetwork):
        on = tuple(name for name in summary.on if name not in ("net_namespace", "landlock_net"))
        return summary.model_copy(update={"on": on, "network": "host"})
    return summary.model_copy(update={"network": "proxy"}) if isinstance(network, ProxyNetwork) else summary


@cache
def code_roots() -> tuple[str, ...]:
    """The directories of packages outside the interpreter's prefixes: our own three packages in an editable install,
    site-packages directories that a .pth file added, and the targets of installed files that are symbolic links.
    """
    roots: dict[str, None] = {}
    own = os.path.dirname(os.path.dirname(__file__))
    ours = [os.path.dirname(str(package.__file__)) for package in (toolcell_sandbox, toolcell_tools)]
    for directory in (own, *ours, *_added_packages(), *_linked_packages()):
        root = os.path.realpath(directory)
        if not is_below(root, [os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)]):
            roots[root] = None
    return tuple(roots)


def _added_packages() -> list[str]:
    """The site-packages directories on sys.path, without those of PYTHONPATH and of the user, which `python -I` leaves
    out."""
    others = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), site.getusersitepackages()}
    packages = ("site-packages", "dist-packages")
    return [path for path in sys.path if os.path.basename(path) in packages and path not in others]


def _linked_packages() -> list[str]:
    """The directories to which the files of installed distributions are linked. uv with UV_LINK_MODE=symlink installs
    each distribution as links into a cache directory that holds only this distribution. Other links are not followed.
    """
    names = glob.glob(os.path.join(glob.escape(sysconfig.get_path("purelib")), "*.dist-info", "METADATA"))
    found: list[str] = []
    for name in filter(os.path.islink, names):
        info, of = os.path.split(os.path.realpath(name))
        directory, distribution = os.path.split(info)
        distributions = [each for each in _listed(directory) if each.endswith(".dist-info")]
        if of == "METADATA" and distributions == [distribution] == [os.path.basename(os.path.dirname(name))]:
            found.append(directory)
    return found


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
