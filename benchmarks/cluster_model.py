"""A simulation of a cluster: sessions that think and call, and the stations at which their calls wait.

A closed network of queues, event by event. A call goes through its driver, the loop of its node, a zygote if its
session has no cell, the node's cores, and the object store if its payload is large. `Outcome.check` tests conservation
laws.
"""

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from .cluster_inputs import CostInputs

__all__ = ["ClusterShape", "Outcome", "Station", "simulate"]

KINDS: Final = ("driver", "loop", "zygotes", "cores", "object store")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """A cluster and its load. `turn_s` is the mean time that a model takes for a turn. `large` is the part of the calls
    whose payload of `large_bytes` goes through the object store. A cell that is idle for `idle_s` seconds is ended."""

    sessions: int = 100_000
    nodes: int = 16
    drivers: int = 8
    cores: int = 64
    memory_bytes: float = 256 * 1024**3
    turn_s: float = 10.0
    tool_cpu_s: float = 0.0
    large: float = 0.02
    large_bytes: float = 1024**2
    idle_s: float = 60.0

    def max_cells(self, inputs: CostInputs) -> int:
        """The most cells of a node: what its memory holds, 80 % of it, besides its sessions."""
        left = 0.8 * self.memory_bytes - self.sessions / self.nodes * inputs.session_bytes
        return max(0, int(left / inputs.cell_bytes))


@dataclass(slots=True)
class Station:
    """So many servers with one queue. `area` is the integral of the number of calls here over time, and `stays` the sum
    of their stays."""

    servers: int
    busy: int = 0
    inside: int = 0
    arrived: int = 0
    completed: int = 0
    busy_s: float = 0.0
    busy_warm_s: float = 0.0
    area: float = 0.0
    stays: float = 0.0
    looked_at: float = 0.0
    queue: deque[tuple[int, float]] = field(default_factory=deque[tuple[int, float]])
    since: dict[int, float] = field(default_factory=dict[int, float])

    def move(self, now: float, by: int) -> None:
        """Count that a call comes or goes."""
        self.area += self.inside * (now - self.looked_at)
        self.looked_at = now
        self.inside += by


@dataclass(slots=True)
class _Node:
    """The cells of a node, the longest idle first. `working` are those of calls that run."""

    max_cells: int
    idle: OrderedDict[int, float] = field(default_factory=OrderedDict[int, float])
    working: set[int] = field(default_factory=set[int])
    waiting: deque[int] = field(default_factory=deque[int])
    made: int = 0
    ended: int = 0
    most: int = 0

    def held(self) -> int:
        return len(self.idle) + len(self.working)

    def take(self, session: int, now: float, idle_s: float) -> bool | None:
        """Take a cell for a session's call. True if one must be made, None if there is no room."""
        while self.idle and next(iter(self.idle.values())) < now - idle_s:
            self.idle.popitem(last=False)
            self.ended += 1
        if session in self.idle:
            del self.idle[session]
            self.working.add(session)
            return False
        if self.held() >= self.max_cells:
            if not self.idle:
                return None
            self.idle.popitem(last=False)
            self.ended += 1
        self.working.add(session)
        self.made += 1
        self.most = max(self.most, self.held())
        return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulation found, after `warm_s` seconds of `seconds`. `waits` are samples of whole calls, in seconds,
    sorted. `use` is the part of the time for which the servers of a kind were at work: the busiest station's."""

    shape: ClusterShape
    seconds: float
    warm_s: float
    begun: int
    ended: int
    in_flight: int
    thinking: int
    waits: Sequence[float]
    per_s: float
    stations: dict[str, list[Station]]
    cells_most: int
    cells_made: int
    cells_ended: int
    cells_held: int
    waiting_for_cells: int

    def use(self, kind: str) -> float:
        span_s = self.seconds - self.warm_s
        return max(each.busy_warm_s / each.servers / span_s for each in self.stations[kind])

    def percentile(self, percent: float) -> float:
        return self.waits[min(len(self.waits) - 1, int(len(self.waits) * percent / 100))] if self.waits else 0.0

    def check(self) -> None:
        """Raise AssertionError if a conservation law does not hold."""
        assert self.thinking + self.in_flight == self.shape.sessions, "a session is lost, or doubled"
        assert self.begun == self.ended + self.in_flight, "a call is lost, or doubled"
        inside = sum(each.inside for some in self.stations.values() for each in some)
        assert inside + self.waiting_for_cells <= self.in_flight, "more calls wait than are in flight"
        assert self.cells_made == self.cells_ended + self.cells_held, "a cell is lost, or doubled"
        for kind, some in self.stations.items():
            for each in some:
                assert each.arrived == each.completed + each.inside, f"a call is lost at {kind}"
                assert 0 <= each.busy <= each.servers and each.busy == min(each.inside, each.servers), kind
                assert each.busy_s <= each.servers * self.seconds * (1 + 1e-9), f"{kind} works more than all the time"
                little = abs(each.area - each.stays)
                assert little <= 1e-6 * max(1.0, each.area), f"Little's law does not hold at {kind}: {little}"


