"""Whether a program is faster than what its user has already, and what is said where that is not sure."""

from __future__ import annotations

import warnings
from typing import Literal

from kforge.types import Verdict

EagerComparison = Literal["faster", "not surely faster", "slower"]


class NotFasterWarning(UserWarning):
    """A correct program is handed over that is slower than eager, or not surely faster."""


def compare_with_eager(verdict: Verdict) -> EagerComparison | None:
    """How a program compares with eager by the whole interval of its speedup: one that holds 1 says neither, nor does
    one that was measured beside others' work. None where nothing was timed.
    """
    against_eager = verdict.timing.against_eager if verdict.timing else None
    if against_eager is None:
        return None
    if verdict.contended:
        return "not surely faster"
    low, high = against_eager.interval
    return "slower" if high < 1 else "faster" if low > 1 else "not surely faster"


def advice(verdict: Verdict) -> str:
    """What to do with a program that is not surely faster than eager; empty for any other."""
    comparison = compare_with_eager(verdict)
    if comparison is None or comparison == "faster":
        return ""
    assert verdict.timing is not None
    figures = f"{comparison} than eager ({verdict.timing.against_eager})"
    if verdict.contended:
        on = f" on {'; '.join(verdict.contended_workloads)}" if verdict.contended_workloads else ""
        return (
            f"{figures}: contended{on}, others used the machine while it was timed; measure it again when it is quiet"
        )
    return f"{figures}: keep yours" if comparison == "slower" else figures


def warn_unless_faster(problem: str, verdict: Verdict, stacklevel: int) -> None:
    """A NotFasterWarning for a program that is not surely faster; `stacklevel` as in `warnings.warn`, from here."""
    text = advice(verdict)
    if text:
        warnings.warn(f"the program for {problem} is {text}", NotFasterWarning, stacklevel=stacklevel + 1)
