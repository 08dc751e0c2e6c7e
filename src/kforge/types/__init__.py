"""Every value that flows through KForge, as frozen records, in flow order.

    evaluation.py  Problem + Candidate + Settings -> Job -> Verdict (with its Evidence), Profile -> Report
    messages.py    Prompt -> Completion, with what it used
    run.py         Request -> Move -> Recommendation -> Attempt: the record a run is made of
    experiment.py  Experiment -> Cell -> Trial -> Study: many runs, and what a report is made from

Each one is JSON-serialisable through `kforge.jsonable` and comes back equal.
"""

from kforge.types.evaluation import (
    EVIDENCE_VERSION,
    Artefact,
    BaselineName,
    BaselineTime,
    Candidate,
    Domain,
    ErrorNorm,
    Evidence,
    Image,
    Job,
    Limits,
    Outcome,
    Policy,
    Problem,
    Profile,
    Report,
    SandboxChoice,
    Settings,
    TensorLayout,
    Timing,
    Verdict,
    text_hash,
)
from kforge.types.experiment import Cell, Configuration, Experiment, Session, Study, Trial, TrialState
from kforge.types.messages import Completion, Finish, Message, ModelSettings, Prompt, Usage
from kforge.types.run import (
    Attempt,
    Budget,
    Digest,
    Intent,
    Move,
    Plan,
    Recommendation,
    Request,
    Signal,
    Stop,
    best_attempt,
)

__all__ = [
    "EVIDENCE_VERSION",
    "Artefact",
    "Attempt",
    "BaselineName",
    "BaselineTime",
    "Budget",
    "Candidate",
    "Cell",
    "Completion",
    "Configuration",
    "Digest",
    "Domain",
    "ErrorNorm",
    "Evidence",
    "Experiment",
    "Finish",
    "Image",
    "Intent",
    "Job",
    "Limits",
    "Message",
    "ModelSettings",
    "Move",
    "Outcome",
    "Plan",
    "Policy",
    "Problem",
    "Profile",
    "Prompt",
    "Recommendation",
    "Report",
    "Request",
    "SandboxChoice",
    "Session",
    "Settings",
    "Signal",
    "Stop",
    "Study",
    "TensorLayout",
    "Timing",
    "Trial",
    "TrialState",
    "Usage",
    "Verdict",
    "best_attempt",
    "text_hash",
]
