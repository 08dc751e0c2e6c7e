"""A winner's two judgements, in the run and once more: on which devices, and whether they agree."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.types import JudgingDevice, Outcome, Speedup, Trial, Verdict


@dataclass(frozen=True)
class SecondJudgement:
    """The verdict by which a program won, and its confirmation."""

    first: Verdict
    second: Verdict

    @property
    def hosts(self) -> tuple[str, str]:
        """Who judged, as a cluster calls them; empty for one that was judged by whoever asked."""
        return _device(self.first).host, _device(self.second).host

    @property
    def is_elsewhere(self) -> bool:
        """Whether the program was confirmed on another device than the one that it won on."""
        return _device(self.second).is_other_than(_device(self.first))

    @property
    def agrees(self) -> bool | None:
        """Whether the intervals meet; None where one has no time, or one that promises nothing."""
        if self.second.outcome is not Outcome.CORRECT:
            return False
        if self.first.interval is None or self.second.interval is None:
            return None
        if self.first.contended or self.second.contended:
            return None
        return self.first.interval[0] <= self.second.interval[1] and self.second.interval[0] <= self.first.interval[1]

    @property
    def sentence(self) -> str:
        """Where it was judged once more, and whether that agrees; empty where neither is known."""
        if self.agrees is None or self.first.speedup is None or self.first.interval is None:
            return f"it was judged once more {self._place}" if self._place else ""
        they = "agree" if self.agrees else "do not agree"
        won = Speedup(self.first.speedup, self.first.interval)
        return f"it won with {won}; judged once more{self._place and ' ' + self._place}, the two {they}"

    @property
    def _place(self) -> str:
        first, second = self.hosts
        if first and second and first != second:
            return f"on {second}, another host than {first}"
        if self.is_elsewhere:
            return f"on another device of {second}" if first and second else "on another device"
        if not second:
            return ""
        if first and _device(self.first) == _device(self.second) and _device(self.first).identity:
            return f"on the same device of {second}"
        return f"on the same host {second}" if first else f"on {second}"


def second_judgement(trial: Trial) -> SecondJudgement | None:
    """Both judgements of a trial's winner; None where it was judged once."""
    if trial.best is None or trial.confirmation is None:
        return None
    return SecondJudgement(trial.best.verdict, trial.confirmation)


def _device(verdict: Verdict) -> JudgingDevice:
    return verdict.evidence.judging_device if verdict.evidence is not None else JudgingDevice()
