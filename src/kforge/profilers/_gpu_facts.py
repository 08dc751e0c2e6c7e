"""What the digest's rules for GPUs read: the kernels of one call, with their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.profilers._facts import SHARE, Facts

CUT = "cut"
"""A metric that is there where not every launch of the call was looked at."""
WHOLE = "whole"
"""The last metric of a kernel: one that lacks it was cut, and is not to be judged."""
MOST_KERNELS = 4
LAUNCH_NS = 2500.0
"""What a launch costs the device at least: about the time of a kernel that does nothing."""
TOOLS = ("ncu", "torch_trace", "nsys", "sass")
"""The tools that look at GPUs."""


def metric_name(rank: int, name: str) -> str:
    """The name of a metric of the kernel in this place, by time."""
    return f"{rank}/{name}"


@dataclass(frozen=True)
class KernelFacts:
    """One kernel under ncu, through checked numbers."""

    facts: Facts
    rank: int
    name: str
    share: float
    """The kernel's share of the time of all kernels of the call."""

    def get(self, name: str, default: float = 0.0) -> float:
        """A number; the default where the table lacked it."""
        value = self.facts.number("ncu", metric_name(self.rank, name))
        return default if value is None else value

    def has(self, name: str) -> bool:
        return self.facts.number("ncu", metric_name(self.rank, name)) is not None

    def part(self, name: str) -> float:
        """A share: at most 1."""
        return min(1.0, self.get(name))

    def waits(self) -> list[tuple[str, float]]:
        """(Reason, share of all waiting), the largest first."""
        prefix = metric_name(self.rank, "stall/")
        profile = self.facts.profiles["ncu"]
        shares = [(name.removeprefix(prefix), self.facts.number("ncu", name, 1.0)) for name in profile.metrics]
        known = [(name, value) for name, value in shares if value and prefix + name in profile.metrics]
        return sorted(known, key=lambda item: (-item[1], item[0]))

    def waiting_for(self, *reasons: str) -> float:
        return min(1.0, sum(value for name, value in self.waits() if name in reasons))

    @property
    def busiest(self) -> float:
        """The share of its peak that the busiest unit reaches."""
        return max(self.part(name) for name in ("sm_share", "memory_share", "l1_share", "l2_share", "dram_share"))

    @property
    def beyond_launch(self) -> float:
        """The share of its time that is not just being launched."""
        each = self.get("time_ns") / max(1.0, self.get("launches", 1.0))
        return max(0.0, 1.0 - launch_ns(self.facts) / each) if each > 0 else 0.0


def kernels(facts: Facts) -> list[KernelFacts]:
    """The costliest kernels, in order of time."""
    profile = facts.profiles.get("ncu")
    names = [name for name in (profile.metrics if profile is not None else ()) if name.startswith(SHARE)]
    shares = [(name.removeprefix(SHARE), facts.number("ncu", name, 1.0)) for name in names]
    ordered = sorted(((name, share) for name, share in shares if share and name), key=lambda item: (-item[1], item[0]))
    costliest = [KernelFacts(facts, rank, name, share) for rank, (name, share) in enumerate(ordered[:MOST_KERNELS], 1)]
    return [kernel for kernel in costliest if kernel.has(WHOLE)]


def launch_ns(facts: Facts) -> float:
    """What a launch costs the device: as measured here, where that is more than usual."""
    return max(LAUNCH_NS, facts.number("roofline", "launch_ns", 1e5) or 0.0)


def traced_number(facts: Facts, name: str) -> float | None:
    """A number of the call as a whole, from the tool that traced it."""
    value = facts.number("torch_trace", name)
    return facts.number("nsys", name) if value is None else value


def is_gpu(facts: Facts) -> bool:
    return any(tool in facts.profiles for tool in TOOLS)
