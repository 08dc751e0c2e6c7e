"""`kforge verify`: an exported package, judged on this machine against its own reference."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from rich.markup import escape

from kforge.cli.claim import ClaimState, compare_claims
from kforge.cli.evaluate import HOLDS, SENTENCES, Status, VerdictOutput
from kforge.cli.screen import Screen
from kforge.packages.package_process import run_package
from kforge.packages.verification import ReadPackage, doubts, read_package
from kforge.types import Outcome, Settings
from kforge.worker.device_selection import DeviceSelection
from kforge.worker.judge.judge import Judge

_LONGEST_TESTS = 1800


def run(folder: Path, as_json: bool, tests: bool, selection: DeviceSelection = DeviceSelection()) -> int:
    """Judge a package anew and run its own tests; 0 what it claims holds, 1 it does not, 3 cannot tell."""
    package = read_package(folder)
    evidence, show = package.evidence, VerdictOutput(as_json, None)
    # A verdict of its own, on inputs that nobody has seen: a record's seed would draw the same ones again.
    settings = replace(evidence.settings, seed=None, seeds=max(evidence.settings.seeds, Settings().seeds))
    with Judge(package.claim.platform, selection.first) as judge, Status(show) as status:
        verdict = judge.evaluate(package.problem, package.candidate, settings, status.tell)
    check = compare_claims(package.claim.verdict, verdict)
    state, reasons = check.state, list(check.reasons)
    wrong, other = doubts(package)
    if verdict.domain != package.claim.verdict.domain and verdict.outcome is Outcome.CORRECT:
        wrong.append("what it was verified for is not what its record says")
    if other:
        reasons.append(
            f"its runtime is another version's, or was changed ({'; '.join(other)}): export it with this one"
        )
        state = ClaimState.UNDECIDED if state is ClaimState.HOLDS else state
    state = ClaimState.FAILS if wrong else state
    reasons += wrong
    # Its tests run the program in a process like any user's, outside the sandbox: only what was found correct.
    tested = _run_tests(package) if tests and verdict.outcome is Outcome.CORRECT else None
    if tested is not None and tested[0] not in (0, None):
        state = ClaimState.FAILS
    if as_json:
        answer = {
            "package": package.name,
            "claim_state": state.value,
            "holds": HOLDS[state],
            "reasons": reasons,
            "claimed": package.claim.verdict.detail,
            "now": verdict.detail,
            "outcome": verdict.outcome.value,
            "tests": tested[1] if tested is not None else None,
        }
        print(json.dumps(answer))
        return state.exit_status
    console = Screen()
    intact = "changed since it was exported" if wrong or other else "its files are what its record makes"
    console.print(f"[bold]{escape(package.name)}[/]: {intact}", highlight=False)
    console.print(f"claimed: {escape(package.claim.verdict.headline)}", highlight=False)
    console.print(f"now:     {verdict.outcome.value}: {escape(verdict.headline)}", highlight=False)
    for reason in reasons:
        console.print(f"  {escape(reason)}", highlight=False, soft_wrap=True)
    if tested is not None:
        console.print(f"tests:   {escape(tested[1])}", highlight=False, soft_wrap=True)
    console.print(SENTENCES[state])
    return state.exit_status


def _run_tests(package: ReadPackage) -> tuple[int | None, str]:
    """(Exit status, last line) of the package's own tests; no status where they cannot be run."""
    root = package.home.parent.parent if package.home.parent.name == "build" else package.home.parent
    if not (root / "tests").is_dir():
        return None, "not here: an installed package has none"
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "tests"]
    try:
        done = run_package(words, root.absolute(), _LONGEST_TESTS)
    except subprocess.TimeoutExpired:
        return 1, f"not finished after {_LONGEST_TESTS // 60} minutes"
    if "No module named pytest" in done.stderr:
        return None, "not run: pytest is not installed (pip install pytest)"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode, lines[-1] if lines else f"pytest ended with status {done.returncode}"
