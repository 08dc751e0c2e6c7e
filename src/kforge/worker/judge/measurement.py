"""The timed part of an evaluation: baselines, the interleaved timer, and what its samples are worth."""

from __future__ import annotations

from collections.abc import Callable

from kforge.types import BaselineTime, Outcome, Settings, Timing
from kforge.worker.judge import code_samples, integrity, interleaved_timer, machine, statistics
from kforge.worker.judge.baselines import wanted_baselines
from kforge.worker.judge.compare import Tolerance
from kforge.worker.judge.device_lane import DeviceLane
from kforge.worker.judge.evidence import WorkloadFindings
from kforge.worker.judge.held_lane import REUSED, HeldLane
from kforge.worker.judge.lane import Lane
from kforge.worker.judge.refusal import Refused, refuse_nonsense
from kforge.worker.judge.runner_handle import RunnerHandle
from kforge.worker.judge.session import WorkloadSession
from kforge.worker.matrix_precision import allows
from kforge.worker.protocol.calls import MeasurePeakMemory

_IMPLAUSIBLE = 20.0
"""A speedup beyond this is looked at again, every call verified."""
_WIDE = 0.2
"""Half an interval's width, on a log scale, beyond which it is measured once more: high over low about 1.5."""
_CLOCK_CHARGED = 0.05
_CLOCK_REFUSED = 0.5
_LOOKS = 3
"""Measurements in which the clocks must disagree before anybody is refused for it."""
_CLOCK_NOISE_NS = 20_000.0
_HOST_SHARE = 0.15
"""By how much the processor's part of a call differs from one process to the next, all else equal, beside a device."""
_BARE_NOISE_NS = 100_000.0
_WATCHED_AGAIN = 4
_HELD_BACK = 1.2
"""A baseline that is slower than this beside a candidate, where its times otherwise repeat, is being held back."""


