"""KForge: faster drop-in modules for PyTorch, with numbers you can believe.

    verdict = kforge.evaluate("problem.py", "kernel.py", platform="cpu")
    result = kforge.forge("problem.py", platform="cpu", model="openai:gpt-5")
    faster = result.module()

Importing this package imports neither torch nor anything heavy; its functions do when they are first called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kforge.types import Attempt, Candidate, Evidence, Outcome, Plan, Problem, Settings, Timing, Verdict

if TYPE_CHECKING:
    from kforge.evaluating import evaluate as evaluate
    from kforge.run.api import ForgeResult as ForgeResult
    from kforge.run.api import RunEnvironment as RunEnvironment
    from kforge.run.api import forge as forge
    from kforge.run.api import forge_async as forge_async
    from kforge.run.api import resume as resume
    from kforge.run.api import resume_async as resume_async
    from kforge.run.eager_comparison import NotFasterWarning as NotFasterWarning

_LATER = {
    "evaluate": "kforge.evaluating",
    "forge": "kforge.run.api",
    "forge_async": "kforge.run.api",
    "resume": "kforge.run.api",
    "resume_async": "kforge.run.api",
    "ForgeResult": "kforge.run.api",
    "NotFasterWarning": "kforge.run.eager_comparison",
    "RunEnvironment": "kforge.run.api",
}

__all__ = [
    "Attempt",
    "Candidate",
    "Evidence",
    "ForgeResult",
    "NotFasterWarning",
    "Outcome",
    "Plan",
    "Problem",
    "RunEnvironment",
    "Settings",
    "Timing",
    "Verdict",
    "evaluate",
    "forge",
    "forge_async",
    "resume",
    "resume_async",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")
