"""KForge: faster drop-in modules for PyTorch, with numbers you can believe.

    verdict = kforge.evaluate("problem.py", "kernel.py", platform="cpu")

Importing this package imports neither torch nor anything heavy; `evaluate` does when it is first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.types import Candidate, Evidence, Outcome, Problem, Settings, Timing, Verdict

if TYPE_CHECKING:
    from kforge.evaluating import evaluate as evaluate

__all__ = ["Candidate", "Evidence", "Outcome", "Problem", "Settings", "Timing", "Verdict", "evaluate"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from kforge.evaluating import evaluate

        return evaluate
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")