class Measurement:
    """Times one candidate against the baseline its user named."""

    def __init__(
        self,
        session: WorkloadSession,
        settings: Settings,
        tolerance: Tolerance,
        findings: WorkloadFindings,
        refuse_findings: Callable[[RunnerHandle], None],
        known_folders: tuple[str, ...] = (),
    ) -> None:
        self._session = session
        self._cases = session.cases
        self._device = session.cases.device
        self._baselines = session.baselines
        self._timed_inputs = session.timed_inputs
        self._settings = settings
        self._tolerance = tolerance
        self._findings = findings
        self._refuse_findings = refuse_findings
        self._known = known_folders

    def take(self, runner: RunnerHandle, seconds: float, usual_layout: bool, tell: Callable[[str], None]) -> Timing:
        """The timing of a candidate whose outputs are known to be right; Refused where it cannot be believed."""
        # Baselines are measured on their own.
        runner.stop()
        tell("preparing baselines")
        baselines = self._baselines.ratios(wanted_baselines(self._settings, self._device.platform))
        name = self._choose_baseline(baselines)
        baseline = self._baselines.lane(name)
        deviation = self._baselines.self_deviation()
        tell("timing")
        lane = self._timed_inputs.lane(runner, seconds)
        before = (self._peak(runner), self._peak(baseline.runner))
        flags: list[str] = []
        busy = self._device.platform.busy_because(self._device.number)
        samples = self._timer(runner, lane, baseline, every=False)
        held = 1.0
        if self._is_held_back(samples, name):
            samples, held = self._look_again(runner, lane, baseline, name)
            flags.append("the baseline was slow beside it: measured again")
        for look in range(_LOOKS):
            if not self._clocks_disagree(samples, usual_layout):
                break
            if look + 1 == _LOOKS:
                self._refuse_two_clocks(samples)
            with self._device.background.quiet():
                samples = self._timer(runner, lane, baseline, every=False)
            flags.append("the two clocks disagreed: measured again")
        if self._hides_work(samples):
            with self._device.background.quiet():
                samples = self._timer(runner, lane, baseline, every=False)
            flags.append("called again and again it took longer: measured again")
        # Of several workloads the mean counts, in which a wide interval is one of many.
        if samples.width() > (2 * _WIDE if self._session.is_further else _WIDE):
            # Both count: whoever keeps one of two measurements can be made to keep the better one.
            with self._device.background.quiet():
                samples = samples.merge(self._timer(runner, lane, baseline, every=False))
            flags.append("wide interval: measured again, both count")
        speedup, interval, excess = self._result(samples, deviation)
        if speedup > _IMPLAUSIBLE:
            with self._device.background.quiet():
                samples = self._timer(runner, lane, baseline, every=True)
            speedup, interval, excess = self._result(samples, deviation)
            flags.append(f"beyond {_IMPLAUSIBLE:.0f}x: measured again with every timed call verified")
        if not samples.baseline_seen:
            speedup, interval = speedup / held, (interval[0] / held, interval[1])
        contended = self._contention(samples, busy, flags)
        if isinstance(lane, HeldLane) and not self._device.has_own_memory:
            self._refuse_library_work(lane, statistics.median(samples.candidate))
        if samples.charged > _CLOCK_CHARGED:
            what = "was taken from the judge's own work right before and after its calls, and is charged to it"
            self._findings.notes.append(f"{samples.charged:.0%} of its time {what}")
        outside = isinstance(baseline, DeviceLane) and not baseline.at_a_time
        if outside:
            self._findings.notes.append("calls cannot be launched ahead: launching is part of the time, on both sides")
        ratio = baselines[name].ratio or 1.0
        best = max((item.ratio for item in self._matched(baselines) if item.ratio), default=1.0)
        if samples.copied_because:
            self._findings.notes.append(
                f"{samples.copied_because}; what it takes to copy it out in time is charged to it"
            )
        elif samples.reused:
            self._findings.notes.append(REUSED)
        peaks = self._peaks(lane, baseline, before)
        self._baselines.release_memory(baseline)
        return Timing(
            baseline=name,
            speedup=speedup,
            interval=interval,
            # Baselines were held against each other without launching.
            speedup_vs_best=speedup * ratio / best if "compile" in baselines and not outside else None,
            candidate_ns=tuple(samples.candidate),
            baseline_ns=tuple(samples.baseline),
            calls_per_block=samples.calls_per_block,
            checked_calls=samples.checked,
            baselines=tuple(baselines.values()),
            clock_excess=excess,
            peak_bytes=peaks,
            conditions={**machine.conditions(), **self._device.platform.conditions(self._device.number)},
            flags=tuple(dict.fromkeys(flags)),
            contended=contended,
        )

    def _refuse_library_work(self, lane: HeldLane, call_ns: float) -> None:
        """Refuse a library that computes past torch's operators, beside a kernel that only seems to."""
        observed = self._findings.observed
        if self._settings.policy == "any" or observed is None:
            return
        self._findings.custom_share = integrity.custom_share(observed, call_ns)
        in_operators = _operator_share(observed, call_ns)
        samples = code_samples.sample(lane, self._timed_inputs, self._known, in_operators, self._session.is_further)
        for _ in range(_WATCHED_AGAIN):
            if not code_samples.is_library_work(samples, in_operators):
                return
            # Once more: what operators took is known from one call, which may have been a quick one.
            again = self._watch_again(lane, observed.native)
            in_operators = max(in_operators, _operator_share(again, call_ns))
        if code_samples.is_library_work(samples, in_operators):
            names = ", ".join(name for name, _ in samples.libraries.most_common(2))
            what = f"in {samples.library_share():.0%} of {samples.count} moments its work was done by {names}"
            raise Refused(Outcome.REJECTED, f"{what}, past torch's operators", "library_compute")

    def _watch_again(self, lane: Lane, native: tuple[str, ...]) -> integrity.Observation:
        seeds = (self._cases.derive("watched again", 0), self._cases.derive("watched again", 1))
        with refuse_nonsense():
            return integrity.read_observation(*lane.observe(0, seeds), native)

    def _choose_baseline(self, baselines: dict[str, BaselineTime]) -> str:
        wanted = self._settings.baseline
        if wanted == "best":
            return max(self._matched(baselines), key=lambda item: item.ratio or 0.0).name
        known = baselines.get(wanted)
        if known is None or known.ratio is None:
            reason = known.note if known is not None else f"platform {self._device.platform.name} has none"
            self._findings.notes.append(f"baseline {wanted} is not available ({reason}); eager was used")
            return "eager"
        return wanted

    def _matched(self, baselines: dict[str, BaselineTime]) -> list[BaselineTime]:
        """The baselines whose results would be accepted of the candidate, in the precision it is allowed."""
        return [item for item in baselines.values() if allows(self._settings.precision, item.precision)]

    def _peaks(self, lane: Lane, baseline: Lane, before: tuple[int, int]) -> tuple[int, int]:
        """The most memory that either side took for its calls."""
        if not self._device.has_own_memory:
            return self._peak(lane.runner) - before[0], self._peak(baseline.runner) - before[1]
        peaks = []
        for side in (lane, baseline):
            if isinstance(side, DeviceLane):
                # Blocks hold the outputs of many calls; one call is what counts.
                side.drop_outputs()
                self._peak(side.runner)
                side.call_once()
            peaks.append(self._peak(side.runner))
        return peaks[0], peaks[1]

    def _peak(self, runner: RunnerHandle) -> int:
        if not self._device.has_own_memory:
            return runner.peak_bytes()
        peak = runner.ask(MeasurePeakMemory(), 30.0).peak_bytes
        return peak if 0 <= peak < 1 << 60 else 0

    def _timer(self, runner: RunnerHandle, lane: Lane, baseline: Lane, every: bool) -> interleaved_timer.Samples:
        timer = self._baselines.timer(lane, baseline, self._settings.timing_seconds, self._tolerance, every)
        timer.is_warm = self._session.is_further
        samples = timer.run()
        self._refuse_findings(runner)
        return samples

    def _is_held_back(self, samples: interleaved_timer.Samples, name: str) -> bool:
        """Whether the baseline took longer than it did against itself, on a device where that repeats."""
        usual = self._baselines.usual_ns(name)
        seen = samples.baseline_seen or samples.baseline
        return self._device.has_own_memory and usual > 0 and statistics.median(seen) > _HELD_BACK * usual

    def _look_again(
        self, runner: RunnerHandle, lane: Lane, baseline: Lane, name: str
    ) -> tuple[interleaved_timer.Samples, float]:
        """Samples to believe of a candidate beside which the baseline was slow, and what its speedup is too high by.

        It is refused if the baseline is slow beside it twice more, and not while it is stopped; but not if others use
        the device, who may be the reason.
        """
        usual, alone = self._baselines.usual_ns(name), self._baselines.usual_ns("eager")
        factor = 1.0
        background = self._device.background
        with background.quiet() as rests:
            # What somebody launched who is frozen now goes on.
            undisturbed = rests and not background.is_frozen
            for _ in range(_LOOKS - 1):
                samples = self._timer(runner, lane, baseline, every=False)
                if not self._is_held_back(samples, name):
                    return samples, 1.0
                with runner.pause():
                    self._baselines.measure_itself()
                # Where eager is slow on its own as well, the device itself has slowed down, for both sides.
                slowdown = max(1.0, self._baselines.usual_ns("eager") / alone) if alone else 1.0
                factor = statistics.median(samples.baseline_seen or samples.baseline) / max(slowdown * usual, 1.0)
                if factor <= _HELD_BACK:
                    self._findings.notes.append("the device became slower while it was measured; both sides alike")
                    return samples, 1.0
        what = f"beside it, the baseline takes {factor:.1f} times as long as on its own"
        if undisturbed and not self._device.platform.busy_because(self._device.number):
            raise Refused(Outcome.REJECTED, what, "not_idle")
        self._findings.notes.append(
            f"{what}: its speedup is less by that; measure again when nobody else uses the device"
        )
        return samples, factor

    def _clocks_disagree(self, samples: interleaved_timer.Samples, usual_layout: bool) -> bool:
        """Whether the judge's clock saw far more time than the runner claims, and nobody else can have taken it.

        An output in another memory layout takes longer to read: that is charged, and not taken for a lie.
        """
        if not usual_layout:
            return False
        extra = samples.clock_excess(samples.candidate_lost)
        return extra > _CLOCK_REFUSED * statistics.median(samples.candidate) and extra > self._clock_noise_ns(samples)

    @staticmethod
    def _refuse_two_clocks(samples: interleaved_timer.Samples) -> None:
        claimed, extra = statistics.median(samples.candidate) / 1e3, samples.clock_excess(samples.candidate_lost) / 1e3
        what = f"it claims {claimed:.1f} µs a call, and the judge's clock saw {extra:.1f} µs more, {_LOOKS} times over"
        raise Refused(Outcome.REJECTED, what, "two_clocks")

    @staticmethod
    def _hides_work(samples: interleaved_timer.Samples) -> bool:
        """Whether bare calls take far longer than the time that is claimed for them."""
        return samples.hidden_ns() > max(_BARE_NOISE_NS, _CLOCK_REFUSED * statistics.median(samples.candidate))

    def _clock_noise_ns(self, samples: interleaved_timer.Samples) -> float:
        """What two honest processes may differ by in the judge's clock, per call."""
        if not self._device.has_own_memory:
            return _CLOCK_NOISE_NS
        return max(_CLOCK_NOISE_NS, _HOST_SHARE * statistics.median(samples.baseline_extra))

    def _contention(self, samples: interleaved_timer.Samples, busy: str, flags: list[str]) -> float:
        """How much of the machine others took while this was measured; a flag says so, and a note where nobody
        can.

        Of a device nothing says how much: whoever shares it, or finds it slowed down, has it to an unknown part.
        """
        platform, number = self._device.platform, self._device.number
        device = busy or platform.busy_because(number) or platform.slowed_because(number)
        if device:
            flags.append(f"contended: {device}")
            return 1.0
        if samples.contended:
            share = f"others used {samples.contended:.0%} of the processors' time while it was measured"
            flags.append(f"contended: {share}; measure again when the machine is quiet")
        elif not samples.others_known:
            self._findings.notes.append("other work on the machine while it was timed: unknown, nothing tells of it")
        return samples.contended

    def _result(self, samples: interleaved_timer.Samples, deviation: float) -> tuple[float, tuple[float, float], float]:
        """Speedup, its interval, and the share of time only the judge's clock saw, charged to the candidate."""
        extra = samples.clock_excess()
        excess = extra / statistics.median(samples.candidate)
        factor = 1.0
        if excess > _CLOCK_CHARGED and (not self._device.has_own_memory or extra > self._clock_noise_ns(samples)):
            factor = 1.0 + excess
            self._findings.notes.append(
                f"{excess:.0%} of its time was seen by the judge's clock only, and is charged to it"
            )
        ratios = [ratio / factor for ratio in samples.ratios()]
        if self._hides_work(samples):
            # Launching that takes far longer than the work, or work that the events did not see: either way it is paid.
            pairs = zip(samples.baseline_bare, samples.candidate_bare, strict=True)
            ratios = [before / after for before, after in pairs]
            self._findings.notes.append(
                f"called again and again it takes {samples.hidden_ns() / 1e3:.0f} µs a call more than its time on the "
                "device: the speedup is by the judge's clock"
            )
        middle = statistics.median(ratios)
        low, high = statistics.median_interval(ratios, seed=self._cases.seed % 2**31)
        return middle, (low / (1 + deviation), high * (1 + deviation)), excess


def _operator_share(observed: integrity.Observation, call_ns: float) -> float:
    """Share of a call that torch's operators account for: of the watched one, or of a timed one where that is more.

    A watched call may be a quick one, and timed ones slow, beside others on the machine.
    """
    return max(observed.library_share(), 1.0 - integrity.custom_share(observed, call_ns))
