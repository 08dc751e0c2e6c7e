"""Results in the form that KernelBench's own scripts read."""

from __future__ import annotations

import json

import pytest

from kforge.reports.kernelbench_results import kernelbench_results
from kforge.types import Outcome, Study
from makers import verdict
from trial_makers import judged, trial

pytestmark = pytest.mark.pure


def test_each_level_has_its_results_and_its_baseline() -> None:
    trials = (
        judged("level1/10_Sum", verdict(2.5)),
        judged("level1/9_Max", verdict(outcome=Outcome.MISMATCH, detail="wrong")),
        judged("level2/3_Fused", verdict(outcome=Outcome.COMPILATION_FAILURE)),
        judged("my_own", verdict(3.0)),
        trial("level1/1_Untried"),
    )
    files = kernelbench_results(Study("bench", trials))
    (first, second) = sorted({path.partition("/")[0] for path in files})
    assert first.endswith("-level1")
    assert second.endswith("-level2")
    results = json.loads(files[f"{first}/eval_results.json"])
    assert list(results) == ["9", "10"]
    (right,), (wrong,) = results["10"], results["9"]
    assert (right["sample_id"], right["compiled"], right["correctness"]) == (0, True, True)
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)
    assert wrong["metadata"]["outcome"] == "mismatch"
    baseline = json.loads(files[f"{first}/baseline.json"])["level1"]
    assert baseline["10_Sum.py"]["mean"] / right["runtime"] == pytest.approx(2.5)
    # A problem that no program solved counts, too.
    assert set(baseline) == {"9_Max.py", "10_Sum.py"}
    ((failed,),) = json.loads(files[f"{second}/eval_results.json"]).values()
    assert not failed["compiled"]


def test_other_suites_have_none() -> None:
    assert kernelbench_results(Study("bench", (judged("my_own", verdict(3.0)),))) == {}
