"""Clauses that the judge decides: the example, its broken variants, its time, its profiles."""

from __future__ import annotations

import functools
from types import TracebackType

from kforge.platforms.base import Platform
from kforge.testing import broken_variants
from kforge.testing.clauses import Broken, Clause
from kforge.types import Candidate, Job, Outcome, Problem, Profile, Report, Settings, Verdict
from kforge.worker.judge.judge import Judge

_TIMED = Settings(compile_baseline=False, timing_seconds=0.1)
_UNTIMED = Settings(compile_baseline=False, timing_seconds=0, seeds=1)
_NO_EXPLANATION = ("it failed:", "it cannot be used:", "what it was told makes no sense", "it is not a kforge.")
"""How the absence of a profile begins that the profiler did not explain itself."""


class ContractJudge:
    """A platform with one judge and its example; what one clause learns, the next ones know."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        reference, _ = platform.example()
        path = str(platform.home() / "example" / "reference.py")
        self.problem = Problem.from_source(reference, f"{platform.name}_example", path)
        self._judge = Judge(platform.name)

    @functools.cached_property
    def example(self) -> Report:
        """The example, checked, timed and profiled."""
        settings = Settings(
            compile_baseline=_TIMED.compile_baseline,
            timing_seconds=_TIMED.timing_seconds,
            profilers=self.platform.profilers,
        )
        program = Candidate(broken_variants.variant(self.platform, Outcome.CORRECT), self.platform.name)
        return self._judge.report(Job("example", self.problem, program, settings))

    def verdict(self, source: str) -> Verdict:
        """What becomes of a variant."""
        return self.verdict_on(self.problem, source)

    def verdict_on(self, problem: Problem, source: str) -> Verdict:
        """What becomes of a program for another problem."""
        return self._judge.evaluate(problem, Candidate(source, self.platform.name), _UNTIMED)

    def degenerate(self) -> tuple[str, ...]:
        """What the audit says of the example's reference."""
        return self._judge.session(self.problem, _TIMED).degenerate

    def close(self) -> None:
        self._judge.close()

    def __enter__(self) -> ContractJudge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_reference(bench: ContractJudge) -> str:
    """The example's reference is a problem worth solving."""
    reasons = bench.degenerate()
    if not bench.platform.can_time:
        reasons = tuple(reason for reason in reasons if not reason.startswith("too-small-to-time"))
    if reasons:
        raise Broken(f"the example's reference is degenerate: {'; '.join(reasons)}")
    return "its output depends on every input and parameter"


def check_correct(bench: ContractJudge) -> str:
    """The example is correct, by code of its own."""
    verdict = bench.example.verdict
    if verdict.outcome is not Outcome.CORRECT:
        raise Broken(f"the example is not correct but {verdict.outcome.value}: {verdict.headline}")
    if not verdict.custom_share:
        raise Broken("none of the example's time is in code of its own")
    return verdict.headline


def check_gradients(bench: ContractJudge) -> str:
    """The example with gradients, where the platform has one, is correct by code of its own."""
    pair = bench.platform.backward_example()
    if pair is None:
        return "it has no example with gradients"
    problem = Problem.from_source(pair[0], f"{bench.platform.name}_backward_example")
    if not problem.form.backward:
        raise Broken('example/backward_reference.py does not ask for gradients: add KFORGE = {"backward": True}')
    verdict = bench.verdict_on(problem, pair[1])
    if verdict.outcome is not Outcome.CORRECT:
        raise Broken(f"the example with gradients is not correct but {verdict.outcome.value}: {verdict.headline}")
    return verdict.headline


def check_hazards(bench: ContractJudge) -> str:
    """The example raises an error where it would be wrong: what the example leaves out, models leave out."""
    hazards = _correct_verdict(bench).hazards
    if hazards:
        conditions = "; and when ".join(hazards)
        raise Broken(f"the example is silently wrong when {conditions}: have `forward` raise an error there")
    return "it refuses gradients and parameters that its kernel would misread"


def check_timing(bench: ContractJudge) -> str:
    """The example is timed where a time means something, and only there."""
    verdict = _correct_verdict(bench)
    if bench.platform.emulated != verdict.emulated:
        raise Broken(f"emulated is {bench.platform.emulated}, and the verdict says {verdict.emulated}")
    if bench.platform.can_time and verdict.timing is None:
        raise Broken("can_time is True, and the verdict has no time")
    if verdict.timing is None:
        return "emulated, so it carries no time" if verdict.emulated else "can_time is False, so it carries no time"
    if verdict.timing.speedup <= 0:
        raise Broken(f"a speedup of {verdict.timing.speedup} is none")
    return f"{verdict.timing.speedup:.2f} times the speed of {verdict.timing.baseline}"


def check_failure(bench: ContractJudge, outcome: Outcome) -> str:
    """The variant for an outcome ends in it."""
    return _expect_outcome(bench, broken_variants.variant(bench.platform, outcome), outcome)


def check_unused_kernel(bench: ContractJudge) -> str:
    """A kernel that runs beside torch's own work is not taken for it."""
    return _expect_outcome(bench, broken_variants.add_unused_kernel(*bench.platform.example()), Outcome.REJECTED)


def check_profilers(bench: ContractJudge) -> str:
    """Each profiler the platform names reports, or says why it does not."""
    _correct_verdict(bench)
    if not bench.platform.profilers:
        return "it names none"
    return "; ".join(_profile_result(profile) for profile in bench.example.profiles)


CLAUSES: tuple[Clause[ContractJudge], ...] = (
    Clause("sound problem", check_reference),
    Clause("correct", check_correct),
    Clause("gradients", check_gradients),
    Clause("careful", check_hazards),
    Clause("time", check_timing),
    *(
        Clause(outcome.value, functools.partial(check_failure, outcome=outcome))
        for outcome in Outcome
        if outcome is not Outcome.CORRECT
    ),
    Clause("kernel for show", check_unused_kernel),
    Clause("profilers", check_profilers),
)


def _correct_verdict(bench: ContractJudge) -> Verdict:
    verdict = bench.example.verdict
    if verdict.outcome is not Outcome.CORRECT:
        raise Broken("the example is not correct, so nothing can be said")
    return verdict


def _expect_outcome(bench: ContractJudge, source: str, outcome: Outcome) -> str:
    verdict = bench.verdict(source)
    if verdict.outcome is not outcome:
        raise Broken(f"a program that must be {outcome.value} is {verdict.outcome.value}: {verdict.headline}")
    return verdict.headline


def _profile_result(profile: Profile) -> str:
    if profile.absent.startswith(_NO_EXPLANATION) or 0 < len(profile.absent.split()) < 3:
        raise Broken(f"{profile.tool} neither reports nor explains: {profile.absent}")
    if profile.absent:
        return f"{profile.tool} is absent: {profile.absent}"
    if not (profile.text or profile.images):
        raise Broken(f"{profile.tool} reports nothing to read: fill its profile's text, or raise NothingSeen with why")
    return f"{profile.tool} reports"
