"""Everything about one problem, packed: the page unpacks it when a reader opens the problem."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kforge.metrics.problem_results import flaws
from kforge.metrics.second_judgement import SecondJudgement, second_judgement
from kforge.reports import number_format
from kforge.reports.changes import edits
from kforge.reports.workload_rows import HEADS, workload_rows
from kforge.types import Attempt, BaselineTime, Outcome, Study, Timing, Trial, Verdict
from kforge.visible_text import visible

_LONGEST = 20_000
"""The most characters of one text; a compiler can say a great deal more."""


@dataclass(frozen=True)
class PackedDetails:
    """One problem's details."""

    problem: str
    data: str
    """Base64 of zlib's deflate of JSON."""


def pack_all(study: Study) -> tuple[PackedDetails, ...]:
    """The details of each problem, packed, in the study's order."""
    by_problem: dict[str, list[Trial]] = {}
    for trial in study.trials:
        by_problem.setdefault(trial.cell.problem, []).append(trial)
    return tuple(
        PackedDetails(problem, pack(problem_details(problem, trials))) for problem, trials in by_problem.items()
    )


def pack(value: Any) -> str:
    text = json.dumps(_visible(value), ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def _visible(value: Any) -> Any:
    """The value with every text in it visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {key: _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, (list, tuple)) else value


def unpack(data: str) -> Any:
    """The value that was packed: what script.js must do with it; for tests."""
    return json.loads(zlib.decompress(base64.b64decode(data)))


def problem_details(problem: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """What the page shows of a problem, as JSON."""
    return {
        "problem": problem,
        "level": trials[0].level,
        "source": next((trial.source for trial in trials if trial.source), ""),
        "trials": [_trial(trial) for trial in trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    best = trial.best
    return {
        "platform": trial.cell.platform,
        "configuration": trial.cell.configuration,
        "seed": trial.cell.seed,
        "state": trial.state,
        "reason": _short(trial.reason),
        "run": trial.run,
        "verdict": _verdict(trial.verdict, trial) if trial.verdict else None,
        "best": None if best is None else trial.history.index(best),
        "attempts": [_attempt(attempt, trial.history) for attempt in trial.history],
    }


def _verdict(verdict: Verdict, trial: Trial) -> dict[str, Any]:
    judged = second_judgement(trial)
    return {
        "outcome": verdict.outcome.value,
        "emulated": verdict.emulated,
        "speedup": number_format.times(verdict.speedup),
        "headline": verdict.headline,
        "detail": _short(verdict.detail),
        "facts": _facts(verdict, judged),
        "workloads": [list(HEADS), *workload_rows(verdict)] if verdict.workloads else [],
        "errors": [
            [norm.inputs, f"{norm.norm:.1e}", f"{norm.norm_limit:.0e}", f"{norm.worst:.2f}"] for norm in verdict.errors
        ],
        "notes": [*(f"degenerate: {why}" for why in flaws(trial)), *verdict.notes, *_flags(verdict)],
        "unchecked": list(verdict.evidence.unchecked) if verdict.evidence else [],
    }


def _baseline(item: BaselineTime) -> str:
    if not item.ratio:
        return f"{item.name}: {item.note}"
    return f"{item.name} {number_format.times(item.ratio)}" + (" (lower precision)" if item.precision else "")


def _facts(verdict: Verdict, judged: SecondJudgement | None) -> list[list[str]]:
    facts = []
    if judged is not None:
        facts.append(["judged", "once more, on fresh inputs, after it had won"])
        if judged.sentence:
            facts.append(["both judgements", judged.sentence])
    if verdict.rule:
        facts.append(["rule", verdict.rule])
    if verdict.timing:
        timing = verdict.timing
        low, high = (number_format.times(end) for end in timing.interval)
        contended = "; contended" if timing.contended else ""
        figures = f"{number_format.times(timing.speedup)} (95 %: {low} to {high}{contended})"
        facts.append([f"speedup against {timing.baseline}", figures])
        facts.append(["speedup against the best baseline", number_format.times(timing.speedup_vs_best)])
        if timing.score_text:
            facts.append(["score", timing.score_text])
        named = ", ".join(map(_baseline, timing.baselines))
        facts.append(["baselines (eager = 1)", named or number_format.NONE])
        facts.append(["measured", _measured(verdict, timing)])
    elif verdict.emulated and verdict.outcome is Outcome.CORRECT:
        facts.append(["timing", "none: right on an emulator, not run on the hardware it is for"])
    if verdict.custom_share is not None:
        facts.append(["time in its own code", number_format.percent(verdict.custom_share)])
    if verdict.evidence and verdict.evidence.held_out:
        facts.append(["held-out sizes", "; ".join(verdict.evidence.held_out)])
    if verdict.sandbox:
        facts.append(["sandbox", verdict.sandbox])
    return facts


def _measured(verdict: Verdict, timing: Timing) -> str:
    """How much was measured; the figures of several workloads are means over them."""
    if verdict.workloads:
        calls = sum(item.timing.checked_calls for item in verdict.workloads if item.timing is not None)
        return f"on {len(verdict.workloads)} workloads, geometric mean by weight; {calls} calls verified"
    return f"{len(timing.candidate_ns)} blocks of {timing.calls_per_block} calls, {timing.checked_calls} verified"


def _flags(verdict: Verdict) -> tuple[str, ...]:
    return verdict.timing.flags if verdict.timing else ()


def _attempt(attempt: Attempt, history: Sequence[Attempt]) -> dict[str, Any]:
    move, verdict = attempt.move, attempt.verdict
    priced = not attempt.usage.unpriced and attempt.usage.requests
    return {
        "step": f"{move.chain + 1}.{move.step}",
        "intent": move.intent.value,
        "parent": None if move.parent is None else f"{move.chain + 1}.{move.parent}",
        "outcome": verdict.outcome.value,
        "rule": verdict.rule,
        "speedup": number_format.times(verdict.speedup) if verdict.timing else "",
        "interval": " to ".join(number_format.times(end) for end in verdict.interval) if verdict.interval else "",
        "headline": verdict.headline,
        "detail": _short(verdict.detail),
        "model": attempt.model,
        "advice": _short(_advice(attempt)),
        "evidence": _short(attempt.recommendation.evidence) if attempt.recommendation else "",
        "seconds": {name: round(value, 2) for name, value in attempt.seconds.items() if value >= 0.005},
        "tokens": number_format.amount(attempt.usage.tokens) if attempt.usage.tokens else "",
        "dollars": number_format.money(attempt.usage.dollars) if priced else "",
        "digest": attempt.digest.text if attempt.digest else "",
        "notes": list(attempt.notes),
        **_program(attempt, history),
    }


def _advice(attempt: Attempt) -> str:
    """The advice an attempt followed, or that it did not."""
    text = attempt.recommendation.text if attempt.recommendation else ""
    return f"not applied, the program came back unchanged: {text}" if text and attempt.unchanged else text


def _program(attempt: Attempt, history: Sequence[Attempt]) -> dict[str, Any]:
    """An attempt's program: whole, or as what it changed in its parent, since programs of one chain are much alike."""
    if attempt.candidate is None:
        return {"base": None, "program": None}
    move = attempt.move
    for place, other in enumerate(history):
        if (
            other.candidate
            and (other.move.chain, other.move.step) == (move.chain, move.parent)
            and other is not attempt
        ):
            return {"base": place, "program": edits(visible(other.candidate.source), visible(attempt.candidate.source))}
    return {"base": None, "program": attempt.candidate.source}


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}\n({len(text) - _LONGEST} more characters are in the store)"
