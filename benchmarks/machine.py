"""What ran the benchmarks, and whether anything else ran beside them."""

import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path

MAX_STEAL_PERCENT = 1.0
MAX_OTHERS_PERCENT = 6.0  # of all cores; a desktop at rest and the kernel's own threads stay below 3
SETTLE_S = 0.2  # what the kernel still has to clear away behind a figure: namespaces, cgroups
LOOK_S = 0.5
_CPU_STATS = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")  # cgroup v2, v1


def core_list() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def cores() -> int:
    """How many those are."""
    return len(core_list())


def load1() -> float:
    """The load of the last minute."""
    return os.getloadavg()[0]


def _ticks() -> tuple[int, int, int]:
    """Clock ticks of all cores since boot: stolen by the hypervisor, at work, and all (proc(5))."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, waiting, stolen, every = fields[3], fields[4], fields[7], sum(fields)
    return stolen, every - idle - waiting - stolen, every


def worked_s() -> float:
    """Seconds that all cores have worked since boot, for whatever process."""
    return _ticks()[1] / os.sysconf("SC_CLK_TCK")


def busy_percent() -> float:
    """How busy all cores are while this process sleeps: the work of others, and of what it has left behind."""
    time.sleep(SETTLE_S)
    _stolen, busy_before, before = _ticks()
    time.sleep(LOOK_S)
    _stolen, busy, every = _ticks()
    return 100 * (busy - busy_before) / max(1, every - before)


def _throttled() -> int:
    """How often the control group ran out of processor time."""
    for path in _CPU_STATS:
        if os.path.exists(path):
            counts = dict(line.split() for line in Path(path).read_text().splitlines())
            return int(counts.get("nr_throttled", 0))
    return 0


def _first_line(path: str, otherwise: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return otherwise


def _model() -> str:
    for line in _first_line("/proc/cpuinfo", "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


@dataclass(frozen=True, slots=True)
class Machine:
    """What does not change during a run."""

    kernel: str
    python: str
    cores: int
    cpu: str
    governor: str

    def __str__(self) -> str:
        return (
            f"Linux {self.kernel} · Python {self.python} · {self.cores} cores of {self.cpu} · governor {self.governor}"
        )


def machine() -> Machine:
    """This machine."""
    return Machine(
        kernel=platform.release(),
        python=platform.python_version(),
        cores=cores(),
        cpu=_model(),
        governor=_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "unknown"),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What else the machine did while a figure was taken. Percentages are of the time of all cores."""

    load_before_run: float
    others_before: float
    others_after: float
    steal_percent: float
    throttled: int
    cores: int

    @property
    def disturbed(self) -> str:
        """Why nothing can be concluded from the figure, or an empty string."""
        reasons: list[str] = []
        if self.load_before_run > self.cores / 2:
            reasons.append(f"load {self.load_before_run:.2f} before the run > {self.cores / 2:g}")
        for when, percent in (("before", self.others_before), ("after", self.others_after)):
            if percent > MAX_OTHERS_PERCENT:
                reasons.append(f"others used {percent:.0f} % of the cores {when} > {MAX_OTHERS_PERCENT:g} %")
        if self.steal_percent > MAX_STEAL_PERCENT:
            reasons.append(f"steal {self.steal_percent:.1f} % > {MAX_STEAL_PERCENT:g} %")
        if self.throttled:
            reasons.append(f"throttled by the control group {self.throttled} times")
        return "; ".join(reasons)

    def __str__(self) -> str:
        return (
            f"load1 {self.load_before_run:.2f} before the run · others {self.others_before:.1f} % before,"
            f" {self.others_after:.1f} % after · steal {self.steal_percent:.2f} % · throttled {self.throttled} times"
        )


@dataclass(slots=True)
class Watch:
    """Starts watching the machine when it is made: before a figure. `load_before_run` is for the caller to know, as
    the figures before this one are in the load of the last minute."""

    load_before_run: float = field(default_factory=load1)
    _others_before: float = field(default_factory=busy_percent)
    _ticks_before: tuple[int, int, int] = field(default_factory=_ticks)
    _throttled_before: int = field(default_factory=_throttled)

    def facts(self) -> Facts:
        """What there is to say until now."""
        stolen, _busy, every = (now - before for now, before in zip(_ticks(), self._ticks_before, strict=True))
        return Facts(
            load_before_run=self.load_before_run,
            others_before=self._others_before,
            others_after=busy_percent(),
            steal_percent=100 * stolen / max(1, every),
            throttled=_throttled() - self._throttled_before,
            cores=cores(),
        )
