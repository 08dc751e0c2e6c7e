"""KForge: faster drop-in modules for PyTorch, with numbers you can believe.

    verdict = kforge.evaluate("problem.py", "kernel.py", platform="cpu")
    result = kforge.forge("problem.py", platform="cpu", model="openai:gpt-5")
    faster = result.module()
    study = kforge.bench("experiment.toml")

Importing this package imports neither torch nor anything heavy; its functions do when they are first called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kforge import errors
from kforge.errors import KForgeError
from kforge.types import (
    Attempt,
    Budget,
    Candidate,
    Configuration,
    DynamicSize,
    Evidence,
    Experiment,
    Limits,
    ModelSettings,
    Outcome,
    Plan,
    Problem,
    ProblemForm,
    RunSpec,
    Settings,
    Study,
    Timing,
    Trial,
    Verdict,
    Workload,
    WorkloadResult,
)

if TYPE_CHECKING:
    from kforge.api import EvaluateOptions as EvaluateOptions
    from kforge.api import bench as bench
    from kforge.api import evaluate as evaluate
    from kforge.api import forge as forge
    from kforge.api import forge_async as forge_async
    from kforge.api import resume as resume
    from kforge.api import resume_async as resume_async
    from kforge.api import rows as rows
    from kforge.packages.forge_result import ForgeResult as ForgeResult
    from kforge.run.context import RunEnvironment as RunEnvironment
    from kforge.run.context import RunEvent as RunEvent
    from kforge.run.eager_comparison import NotFasterWarning as NotFasterWarning
    from kforge.run.model_pool import ModelAccess as ModelAccess
    from kforge.spec.run_options import RunOptions as RunOptions
    from kforge.spec.run_spec import ResumeOptions as ResumeOptions

    __version__: str

_LATER = {
    "EvaluateOptions": "kforge.api",
    "ForgeResult": "kforge.packages.forge_result",
    "ModelAccess": "kforge.run.model_pool",
    "NotFasterWarning": "kforge.run.eager_comparison",
    "ResumeOptions": "kforge.spec.run_spec",
    "RunEnvironment": "kforge.run.context",
    "RunEvent": "kforge.run.context",
    "RunOptions": "kforge.spec.run_options",
    "bench": "kforge.api",
    "evaluate": "kforge.api",
    "forge": "kforge.api",
    "forge_async": "kforge.api",
    "resume": "kforge.api",
    "resume_async": "kforge.api",
    "rows": "kforge.api",
}
"""Names whose modules are loaded when they are first asked for."""

__all__ = [
    "Attempt",
    "Budget",
    "Candidate",
    "Configuration",
    "DynamicSize",
    "EvaluateOptions",
    "Evidence",
    "Experiment",
    "ForgeResult",
    "KForgeError",
    "Limits",
    "ModelAccess",
    "ModelSettings",
    "NotFasterWarning",
    "Outcome",
    "Plan",
    "Problem",
    "ProblemForm",
    "ResumeOptions",
    "RunEnvironment",
    "RunEvent",
    "RunOptions",
    "RunSpec",
    "Settings",
    "Study",
    "Timing",
    "Trial",
    "Verdict",
    "Workload",
    "WorkloadResult",
    "__version__",
    "bench",
    "errors",
    "evaluate",
    "forge",
    "forge_async",
    "resume",
    "resume_async",
    "rows",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        metadata = importlib.import_module("importlib.metadata")
        try:
            return metadata.version("kforge-kernels")
        except metadata.PackageNotFoundError:
            return "source tree"  # as an experiment's session records it
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'kforge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
