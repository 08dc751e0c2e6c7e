"""Whose code does the work: program counters, read from outside at random moments of calls that look like timed ones.

The program takes no part in it and cannot tell such a call from a timed one, but for what a pause does to its clocks.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from kforge.worker.judge import elementary_functions
from kforge.worker.judge.held_lane import HeldLane, shuffle_calls
from kforge.worker.judge.integrity import own_native_code
from kforge.worker.judge.timed_inputs import TimedInputs
from kforge.worker.protocol.keeper import ThreadPlace

_FIRST, _SURE = 8, 60
"""Samples to begin with, and to decide by where the first ones speak against it."""
_LEAST = 12
_MOST_BLOCKS = 20
_SPAN_NS, _LONGEST_SPAN_NS = 30e6, 500e6
_FEW_MOMENTS = 6
"""Of a block, below which the next one is longer: on a busy machine the judge may be kept from looking."""
_MOSTLY = 0.5
_MARGIN = 0.1
"""Of the moments, by which libraries must be at work beyond the share of a call that operators take."""
_UNEXPLAINED = 0.25
"""Share of a call that operators must leave unexplained: what they took is known from one call, and that well."""
_FUNCTIONS = ("libm.", "libm-", "libmvec")
"""Beginnings of names of files that a kernel computes with; libraries that compute much bring their own."""
_AIDS = (
    *("libc.", "libc-", "ld-", "libpthread", "libdl", "librt", "libgcc_s", "libstdc++", "libatomic", "libgomp"),
    *("libomp", "libiomp", "libtbb", "libffi", "python", "libpython", "libtorch_python", "libc10", "libpocl"),
    *("libOpenCL", "libLLVM", "libclang"),
)
"""Those whose code serves whoever calls it."""


@dataclass
class CodeSamples:
    """How often a thread was in code of the program's own, and how often in that of which library."""

    own: int = 0
    libraries: Counter[str] = field(default_factory=Counter)
    moments: int = 0
    """How often anybody looked, whether a thread worked or all of them waited."""
    library_moments: int = 0
    """In how many of them a thread was in a library's code."""

    @property
    def count(self) -> int:
        return self.own + sum(self.libraries.values())

    def library_share(self) -> float:
        """The share of libraries in all code that computes."""
        return sum(self.libraries.values()) / max(1, self.count)

    def moment_share(self) -> float:
        """The share of libraries in the time of calls: comparable with the share that operators take of a call."""
        return self.library_moments / max(1, self.moments)

    def add(self, places: Iterable[ThreadPlace], known: tuple[str, ...]) -> None:
        """Count one moment: where each thread is. `known` folders hold code that is not the program's own."""
        before = sum(self.libraries.values())
        for path, offset in places:
            name = os.path.basename(path)
            own = not path or (path.startswith("/") and bool(own_native_code((path,), known)))
            if own or name.startswith(_FUNCTIONS) or elementary_functions.is_elementary(path, offset):
                self.own += 1
            elif path.startswith("/") and not name.startswith(_AIDS) and "/lib-dynload/" not in path:
                self.libraries[name] += 1
        self.moments += 1
        self.library_moments += sum(self.libraries.values()) > before


def sample(
    lane: HeldLane, timed_inputs: TimedInputs, known: tuple[str, ...], in_operators: float, briefly: bool = False
) -> CodeSamples:
    """Samples of a candidate's calls: few, or many where libraries do far more than torch's operators explain.

    `in_operators` is the share of its time that torch's operators are said to take. `briefly` is for who has been
    looked at before, on another workload.
    """
    first = _FIRST // 2 if briefly else _FIRST
    samples = CodeSamples()
    span = _SPAN_NS
    for _ in range(_MOST_BLOCKS):
        suspect = samples.library_share() > _least_share(in_operators)
        if samples.count >= (_SURE if suspect else first):
            break
        lane.runner.stop()
        timed_inputs.refresh()
        moments = lane.sample_calls(shuffle_calls(len(lane.slots), timed_inputs.seeds()), random.SystemRandom(), span)
        for places in moments:
            samples.add(places, known)
        if len(moments) < _FEW_MOMENTS:
            span = min(2 * span, _LONGEST_SPAN_NS)
    return samples


def is_library_work(samples: CodeSamples, in_operators: float) -> bool:
    """Whether most of the work is a library's, and no operator of torch that was seen accounts for it."""
    works = samples.count >= _LEAST and samples.library_share() > _least_share(in_operators)
    return works and samples.moment_share() > in_operators + _MARGIN


def _least_share(in_operators: float) -> float:
    return in_operators + max(_MOSTLY * (1 - in_operators), _UNEXPLAINED)
