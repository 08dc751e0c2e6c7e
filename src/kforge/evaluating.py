"""`kforge.evaluate`: one call, one verdict, with a warm judge kept for the life of the process."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from kforge.errors import UsageError
from kforge.types import Candidate, Problem, Settings, Verdict
from kforge.worker.jobs import read_candidate
from kforge.worker.judge.judge import Judge

_judges: dict[str, Judge] = {}


def evaluate(
    problem: Problem | str | Path, candidate: Candidate | str | Path, platform: str = "cpu", **settings: Any
) -> Verdict:
    """Judge a candidate.

    `problem` is a Problem or a path; `candidate` a Candidate, a path, or the program's text. `settings` are the fields
    of kforge.Settings: baseline, policy, seeds, timing_seconds, sandbox, and so on. A bad candidate gives a Verdict;
    only a bad problem, request or machine raises (kforge.errors).
    """
    if not isinstance(problem, Problem):
        problem = Problem.from_file(problem)
    try:
        wanted = Settings(**settings)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    return shared_judge(platform).evaluate(problem, _as_candidate(candidate, platform), wanted)


def shared_judge(platform: str = "cpu") -> Judge:
    """The process's judge for a platform, started when first asked for and closed at exit."""
    if platform not in _judges:
        _judges[platform] = Judge(platform)
        atexit.register(_judges[platform].close)
    return _judges[platform]


def _as_candidate(candidate: Candidate | str | Path, platform: str) -> Candidate:
    if isinstance(candidate, Candidate):
        return candidate
    if isinstance(candidate, Path) or ("\n" not in candidate and candidate.endswith(".py")):
        return read_candidate(Path(candidate), platform)
    return Candidate(candidate, platform)
