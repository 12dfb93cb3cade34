"""Confine a Linux process and verify it: profiles, limits, entering the sandbox, probes. Standard library only."""

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from .enter import Entered, enter
    from .errors import SandboxError
    from .explain import explain
    from .identity import Identity
    from .kernel.probe import probe
    from .limits import Limits
    from .mechanisms.cgroup_tree import CgroupTree
    from .mechanisms.cgroups import Cgroup
    from .network import HostNetwork, NoNetwork, ProxyNetwork
    from .prespawn import Prespawned
    from .profile import CellProfile
    from .report import Mechanism, SandboxReport
    from .run import run
    from .spawn import Child, spawn
    from .trees.audit import Finding, ProtectedTree, ProtectedTrees
    from .trees.protected import DEFAULT_PROTECTED, protects
    from .trees.quarantine import Quarantine
    from .view import Bound

_HOMES = {
    "Bound": "view",
    "Cgroup": "mechanisms.cgroups",
    "CgroupTree": "mechanisms.cgroup_tree",
    "Child": "spawn",
    "DEFAULT_PROTECTED": "trees.protected",
    "Entered": "enter",
    "Finding": "trees.audit",
    "HostNetwork": "network",
    "Identity": "identity",
    "Limits": "limits",
    "Mechanism": "report",
    "NoNetwork": "network",
    "CellProfile": "profile",
    "ProtectedTree": "trees.audit",
    "ProtectedTrees": "trees.audit",
    "ProxyNetwork": "network",
    "Quarantine": "trees.quarantine",
    "SandboxError": "errors",
    "SandboxReport": "report",
    "Prespawned": "prespawn",
    "enter": "enter",
    "explain": "explain",
    "probe": "kernel.probe",
    "protects": "trees.protected",
    "run": "run",
    "spawn": "spawn",
}
__all__ = [
    "DEFAULT_PROTECTED",
    "Bound",
    "CellProfile",
    "Cgroup",
    "CgroupTree",
    "Child",
    "Entered",
    "Finding",
    "HostNetwork",
    "Identity",
    "Limits",
    "Mechanism",
    "NoNetwork",
    "Prespawned",
    "ProtectedTree",
    "ProtectedTrees",
    "ProxyNetwork",
    "Quarantine",
    "SandboxError",
    "SandboxReport",
    "enter",
    "explain",
    "probe",
    "protects",
    "run",
    "spawn",
]


class _Package(ModuleType):
    """Importing the submodule `spawn` sets it on the package; there the function of that name must stay."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and name in _HOMES:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'toolcell_sandbox' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"toolcell_sandbox.{_HOMES[name]}"), name)
    return value
