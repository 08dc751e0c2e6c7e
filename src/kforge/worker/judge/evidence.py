"""The evidence of a verdict: what was used, seen, and left unchecked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from kforge.types import Candidate, Domain, ErrorNorm, Evidence, Settings, Timing
from kforge.worker.judge import machine
from kforge.worker.judge.integrity import Observation
from kforge.worker.judge.parameters import Match
from kforge.worker.judge.session import ProblemSession
from kforge.worker.sandbox import levels


@dataclass
class WorkloadFindings:
    """What was gathered of a candidate on one workload, beside its checked calls."""

    notes: list[str] = field(default_factory=list)
    observed: Observation | None = None
    custom_share: float | None = None
    """The share of a call's time outside torch's operators."""
    timing: Timing | None = None


@dataclass
class EvaluationFindings:
    """What an evaluation has gathered of a candidate."""

    errors: list[ErrorNorm] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    observed: list[Observation] = field(default_factory=list)
    """Of the calls that were watched, one for each workload."""
    timing: Timing | None = None
    sanitized: tuple[str, ...] = ()
    hazards: list[str] = field(default_factory=list)
    generality: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    """Sizes inside the declared ranges on which it was right."""
    domain: Domain | None = None
    marks: list[tuple[str, float]] = field(default_factory=list)
    """(Phase, when it began)."""


def make_evidence(
    session: ProblemSession, candidate: Candidate, settings: Settings, level: str, findings: EvaluationFindings
) -> Evidence:
    """Everything needed to believe a verdict, or to run it again."""
    cases = session.cases
    platform = cases.device.platform
    counted: dict[str, int] = {}
    for observed in findings.observed:
        for name, count in Counter(operator.name for operator in observed.operators).items():
            counted[name] = max(count, counted.get(name, 0))
    native = tuple(dict.fromkeys(path for observed in findings.observed for path in observed.native))
    return Evidence(
        problem=session.problem,
        candidate=candidate,
        settings=replace(settings, seed=session.seed),
        device=platform.facts(cases.device.number),
        versions=machine.versions(platform.compilers()),
        distributions=tuple(error.distribution for error in findings.errors),
        parameters=tuple(map(str, findings.matches)),
        operators=tuple(f"{name} x{count}" for name, count in counted.items()),
        native=native,
        unchecked=tuple(_list_unchecked(session, level, findings)),
        seconds=machine.phase_seconds(findings.marks),
        sanitized=findings.sanitized,
        held_out=tuple(findings.held_out),
        identity=platform.identity(cases.device.number),
    )


def _list_unchecked(session: ProblemSession, level: str, findings: EvaluationFindings) -> list[str]:
    cases = session.cases
    known = [reason for each in session.workloads for reason in each.cases.unchecked]
    unchecked = [*dict.fromkeys(known), *levels.shortcomings(level)]
    if findings.observed:
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
