"""Did the candidate do the work itself? Decided on what ran: operators dispatched, native code mapped, effects seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from kforge.types import Policy
from kforge.worker.protocol.calls import RecordedCall, WatchedCall
from kforge.worker.protocol.records import ObservedKernel, Operator

_MOST_KERNELS, _LONGEST_NAME, _MOST = 500, 200, 1 << 60
_DRAWS = frozenset(
    f"aten.{name}_"
    for name in ("normal", "uniform", "bernoulli", "exponential", "random", "cauchy", "log_normal", "geometric")
)
"""Operators that fill a tensor with random numbers."""
LIBRARY_CACHES = ("/inductor/", "/triton/")
"""Folders where torch's own compilers put what they generate: library code, not the candidate's."""
EMULATOR_BUILDS = "/kforge-kernels-"
"""Folders where an emulator puts the kernels that it builds."""
_APART = {
    "unread": "nothing of its output comes from memory that a launched kernel wrote",
    "unfed": "no launched kernel whose output counts was given anything of forward's inputs or the module's state",
}
"""How kernels on an emulated device have no part in the result."""


@dataclass(frozen=True)
class Observation:
    """One call of a module, watched."""

    operators: tuple[Operator, ...]
    custom_effect: bool
    """Whether its own code changed something that the result depends on."""
    native: tuple[str, ...] = ()
    """Native code of its own: files the kernel lists as mapped, or kernels that ran on the device."""
    kernels: tuple[ObservedKernel, ...] = ()
    busy_ns: int = 0
    """How long any kernel ran: less than all of them together where they overlap."""
    call_ns: int = 0
    """How long the call took; 0 where only time on the device counts."""
    apart: str = ""
    """On an emulated device: why the kernels it launched have no part in the result."""
    noted: bool = False
    """Whether its own code is what the platform saw launched, and not what its process has loaded."""
    directions: tuple[Observation, ...] = ()
    """Where a call is forward and backward: the one, then the other."""

    def all_device_ns(self) -> int:
        """Time on the device in all kernels of the call."""
        return sum(kernel.nanoseconds for kernel in self.kernels)

    def device_ns(self, whose: str) -> int:
        """Time on the device in kernels of one kind."""
        return sum(kernel.nanoseconds for kernel in self.kernels if kernel.whose == whose)

    def compute_operators(self) -> Counter[tuple[str, int]]:
        """Operators that compute, with the size of their results; data movement where nothing computes."""
        kinds = {operator.kind for operator in self.operators}
        wanted = "compute" if "compute" in kinds else "move"
        return Counter((item.name, item.elements) for item in self.operators if item.kind == wanted)

    def library_ns(self) -> int:
        """Time in torch's operators; allocating and viewing is not work."""
        return sum(item.nanoseconds for item in self.operators if item.kind not in ("view", "allocation"))

    def library_share(self) -> float:
        """The share of the watched call's own time in torch's operators."""
        return min(1.0, self.library_ns() / self.call_ns) if self.call_ns > 0 else 0.0


def read_observation(
    watched: WatchedCall,
    recorded: RecordedCall,
    native: tuple[str, ...],
    on_device: bool = False,
    noted: bool = False,
) -> Observation:
    """Read a runner's answers; ValueError if they make no sense. Kernels count only where there is a device for them.

    `noted`: kernels are those whose launches were noted, and `native` is what anybody may have loaded.
    """
    counts = [recorded.call_ns, recorded.device_ns, *(item.nanoseconds for item in recorded.kernels)]
    counts += [number for item in recorded.operators for number in (item.elements, item.nanoseconds)]
    if not all(0 <= number < _MOST for number in counts):
        raise ValueError("a size or a time that is none")
    if noted:
        native = tuple(dict.fromkeys(name[:_LONGEST_NAME] for name in watched.launched))
    operators = tuple(item._replace(name=item.name[:_LONGEST_NAME]) for item in recorded.operators)
    ran = recorded.kernels[:_MOST_KERNELS] if on_device else []
    kernels = tuple(kernel._replace(name=kernel.name[:_LONGEST_NAME]) for kernel in ran)
    launched = dict.fromkeys(kernel.name for kernel in kernels if kernel.whose == "own")
    busy = recorded.device_ns if on_device else 0
    effect, apart, took = watched.custom_effect, _APART.get(watched.apart, ""), recorded.call_ns
    whole = Observation(operators, effect, (*native, *launched), kernels, busy, took, apart, noted)
    return replace(whole, directions=_directions(whole, watched, recorded)) if len(watched.directions) == 2 else whole


def _directions(whole: Observation, watched: WatchedCall, recorded: RecordedCall) -> tuple[Observation, ...]:
    """The two parts of a call that is forward and backward."""
    first, kernels, took = recorded.forward_operators, recorded.forward_kernels, recorded.forward_ns
    if min(first, kernels, took) < 0:
        raise ValueError("a number that is none")
    parts = (
        (whole.operators[:first], whole.kernels[:kernels], took),
        (whole.operators[first:], whole.kernels[kernels:], max(0, whole.call_ns - took)),
    )
    return tuple(
        replace(whole, operators=operators, kernels=ran, call_ns=spent, custom_effect=effect)
        for (operators, ran, spent), effect in zip(parts, watched.directions, strict=True)
    )


