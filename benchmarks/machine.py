"""What ran the benchmarks, and whether anything else ran beside them."""

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

MAX_STEAL_PERCENT = 1.0
_CPU_STATS = ("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")  # cgroup v2, v1


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _load1() -> float:
    return os.getloadavg()[0]


def _ticks() -> tuple[int, int]:
    """Clock ticks of all cores since boot: stolen by the hypervisor, and all (proc(5))."""
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[7], sum(fields)


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
class Facts:
    """The machine, and what it was busy with between the start and now."""

    kernel: str
    python: str
    cores: int
    cpu: str
    governor: str
    load_before: float
    load_after: float
    steal_percent: float
    throttled: int

    @property
    def disturbed(self) -> str:
        """Why nothing can be concluded from this run, or an empty string.

        The load before is others' alone. The one after has our own work in it, about one process that runs at a time.
        """
        reasons: list[str] = []
        if self.load_before > self.cores / 2:
            reasons.append(f"load {self.load_before:.2f} before > {self.cores / 2:g}")
        if self.load_after > self.cores / 2 + 1:
            reasons.append(f"load {self.load_after:.2f} after > {self.cores / 2 + 1:g}, our own 1 included")
        if self.steal_percent > MAX_STEAL_PERCENT:
            reasons.append(f"steal {self.steal_percent:.1f} % > {MAX_STEAL_PERCENT:g} %")
        if self.throttled:
            reasons.append(f"throttled by the control group {self.throttled} times")
        return "; ".join(reasons)

    def __str__(self) -> str:
        return (
            f"Linux {self.kernel} · Python {self.python} · {self.cores} cores of {self.cpu} · governor {self.governor}"
            f"\nload1 {self.load_before:.2f} before, {self.load_after:.2f} after · steal {self.steal_percent:.2f} %"
            f" · throttled {self.throttled} times"
        )


@dataclass(slots=True)
class Watch:
    """Starts watching the machine when it is made."""

    load_before: float = field(default_factory=_load1)
    _ticks_before: tuple[int, int] = field(default_factory=_ticks)
    _throttled_before: int = field(default_factory=_throttled)

    def facts(self) -> Facts:
        """What there is to say until now."""
        stolen, every = (now - before for now, before in zip(_ticks(), self._ticks_before, strict=True))
        return Facts(
            kernel=platform.release(),
            python=platform.python_version(),
            cores=cores(),
            cpu=_model(),
            governor=_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "unknown"),
            load_before=self.load_before,
            load_after=_load1(),
            steal_percent=100 * stolen / max(1, every),
            throttled=_throttled() - self._throttled_before,
        )
