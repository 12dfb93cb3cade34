"""Draws the figures of a run as SVG. Needs matplotlib (the extra [bench])."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .interleave import Measured, Spread, spread
from .report import Curve, Figure, Stage
from .targets import TARGETS, Target

OURS, SECOND, FLOOR = "#1f6feb", "#8250df", "#6e7781"
PEERS = ("#bc4c00", "#bf8700", "#1a7f37", "#cf222e", "#bf3989", "#0a7ea4")
WHERE = {"supervisor": OURS, "kernel": FLOOR, "cell": SECOND, "zygote": PEERS[0]}
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "toolcell",  # one run gives one file
}

Taken = Mapping[str, Figure]


def draw(figures: Sequence[Figure], directory: Path) -> list[Path]:
    """Draw every plot whose figures were taken; returns the files."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    taken = {figure.key: figure for figure in figures}
    directory.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    with pyplot.rc_context(STYLE):
        for name, (needed, plot) in PLOTS.items():
            if not needed <= taken.keys():
                continue
            file = directory / f"{name}.svg"
            picture = plot(taken, pyplot)
            picture.savefig(file, bbox_inches="tight", metadata={"Date": None})
            pyplot.close(picture)
            file.write_text("\n".join(line.rstrip() for line in file.read_text().splitlines()) + "\n")
            drawn.append(file)
    return drawn


def latency(taken: Taken, pyplot: Any) -> Any:
    """The share of calls that were answered within so many microseconds, with the floor as a line."""
    picture, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, key, title, floor in (
        (left, "kept", "A kept process, back to back", "ping-pong, two cores"),
        (right, "standby", "A fresh process, 20 ms apart", "ping-pong, free, 20 ms apart"),
    ):
        colours = iter(PEERS)
        for case in taken[key].measured:
            if case.role == "floor" or "back to back" in case.name:
                continue
            ours = case.role == "ours"
            values = sorted(sample * 1e6 for sample in case.samples)
            shares = [(number + 1) / len(values) for number in range(len(values))]
            label = case.name.removesuffix(", 20 ms apart")
            axes.step(
                values, shares, where="post", label=f"toolcell, {label}" if ours else label,
                color=OURS if ours else next(colours), linewidth=2 if ours else 1,
            )  # fmt: skip
        under = taken[key].case(floor)
        if under is not None:
            label = f"floor: {floor.removesuffix(', 20 ms apart')}"
            axes.axvline(spread(under.samples).median * 1e6, color=FLOOR, linestyle="--", label=label)
        axes.set(xscale="log", xlabel="µs", title=title, ylim=(0, 1))
        axes.legend(fontsize=7, loc="lower right")
    left.set_ylabel("share of calls answered")
    return picture


def _lines(axes: Any, curves: Sequence[Curve], styles: Mapping[str, Mapping[str, Any]]) -> None:
    for curve in curves:
        xs, ys = zip(*sorted(curve.points), strict=True)
        axes.plot(xs, ys, marker="o", markersize=3, label=curve.name, **styles[curve.name])
    axes.set(xlabel=curves[0].x, ylabel=curves[0].y)


def throughput(taken: Taken, pyplot: Any) -> Any:
    """Calls in a second over callers, on one core and on all."""
    picture, axes = pyplot.subplots(figsize=(6, 3.8))
    curves = taken["scaling"].curves
    colours = {"fresh": OURS, "kept": SECOND, "ProcessPoolExecutor": PEERS[0]}
    styles = {
        curve.name: {
            "color": colours[curve.name.partition(",")[0]],
            "linestyle": "--" if curve.name.endswith("1 core") else "-",
        }
        for curve in curves
    }
    _lines(axes, curves, styles)
    axes.set(title="Calls in a second", yscale="log", xticks=[x for x, _y in curves[0].points], xlabel="callers")
    axes.legend(fontsize=7)
    return picture


