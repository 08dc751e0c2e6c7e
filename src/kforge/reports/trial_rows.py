"""One trial as plain facts: what tables show of it."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.metrics.cost import cost
from kforge.metrics.problem_results import flaws
from kforge.metrics.second_judgement import second_judgement
from kforge.reports.workload_rows import workload_text
from kforge.types import Trial


@dataclass(frozen=True)
class TrialRow:
    """A line of a table. None where nothing is known."""

    problem: str
    level: int | None
    platform: str
    configuration: str
    seed: int
    state: str
    """How far the trial is: new, running, stopped, waiting, failed, finished."""
    outcome: str
    """The state its program ended in, as counted; empty before any."""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: str = ""
    vs_best: float | None = None
    custom_share: float | None = None
    roofline: float | None = None
    """Share of the roofline that the winner reaches."""
    confirmed: bool | None = None
    """Whether the winner was still correct when judged once more; None where that was not done."""
    emulated: bool = False
    degenerate: str = ""
    """Why a win on this problem means nothing."""
    attempts: int = 0
    best_step: str = ""
    """The winner's chain and step, from 1: 1.3."""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None
    """The cost; None where a price is not known."""
    seconds: float = 0.0
    model_seconds: float = 0.0
    judge_seconds: float = 0.0
    profile_seconds: float = 0.0
    device_seconds: float = 0.0
    """How long the device was held."""
    models: str = ""
    run: str = ""
    reason: str = ""
    contended: float | None = None
    """Share of the machine that others took while it was timed."""
    score: float | None = None
    """The score against the machine's limit: 1 at it, 0.5 where eager is."""
    limit: str = ""
    """How that limit was found."""
    workloads: str = ""
    """The speedup on each workload, where the problem has several."""
    first_on: str = ""
    """The host of a cluster that its winner won on, where it was judged once more."""
    confirmed_on: str = ""
    """The host that judged it once more."""
    agrees: bool | None = None
    """Whether the intervals of both measurements meet; None where one of them promises nothing."""

    @property
    def unsure(self) -> bool:
        """Whether the program counts as faster than its baseline, though its interval says that it may not be."""
        counts = self.state == "finished" and self.outcome == "correct" and not self.degenerate
        return counts and self.speedup is not None and self.speedup > 1 and self.low is not None and self.low <= 1

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def row(trial: Trial) -> TrialRow:
    """What a table shows of this trial."""
    verdict, best, cell = trial.verdict, trial.best, trial.cell
    spent, judged = cost(trial), second_judgement(trial)
    low, high = (verdict and verdict.interval) or (None, None)
    return TrialRow(
        problem=cell.problem,
        level=trial.level,
        platform=cell.platform,
        configuration=cell.configuration,
        seed=cell.seed,
        state=trial.state,
        outcome=verdict.outcome.value if verdict else "",
        speedup=verdict.speedup if verdict else None,
        low=low,
        high=high,
        contended=verdict.timing.contended if verdict and verdict.timing else None,
        baseline=verdict.timing.baseline if verdict and verdict.timing else "",
        vs_best=verdict.speedup_vs_best if verdict else None,
        custom_share=verdict.custom_share if verdict and best else None,
        roofline=best.digest.value("roofline_share") if best and best.digest else None,
        confirmed=trial.confirmation.outcome.value == "correct" if best and trial.confirmation else None,
        agrees=judged.agrees if judged else None,
        first_on=judged.hosts[0] if judged else "",
        confirmed_on=judged.hosts[1] if judged else "",
        emulated=bool(verdict and verdict.emulated),
        degenerate="; ".join(flaws(trial)),
        attempts=len(trial.history),
        best_step=f"{best.move.chain + 1}.{best.move.step}" if best else "",
        requests=trial.usage.requests,
        input_tokens=trial.usage.input_tokens,
        output_tokens=trial.usage.output_tokens,
        dollars=None if trial.usage.unpriced else trial.usage.dollars,
        seconds=trial.seconds,
        model_seconds=spent.model_seconds,
        judge_seconds=sum(attempt.seconds.get("judge", 0.0) for attempt in trial.history),
        profile_seconds=spent.profile_seconds,
        device_seconds=spent.device_seconds,
        models=", ".join(dict.fromkeys(attempt.model for attempt in trial.history if attempt.model)),
        run=trial.run,
        reason=trial.reason,
        score=verdict.score if verdict else None,
        limit=verdict.timing.limit.how if verdict and verdict.timing and verdict.timing.limit else "",
        workloads=workload_text(verdict),
    )