class _Simulation:
    def __init__(self, shape: ClusterShape, inputs: CostInputs, seconds: float, warm_s: float, seed: int) -> None:
        self.shape, self.inputs, self.end, self.warm_s = shape, inputs, seconds, warm_s
        self.chance = random.Random(seed)
        self.events: list[tuple[float, int, int, int]] = []
        self.number = count()
        self.nodes = [_Node(shape.max_cells(inputs)) for _ in range(shape.nodes)]
        self.stations = {
            "driver": [Station(1) for _ in range(shape.drivers)],
            **{kind: [Station(1) for _ in range(shape.nodes)] for kind in ("loop", "object store")},
            **{kind: [Station(shape.cores) for _ in range(shape.nodes)] for kind in ("zygotes", "cores")},
        }
        self.begun_at: dict[int, float] = {}
        self.needs_cell: set[int] = set()
        self.begun = self.ended = self.ended_warm = 0
        self.waits: list[float] = []

    def station(self, session: int, stage: int) -> Station:
        kind = KINDS[stage]
        return self.stations[kind][session % (self.shape.drivers if kind == "driver" else self.shape.nodes)]

    def service_s(self, session: int, stage: int) -> float:
        """How long a call is served at a station; 0 if it does not stop there."""
        inputs, shape = self.inputs, self.shape
        match KINDS[stage]:
            case "driver":
                return inputs.driver_s
            case "loop":
                return inputs.loop_s
            case "zygotes":
                return inputs.cell_s if session in self.needs_cell else 0.0
            case "cores":
                return inputs.call_cpu_s + shape.tool_cpu_s
            case _:
                is_large = self.chance.random() < shape.large
                return shape.large_bytes / inputs.store_bytes_s if is_large else 0.0

    def run(self) -> Outcome:
        for session in range(self.shape.sessions):  # as if all had thought for a while
            heapq.heappush(
                self.events, (self.chance.expovariate(1 / self.shape.turn_s), next(self.number), session, -1)
            )
        while self.events and self.events[0][0] <= self.end:
            now, _, session, stage = heapq.heappop(self.events)
            if stage < 0:
                self.begun += 1
                self.begun_at[session] = now
            else:
                self.leave(session, stage, now)
            self.advance(session, stage + 1, now)
        return self.outcome()

    def advance(self, session: int, stage: int, now: float) -> None:
        """Let a call go on to the next station at which it stops."""
        while stage < len(KINDS):
            if KINDS[stage] == "zygotes" and not self.has_cell(session, now):
                return
            service_s = self.service_s(session, stage)
            if service_s > 0.0:
                self.enter(session, stage, service_s, now)
                return
            stage += 1
        self.finish(session, now)

    def has_cell(self, session: int, now: float) -> bool:
        node = self.nodes[session % self.shape.nodes]
        must_make = node.take(session, now, self.shape.idle_s)
        if must_make is None:
            node.waiting.append(session)
            return False
        if must_make:
            self.needs_cell.add(session)
        return True

    def enter(self, session: int, stage: int, service_s: float, now: float) -> None:
        station = self.station(session, stage)
        station.move(now, 1)
        station.arrived += 1
        station.since[session] = now
        if station.busy < station.servers:
            self.serve(station, session, stage, service_s, now)
        else:
            station.queue.append((session, service_s))

    def serve(self, station: Station, session: int, stage: int, service_s: float, now: float) -> None:
        station.busy += 1
        until = min(now + service_s, self.end)
        station.busy_s += until - now
        station.busy_warm_s += max(0.0, until - max(now, self.warm_s))
        heapq.heappush(self.events, (now + service_s, next(self.number), session, stage))

    def leave(self, session: int, stage: int, now: float) -> None:
        station = self.station(session, stage)
        station.move(now, -1)
        station.completed += 1
        station.busy -= 1
        station.stays += now - station.since.pop(session)
        if station.queue:
            self.serve(station, *self.next_of(station, stage), now)

    def next_of(self, station: Station, stage: int) -> tuple[int, int, float]:
        session, service_s = station.queue.popleft()
        return session, stage, service_s

    def finish(self, session: int, now: float) -> None:
        self.ended += 1
        taken = now - self.begun_at.pop(session) + 2 * self.inputs.hop_s
        if now >= self.warm_s:
            self.ended_warm += 1
            self.waits.append(taken)
        node = self.nodes[session % self.shape.nodes]
        node.working.discard(session)
        node.idle[session] = now
        self.needs_cell.discard(session)
        thought_s = self.chance.expovariate(1 / self.shape.turn_s)
        heapq.heappush(self.events, (now + thought_s, next(self.number), session, -1))
        if node.waiting:
            self.advance(node.waiting.popleft(), KINDS.index("zygotes"), now)

    def outcome(self) -> Outcome:
        for some in self.stations.values():
            for each in some:
                each.move(self.end, 0)
                each.stays += sum(self.end - since for since in each.since.values())
        return Outcome(
            shape=self.shape,
            seconds=self.end,
            warm_s=self.warm_s,
            begun=self.begun,
            ended=self.ended,
            in_flight=len(self.begun_at),
            thinking=sum(stage < 0 for _, _, _, stage in self.events),
            waits=sorted(self.waits),
            per_s=self.ended_warm / (self.end - self.warm_s),
            stations=self.stations,
            cells_most=max(node.most for node in self.nodes),
            cells_made=sum(node.made for node in self.nodes),
            cells_ended=sum(node.ended for node in self.nodes),
            cells_held=sum(node.held() for node in self.nodes),
            waiting_for_cells=sum(len(node.waiting) for node in self.nodes),
        )


def simulate(shape: ClusterShape, inputs: CostInputs, *, seconds: float, warm_s: float, seed: int = 1) -> Outcome:
    """Simulate so many seconds of a cluster's life, of which the first `warm_s` count in no latency."""
    return _Simulation(shape, inputs, seconds, warm_s, seed).run()