def load(taken: Taken, pyplot: Any) -> Any:
    """Latency over arrivals in a second, up to where it bends upwards."""
    by_rate: dict[str, list[Curve]] = {}
    for curve in taken["load"].curves:
        by_rate.setdefault(curve.x, []).append(curve)
    picture, all_axes = pyplot.subplots(1, len(by_rate), figsize=(10, 3.4), sharey=True)
    for axes, (x, curves) in zip(all_axes, by_rate.items(), strict=True):
        colour = PEERS[0] if curves[0].role == "peer" else OURS
        styles = {
            curve.name: {"color": colour, "linestyle": "-" if curve.name.endswith("p50") else "--"} for curve in curves
        }
        _lines(axes, curves, styles)
        axes.set(yscale="log", title=x.partition(", ")[2], xlabel="arrivals/s", ylabel="")
        axes.legend(fontsize=7)
    all_axes[0].set_ylabel("ms from the planned arrival")
    return picture


def memory(taken: Taken, pyplot: Any) -> Any:
    """Memory over sessions that have a cell, and over sessions that are parked."""
    picture, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    style = {"color": OURS}
    _lines(left, taken["memory"].curves, {curve.name: style for curve in taken["memory"].curves})
    left.set(title="With a cell each", ylim=(0, None))
    _lines(right, taken["parked"].curves, {curve.name: style for curve in taken["parked"].curves})
    right.set(title="Parked", ylim=(0, None))
    return picture


def _waterfall(axes: Any, stages: Sequence[Stage], factor: float, unit: str) -> None:
    start = 0.0
    seen: set[str] = set()
    for row, stage in enumerate(stages):
        width = stage.taken.median * factor
        label = None if stage.where in seen else stage.where
        seen.add(stage.where)
        axes.barh(row, width, left=start, color=WHERE[stage.where], label=label, height=0.8)
        start += width
        axes.annotate(f"{width:.3g}", (start, row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_yticks(range(len(stages)), [stage.name for stage in stages], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel=f"{unit}, medians one after the other", xlim=(0, start * 1.08))
    axes.legend(fontsize=7, loc="lower left")


def cell_start(taken: Taken, pyplot: Any) -> Any:
    """Where each millisecond of a new cell goes."""
    picture, axes = pyplot.subplots(figsize=(8, 5))
    _waterfall(axes, taken["budget-cell"].stages, 1e3, "ms")
    axes.set_title("A new cell, from session.call to its result")
    return picture


def warm_call(taken: Taken, pyplot: Any) -> Any:
    """Where each microsecond of a call of a kept process goes."""
    picture, axes = pyplot.subplots(figsize=(8, 3.6))
    _waterfall(axes, taken["budget-warm"].stages, 1e6, "µs")
    axes.set_title("A call of a kept process")
    return picture


def ratios(taken: Taken, pyplot: Any) -> Any:
    """How many times as much as the floor or the peer each figure takes, with its spread and what it must be."""
    rows: list[tuple[Target, Spread]] = []
    for target in TARGETS:
        ours, other = _cases(taken, target)
        if ours is not None and other is not None and target.kind == "times" and not target.at_least:
            rows.append((target, target.found(ours, other)))
    picture, axes = pyplot.subplots(figsize=(8, 0.32 * len(rows) + 1))
    for row, (target, value) in enumerate(rows):
        colour = PEERS[0] if value.median > target.must else OURS
        axes.plot([value.p10, value.p90], [row, row], color=colour, linewidth=2)
        axes.plot(value.median, row, "o", color=colour)
        axes.plot(target.must, row, "|", color="black", markersize=11)
    labels = [f"{target.figure}: {target.ours} ÷ {target.against}" for target, _value in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel="times as much; the stroke is what it must be", title="Against floors and peers")
    return picture


def _cases(taken: Taken, target: Target) -> tuple[Measured | None, Measured | None]:
    figure = taken.get(target.figure)
    return (None, None) if figure is None else (figure.case(target.ours), figure.case(target.against))


PLOTS: Mapping[str, tuple[set[str], Callable[[Taken, Any], Any]]] = {
    "latency": ({"kept", "standby"}, latency),
    "throughput": ({"scaling"}, throughput),
    "load": ({"load"}, load),
    "memory": ({"memory", "parked"}, memory),
    "cell-start": ({"budget-cell"}, cell_start),
    "warm-call": ({"budget-warm"}, warm_call),
    "ratios": ({"kept", "standby", "fresh"}, ratios),
}
