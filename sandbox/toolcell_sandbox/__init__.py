"""Confine a Linux process and prove it: profiles, limits, entering the sandbox, probes. Standard library only."""

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
    from .profile import Profile
    from .report import Mechanism, SandboxReport
    from .run import run
    from .spawn import Child, spawn

_HOMES = {
    "Cgroup": "mechanisms.cgroups",
    "CgroupTree": "mechanisms.cgroup_tree",
    "Child": "spawn",
    "Entered": "enter",
    "HostNetwork": "network",
    "Identity": "identity",
    "Limits": "limits",
    "Mechanism": "report",
    "NoNetwork": "network",
    "Profile": "profile",
    "ProxyNetwork": "network",
    "SandboxError": "errors",
    "SandboxReport": "report",
    "enter": "enter",
    "explain": "explain",
    "probe": "kernel.probe",
    "run": "run",
    "spawn": "spawn",
}
__all__ = [
    "Cgroup",
    "CgroupTree",
    "Child",
    "Entered",
    "HostNetwork",
    "Identity",
    "Limits",
    "Mechanism",
    "NoNetwork",
    "Profile",
    "ProxyNetwork",
    "SandboxError",
    "SandboxReport",
    "enter",
    "explain",
    "probe",
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
