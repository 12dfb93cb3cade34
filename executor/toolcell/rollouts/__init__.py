"""Rollouts: many attempts of an agent at many tasks, each in a session of its own, here or on a cluster.

    from toolcell.rollouts import rollout

`rollout` streams a frozen `Trajectory` for each attempt, however the attempt ends. With a record, a rollout resumes
where a killed program left it.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know this name; a program that only reads trajectories needs no runtime
if TYPE_CHECKING:
    from .attempt import Attempt, Scored
    from .infrastructure import InfrastructureFailure, is_infrastructure
    from .launch import Rollout, RolloutProgress, rollout
    from .trajectory import CallStep, NoteStep, RolloutOutcome, RolloutTask, Trajectory, TrajectoryStep

_HOMES = {
    "attempt": "Attempt Scored",
    "infrastructure": "InfrastructureFailure is_infrastructure",
    "launch": "Rollout RolloutProgress rollout",
    "trajectory": "CallStep NoteStep RolloutOutcome RolloutTask Trajectory TrajectoryStep",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Attempt",
    "CallStep",
    "InfrastructureFailure",
    "NoteStep",
    "Rollout",
    "RolloutOutcome",
    "RolloutProgress",
    "RolloutTask",
    "Scored",
    "Trajectory",
    "TrajectoryStep",
    "is_infrastructure",
    "rollout",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value
