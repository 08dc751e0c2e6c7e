"""What trials cost: tokens, time waiting for models, time of the judge by phase, time of the device."""

from __future__ import annotations

from dataclasses import dataclass, field

from kforge.types import Trial


@dataclass(frozen=True)
class Cost:
    """What one trial cost, everything tried included; or several together."""

    programs: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model_seconds: float = 0.0
    """From a question to its reply."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of verdicts, by phase."""
    profile_seconds: float = 0.0
    device_seconds: float = 0.0
    """How long the device was held, confirmations not included."""

    def __add__(self, other: Cost) -> Cost:
        names = dict.fromkeys((*self.phases, *other.phases))
        return Cost(
            self.programs + other.programs,
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.model_seconds + other.model_seconds,
            {name: self.phases.get(name, 0.0) + other.phases.get(name, 0.0) for name in names},
            self.profile_seconds + other.profile_seconds,
            self.device_seconds + other.device_seconds,
        )


def cost(trial: Trial) -> Cost:
    """What this trial cost; a program that was not judged again is counted once."""
    phases: dict[str, float] = {}
    judged = {attempt.candidate.id: attempt for attempt in reversed(trial.history) if attempt.candidate}
    for attempt in judged.values():
        for name, seconds in (attempt.verdict.evidence.seconds if attempt.verdict.evidence else {}).items():
            phases[name] = phases.get(name, 0.0) + seconds
    return Cost(
        len(trial.history),
        trial.usage.requests,
        trial.usage.input_tokens,
        trial.usage.output_tokens,
        sum(attempt.seconds.get("model", 0.0) for attempt in trial.history),
        phases,
        sum(attempt.judging.get("profiles", 0.0) for attempt in judged.values()),
        sum(attempt.judging.get("device", 0.0) for attempt in judged.values()),
    )
