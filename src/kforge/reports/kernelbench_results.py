"""An experiment's results as KernelBench's own scripts read them: eval_results.json for each level, and the baseline.

Sample 0 of a problem is the winner of its trial. Its runtime is the median of its times, in milliseconds; the "mean" of
the baseline, which those scripts divide by it, is such that the ratio is the verdict's speedup.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from typing import Any

from kforge.types import Outcome, Study, Timing, Trial, Verdict

_KEY = re.compile(r"level(\d+)/((\d+)_.*)")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_COMPILED = (Outcome.GENERATION_FAILURE, Outcome.COMPILATION_FAILURE)
BASELINE = "baseline.json"


def kernelbench_results(study: Study) -> dict[str, str]:
    """Files by their paths: RUN/eval_results.json for each configuration and level, RUN/baseline.json beside it.

    Problems that are not called as KernelBench's are left out, and so are trials without any verdict.
    """
    groups: dict[str, list[tuple[int, str, Trial]]] = {}
    several = len({trial.cell.seed for trial in study.trials}) > 1
    for trial in study.trials:
        named = _KEY.fullmatch(trial.cell.problem)
        if named is None or trial.verdict is None:
            continue
        seed = f"-seed{trial.cell.seed}" if several else ""
        run = _ODD.sub("-", f"{trial.cell.platform}-{trial.cell.configuration}{seed}-level{named[1]}").strip("-")
        groups.setdefault(run, []).append((int(named[3]), named[2], trial))
    files: dict[str, str] = {}
    for run, found in groups.items():
        found.sort(key=lambda item: item[0])
        files[f"{run}/eval_results.json"] = _text({str(number): [_sample(trial)] for number, _, trial in found})
        level = run.rpartition("-")[2]
        files[f"{run}/{BASELINE}"] = _text({level: dict(_baselines(found))})
    return files


def _text(data: Any) -> str:
    return json.dumps(data, indent=4) + "\n"


def _sample(trial: Trial) -> dict[str, Any]:
    verdict = trial.verdict
    assert verdict is not None
    timing = verdict.timing
    return {
        "sample_id": 0,
        "compiled": verdict.outcome not in _NOT_COMPILED,
        "correctness": verdict.outcome is Outcome.CORRECT,
        "metadata": _metadata(trial, verdict),
        "runtime": -1.0 if timing is None else _runtime(timing),
        "runtime_stats": {} if timing is None else _milliseconds(timing.candidate_ns),
    }


def _metadata(trial: Trial, verdict: Verdict) -> dict[str, Any]:
    data: dict[str, Any] = {"outcome": verdict.outcome.value, "detail": verdict.detail, "run": trial.run}
    if verdict.evidence is not None:
        data["hardware"] = verdict.evidence.hardware
    if verdict.timing is not None:
        data["speedup"] = verdict.timing.speedup
        data["speedup_interval_95"] = list(verdict.timing.interval)
        data["speedup_vs_best"] = verdict.timing.speedup_vs_best
    if trial.degenerate:
        data["degenerate"] = list(trial.degenerate)
    return data


def _baselines(found: list[tuple[int, str, Trial]]) -> Iterable[tuple[str, dict[str, Any]]]:
    for _, name, trial in found:
        assert trial.verdict is not None
        timing, evidence = trial.verdict.timing, trial.verdict.evidence
        # Those scripts drop a problem without a baseline, and with it the trial that found no correct program.
        times = {"mean": 0.0, "num_trials": 0} if timing is None else _baseline_times(timing)
        yield f"{name}.py", {**times, "hardware": evidence.hardware if evidence is not None else ""}


def _baseline_times(timing: Timing) -> dict[str, float]:
    return {**_milliseconds(timing.baseline_ns), "mean": timing.speedup * _runtime(timing)}


def _runtime(timing: Timing) -> float:
    return statistics.median(timing.candidate_ns) / 1e6


def _milliseconds(samples: tuple[float, ...]) -> dict[str, float]:
    times = [sample / 1e6 for sample in samples]
    return {
        "mean": statistics.fmean(times),
        "std": statistics.stdev(times) if len(times) > 1 else 0.0,
        "min": min(times),
        "max": max(times),
        "num_trials": len(times),
    }
