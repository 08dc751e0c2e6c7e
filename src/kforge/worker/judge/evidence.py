"""The evidence of a verdict: what was used, seen, and left unchecked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.types import Candidate, Domain, ErrorNorm, Evidence, Settings, TensorLayout, Timing
from kforge.worker.judge import machine
from kforge.worker.judge.integrity import Observation
from kforge.worker.judge.parameters import Match
from kforge.worker.judge.problem_cases import ProblemCases
from kforge.worker.sandbox import levels


@dataclass
class EvaluationFindings:
    """What an evaluation has gathered so far."""

    errors: list[ErrorNorm] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    observed: Observation | None = None
    custom_share: float | None = None
    """The share of a call's time outside torch's operators."""
    timing: Timing | None = None
    sanitized: tuple[str, ...] = ()
    hazards: list[str] = field(default_factory=list)
    generality: list[str] = field(default_factory=list)
    layouts: list[TensorLayout] = field(default_factory=list)
    """The candidate's parameters and buffers as it was loaded."""
    domain: Domain | None = None
    marks: list[tuple[str, float]] = field(default_factory=list)
    """(Phase, when it began)."""


def make_evidence(
    cases: ProblemCases, candidate: Candidate, settings: Settings, level: str, findings: EvaluationFindings
) -> Evidence:
    """Everything needed to believe a verdict, or to run it again."""
    platform = cases.device.platform
    counted: dict[str, int] = {}
    for operator in findings.observed.operators if findings.observed else ():
        counted[operator.name] = counted.get(operator.name, 0) + 1
    return Evidence(
        problem=cases.problem,
        candidate=candidate,
        settings=replace(settings, seed=cases.seed),
        device=platform.facts(cases.device.number),
        versions=machine.versions(platform.compilers()),
        distributions=tuple(error.distribution for error in findings.errors),
        parameters=tuple(map(str, findings.matches)),
        operators=tuple(f"{name} x{count}" for name, count in counted.items()),
        native=findings.observed.native if findings.observed else (),
        unchecked=tuple(_list_unchecked(cases, level, findings)),
        seconds=machine.phase_seconds(findings.marks),
        sanitized=findings.sanitized,
    )


def _list_unchecked(cases: ProblemCases, level: str, findings: EvaluationFindings) -> list[str]:
    unchecked = [*cases.unchecked, *levels.shortcomings(level)]
    if findings.observed is not None:
        unchecked.append("operators and custom share: as the runner's own process reported them")
    device = cases.device
    if device.platform.emulated:
        unchecked.append("the hardware: it ran on an emulator; the real compiler may refuse it, and round differently")
    if findings.timing is not None and not device.platform.flushes_cache:
        unchecked.append("timing: caches are not flushed on this platform; inputs rotate instead")
    if device.has_own_memory and not device.supports_ipc:
        unchecked.append("memory: processes cannot share the device's memory; inputs and outputs went through the host")
    if device.platform.sanitizers and not findings.sanitized:
        unchecked.append("memory faults and races that leave no trace in the outputs (--sanitize looks for them)")
    if cases.reference.training and any("running" in name for name in cases.initial_state):
        unchecked.append("state: whether forward updates running statistics as the reference does")
    return unchecked
