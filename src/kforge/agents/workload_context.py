"""What prompts say of a problem's workloads and of the sizes that vary, and what they must not say."""

from __future__ import annotations

import re
from typing import Any

from kforge.types import Problem, Verdict

_HIDDEN = "a size that is not shown"


def workload_context(problem: Problem, measured: Verdict | None) -> dict[str, Any]:
    """What a template may use: the declared workloads, the ranges, and how fast the shown program is on each."""
    return {
        "workloads": [{"name": str(workload), "weight": f"{share:.2g}"} for workload, share in problem.workload_shares],
        "dynamic": [str(size) for size in problem.dynamic],
        "by_workload": [
            {
                "name": result.workload,
                "weight": f"{result.weight:.2g}",
                "speedup": f"{result.timing.speedup:.2f}x",
                "vs_best": _times(result.timing.speedup_vs_best),
                "own_code": "" if result.custom_share is None else f"{result.custom_share:.0%}",
            }
            for result in (measured.workloads if measured else ())
            if result.timing is not None
        ],
    }


def without_held_out(text: str, verdict: Verdict) -> str:
    """A verdict's text without the sizes that it was tried on in secret: who knows them writes for them."""
    held_out = verdict.evidence.held_out if verdict.evidence else ()
    for sizes in sorted(held_out, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(sizes)}(?!\w)", _HIDDEN, text)
    return text


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"
