"""The seven promises of the sandbox, each with two layers. The layers that are on depend on the machine's
mechanisms."""

from dataclasses import dataclass

OWN_ROOT = frozenset({"mount_namespace", "pivot_root", "mount_setattr"})
"""`enter()` gives a cell a root directory of its own if all three are on."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One reason why a promise holds. It is on if all mechanisms of one alternative are on."""

    text: str
    alternatives: tuple[frozenset[str], ...]

    def is_on(self, on: frozenset[str]) -> bool:
        return any(needed <= on for needed in self.alternatives)

    def lacks(self, on: frozenset[str]) -> list[str]:
        """The missing mechanisms of the alternative that lacks the fewest."""
        nearest = min((needed - on for needed in self.alternatives), key=len)
        return sorted(nearest)


@dataclass(frozen=True, slots=True)
class Promise:
    """An action that code in a cell cannot do (in the words of docs/security.md), and the two layers that prevent
    it."""

    text: str
    layers: tuple[Layer, Layer]

    def verdict(self, on: frozenset[str]) -> str:
        """ "two layers", "one layer only" or "not promised here", if these mechanisms are on."""
        return VERDICTS[sum(layer.is_on(on) for layer in self.layers)]

    def to_json(self, on: frozenset[str]) -> dict[str, object]:
        """The promise on a machine with these mechanisms, as JSON values."""
        layers = [{"text": layer.text, "on": layer.is_on(on), "lacks": layer.lacks(on)} for layer in self.layers]
        return {"cannot": self.text, "verdict": self.verdict(on), "layers": layers}


VERDICTS: tuple[str, ...] = ("not promised here", "one layer only", "two layers")


def _needs(text: str, *alternatives: frozenset[str] | str) -> Layer:
    sets = tuple(frozenset({each}) if isinstance(each, str) else each for each in alternatives)
    return Layer(text, sets or (frozenset(),))


PROMISES: tuple[Promise, ...] = (
    Promise(
        "write outside what its profile makes writable",
        (_needs("read-only mounts in a root of its own", OWN_ROOT), _needs("Landlock", "landlock")),
    ),
    Promise(
        "read files that are not bound in",
        (_needs("a root of its own, where they are not", OWN_ROOT), _needs("Landlock", "landlock")),
    ),
    Promise(
        "use any network",
        (_needs("an empty network namespace", "net_namespace"), _needs("seccomp: no socket can be made", "seccomp")),
    ),
    Promise(
        "signal, trace or read a process outside its own call",
        (
            _needs("a pid namespace of its own", "pid_namespace"),
            _needs(
                "Landlock scopes for signals; no system call that traces or reads (seccomp)",
                frozenset({"landlock", "landlock_scope", "seccomp"}),
            ),
        ),
    ),
    Promise(
        "outlive its call",
        (
            _needs("the init of its pid namespace kills and reaps all of it when the call is over", "pid_namespace"),
            _needs("parent-death signals: the init ends with the supervisor, its namespace with it", "pid_namespace"),
        ),
    ),
    Promise(
        "use a capability that the supervisor did not grant to this call",
        (
            _needs("the supervisor's own table of what each cell may ask for"),
            _needs(
                "a cell for each set of grants: no mount, no execve and no socket without the grant",
                OWN_ROOT | {"seccomp"},
                frozenset({"landlock", "seccomp"}),
            ),
        ),
    ),
    Promise(
        "exceed its limits by more than the stated slack",
        (
            _needs("a control group for the whole cell", "cgroup"),
            _needs("rlimits of each process, and the supervisor's clock and watch over all of them"),
        ),
    ),
)


PROTECTED_NAMES = Promise(
    "make or change files that run later, where it may write",
    (_needs("read-only mounts over those that are there", OWN_ROOT), _needs("an audit after each call, from outside")),
)
"""It holds in a writable workspace too, unless the profile lifts the name. It is not one of the seven promises."""


def lost(on: frozenset[str], missing: frozenset[str]) -> str:
    """A sentence about the promises that do not hold without the missing mechanisms; "" if all hold."""
    fallen: list[str] = []
    weaker: list[str] = []
    for number, promise in enumerate(PROMISES, 1):
        verdict = promise.verdict(on)
        if verdict == promise.verdict(on | missing):
            continue
        if verdict == VERDICTS[0]:
            fallen.append(f"code in a cell can {promise.text} (promise {number})")
        else:
            weaker.append(str(number))
    if weaker:
        fallen.append(f"one layer only keeps promise{'s' * (len(weaker) > 1)} {', '.join(weaker)}")
    return f"Without them {', and '.join(fallen)}." if fallen else ""