def describe_directions(observed: Observation) -> str:
    """Whose work forward was, and whose backward; empty where a call is forward alone."""
    return "; ".join(
        f"{name}: {_describe_part(part)}"
        for name, part in zip(("forward", "backward"), observed.directions, strict=False)
    )


def _describe_part(part: Observation) -> str:
    share = custom_share(part, float(part.call_ns))
    names = sorted({name.removeprefix("aten.") for name, _ in part.compute_operators()})
    own = f"{share:.0%} of the time in its own code"
    if share and (part.kernels or part.custom_effect):
        return own
    return f"torch's operators ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})" if names else own


def own_native_code(mapped: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Mapped files that are neither the system's, Python's, torch's, nor generated by torch's compilers."""
    return tuple(
        path for path in mapped if not path.startswith(known) and not any(cache in path for cache in LIBRARY_CACHES)
    )


def foreign_native_code(native: tuple[str, ...]) -> tuple[str, ...]:
    """Native code of a program on an emulated device beside the kernels that the emulator built."""
    return tuple(path for path in native if EMULATOR_BUILDS not in path)


def custom_share(observed: Observation, call_ns: float) -> float:
    """Share of a call's time outside torch's operators; 0 where no code of its own ran."""
    if not observed.native or not observed.custom_effect or observed.apart:
        return 0.0
    if observed.kernels:
        return observed.device_ns("own") / max(observed.all_device_ns(), 1)
    return max(0.0, min(1.0, 1.0 - observed.library_ns() / max(call_ns, 1.0)))


def judge_work(observed: Observation, reference: Observation, policy: Policy) -> tuple[str, str]:
    """(rule, what) broken under a policy; empty if none."""
    if policy == "any":
        return "", ""
    names = ", ".join(sorted({name for name, _ in observed.compute_operators()})) or "none"
    if not observed.native:
        if observed.kernels:
            ran = ", ".join(sorted({kernel.name.split("(")[0][:60] for kernel in observed.kernels})[:3])
            return "no_custom_kernel", f"no kernel of its own ran on the device; the library's did ({ran})"
        missing = "kernel of its own was launched" if observed.noted else "native code of its own was loaded"
        return "no_custom_kernel", f"no {missing}; torch did the work ({names})"
    if observed.apart:
        return "decorative_kernel", observed.apart
    if not observed.custom_effect:
        return "decorative_kernel", f"its own code changed nothing that the result depends on; torch ran {names}"
    if observed.device_ns("library") > observed.device_ns("own"):
        others = sorted({kernel.name.split("(")[0][:60] for kernel in observed.kernels if kernel.whose == "library"})
        return "decorative_kernel", f"a library called past torch's operators does most of the work ({others[0]})"
    if _repeats_all(observed, reference):
        repeated = ", ".join(sorted({name for name, _ in reference.compute_operators()}))
        return "decorative_kernel", f"torch still runs every operator of the reference ({repeated})"
    if policy == "strict":
        used = sorted({name for name, _ in _computed(observed) - _drawn(reference)})
        if used:
            return "library_compute", f"torch operators computed: {', '.join(used)}"
        others = sorted({kernel.name.split("(")[0][:60] for kernel in observed.kernels if kernel.whose == "library"})
        if others:
            return "library_compute", f"a library called past torch's operators computed: {', '.join(others[:3])}"
    return "", ""


def _computed(observed: Observation) -> Counter[tuple[str, int]]:
    return Counter((item.name, item.elements) for item in observed.operators if item.kind == "compute")


def _drawn(reference: Observation) -> Counter[tuple[str, int]]:
    """The random numbers that the reference draws: no kernel can draw the same ones, so torch may."""
    computed = _computed(reference).items()
    return Counter({(name, elements): count for (name, elements), count in computed if name in _DRAWS})


def is_fallback(observed: Observation, rule: str) -> bool:
    """Whether a rule is broken only because torch does the work, openly: nothing of the program's own took part."""
    return rule in ("no_custom_kernel", "decorative_kernel") and not observed.apart and not observed.custom_effect


def _repeats_all(observed: Observation, reference: Observation) -> bool:
    """Whether torch still runs every operator of the reference: in both directions, where there are two.

    A backward that computes forward's operators again, beside a forward of its own, is no copy of the reference.
    """
    both = observed.directions and reference.directions
    pairs = zip(observed.directions, reference.directions, strict=True) if both else ((observed, reference),)
    counts = [(part.compute_operators(), other.compute_operators()) for part, other in pairs]
    wanted = [(mine, theirs) for mine, theirs in counts if theirs]
    return bool(wanted) and all(not theirs - mine for mine, theirs in wanted)
