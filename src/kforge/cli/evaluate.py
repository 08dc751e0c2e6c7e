"""`kforge evaluate`: one candidate, a batch, or a record to run again."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from kforge.cli import render
from kforge.cli.claim import ClaimState, compare_claims
from kforge.cli.evidence_file import load_evidence, save_evidence
from kforge.cli.screen import Screen
from kforge.errors import UsageError
from kforge.problems import find
from kforge.types import Job, Outcome, ProblemForm, Report, Settings
from kforge.worker.device_selection import DeviceSelection
from kforge.worker.jobs import Done, read_candidate, read_jobs, run_jobs
from kforge.worker.judge.judge import Judge

HOLDS = {ClaimState.HOLDS: True, ClaimState.FAILS: False, ClaimState.UNDECIDED: None}
"""For JSON: null is neither."""
SENTENCES = {
    ClaimState.HOLDS: "[green]the claim holds[/]",
    ClaimState.FAILS: "[red]the claim does not hold[/]",
    ClaimState.UNDECIDED: "[yellow]cannot tell whether the claim holds[/]: measure again on a quiet machine",
}


@dataclass(frozen=True)
class VerdictOutput:
    """Where the answer goes."""

    as_json: bool
    evidence: Path | None


def single(
    problem_name: str,
    candidate_path: Path,
    platform: str,
    settings: Settings,
    show: VerdictOutput,
    selection: DeviceSelection = DeviceSelection(),
    form: ProblemForm = ProblemForm(),
) -> int:
    problems = [problem.in_form(form) for problem in find(problem_name)]
    if len(problems) != 1:
        raise UsageError(f"{problem_name} holds {len(problems)} problems; name one, or use --jobs")
    candidate = read_candidate(candidate_path, platform)
    with Judge(platform, selection.first) as judge, Status(show) as status:
        verdict = judge.evaluate(problems[0], candidate, settings, status.tell)
    report = Report(candidate_path.stem, problems[0].name, candidate.id, platform, verdict)
    if show.evidence is not None:
        save_evidence(show.evidence, report)
    if show.as_json:
        print(json.dumps(render.flat(report)))
    else:
        render.print_verdict(Screen(), report)
        if show.evidence is not None:
            Screen().print(f"evidence: {show.evidence}", style="dim", highlight=False)
    return 0 if verdict.outcome is Outcome.CORRECT else 1


def batch(
    jobs_path: Path,
    out: Path,
    platform: str,
    settings: Settings,
    show: VerdictOutput,
    selection: DeviceSelection = DeviceSelection(),
    form: ProblemForm = ProblemForm(),
) -> int:
    jobs = read_jobs(jobs_path, settings, platform, form)
    if not jobs:
        raise UsageError(f"{jobs_path}: no job in it")
    console = Screen()
    width = max(len(job.id) for job in jobs)
    finished = 0

    def tell(done: Done) -> None:
        nonlocal finished
        finished += 1
        if show.as_json:
            print(
                json.dumps(render.flat(done.report) if done.report else {"job": done.job.id, "error": done.error}),
                flush=True,
            )
        else:
            render.print_batch_line(console, done, finished, len(jobs), width)

    try:
        with Status(show) as status:

            def progress(job: Job, what: str) -> None:
                status.tell(f"{job.id}: {what}")

            results = run_jobs(
                jobs, out, platform, tell, progress, builders=selection.builders, devices=selection.devices
            )
    except KeyboardInterrupt:
        print(f"stopped after {finished} of {len(jobs)}; the same command continues", file=sys.stderr)
        return 130
    if not show.as_json:
        render.print_batch_summary(console, results, out)
    if any(done.report is None for done in results):
        return 2
    return 0 if all(done.report and done.report.verdict.outcome is Outcome.CORRECT for done in results) else 1


def replay(path: Path, show: VerdictOutput, selection: DeviceSelection = DeviceSelection(), problem: str = "") -> int:
    """Re-run a record and hold the new verdict against the old one; 0 it holds, 1 it does not, 3 cannot tell.

    `problem` names the problem of a record that leaves its text out.
    """
    claim = load_evidence(path, find(problem)[0] if problem else None)
    evidence = claim.verdict.evidence
    if evidence is None:
        raise UsageError(f"{path}: the record carries no evidence")
    with Judge(claim.platform, selection.first) as judge, Status(show) as status:
        verdict = judge.evaluate(evidence.problem, evidence.candidate, evidence.settings, status.tell)
    check = compare_claims(claim.verdict, verdict)
    if show.as_json:
        fresh = Report(claim.job, claim.problem, claim.candidate, claim.platform, verdict)
        answer = {"claim_state": check.state.value, "holds": HOLDS[check.state], "reasons": list(check.reasons)}
        print(json.dumps({**answer, "claim": render.flat(claim), "now": render.flat(fresh)}))
    else:
        console = Screen()
        console.print(f"claimed: {claim.verdict.outcome.value}: {escape(claim.verdict.detail)}", highlight=False)
        console.print(f"now:     {verdict.outcome.value}: {escape(verdict.detail)}", highlight=False)
        for reason in check.reasons:
            console.print(f"  {escape(reason)}", highlight=False, soft_wrap=True)
        console.print(SENTENCES[check.state])
    return check.state.exit_status


class Status:
    """A spinner with the current step on a terminal, nothing elsewhere."""

    def __init__(self, show: VerdictOutput) -> None:
        console = Screen(stderr=True)
        self._status: Any = console.status("starting") if console.is_terminal and not show.as_json else None

    def __enter__(self) -> Status:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def tell(self, what: str) -> None:
        if self._status:
            self._status.update(escape(what))
