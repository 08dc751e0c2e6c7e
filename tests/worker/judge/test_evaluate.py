"""Verdicts end to end: what they say, what they carry, and that they can be run again."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import kforge
from faults import program
from kforge import Candidate, Outcome, Problem, Settings, jsonable, registry
from kforge.errors import (
    HarnessError,
    KForgeError,
    PluginAbsent,
    ProblemError,
    SandboxUnavailable,
    UnknownPlugin,
    UsageError,
)
from kforge.problems import find
from kforge.types import AxisLength, Report, Verdict, Workload
from kforge.worker.judge import audit
from kforge.worker.judge.compare import same_bits
from kforge.worker.judge.distributions import Patchwork
from kforge.worker.judge.judge import Judge

pytestmark = pytest.mark.toolchain

HERE = Path(__file__).parents[2]
QUICK = Settings(compile_baseline=False, timing_seconds=0.1)
UNTIMED = Settings(compile_baseline=False, timing_seconds=0)
KFORGE = [sys.executable, "-m", "kforge.cli.app"]

KERNEL = """
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

def build(source):
    folder = tempfile.mkdtemp()
    with open(folder + "/k.cpp", "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
    return ctypes.CDLL(folder + "/k.so")
"""


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


# -- the example, the bundled problems and kernels -------------------------------------------------------------------


def test_the_platform_example_passes_the_judge(judge):
    reference, candidate = registry.load("platforms", "cpu").example()
    verdict = judge.evaluate(Problem.from_source(reference), Candidate(candidate), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.custom_share > 0.5
    assert verdict.degenerate == ()
    low, high = verdict.interval
    assert low <= verdict.speedup <= high


@pytest.mark.parametrize("problem", find("bundled"), ids=lambda problem: f"level{problem.level}-{problem.name}")
def test_every_bundled_problem_passes_the_audit(judge, problem):
    assert judge.session(problem, UNTIMED).cases.degenerate == ()


@pytest.mark.parametrize(
    "path", sorted((HERE.parent / "examples/kernels/cpu").glob("*.py")), ids=lambda path: path.stem
)
def test_every_bundled_kernel_is_correct(judge, path):
    level, _, stem = path.stem.partition("_")
    (problem,) = find(f"bundled:{level}/{stem}")
    verdict = judge.evaluate(problem, Candidate(path.read_text()), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert len({error.distribution for error in verdict.errors}) >= 3


# -- timing ----------------------------------------------------------------------------------------------------------


@pytest.mark.quiet
def test_the_same_program_on_both_sides_is_no_speedup(judge, scale_relu):
    """An interval misses the truth now and then (docs/results/judge-figures.md: 2 of 20), but not two of three."""
    twin = Candidate(scale_relu.source.replace("class Model(", "class ModelNew("))
    settings = Settings(compile_baseline=False, timing_seconds=0.6, policy="any")

    def three_times():
        verdicts = [judge.evaluate(scale_relu, twin, settings) for _ in range(3)]
        return verdicts, sum(low <= 1.05 and high >= 0.95 for low, high in (item.interval for item in verdicts))

    verdicts, right = three_times()
    if right < 2 and any(verdict.contended for verdict in verdicts):
        verdicts, right = three_times()
    assert right >= 2, [verdict.interval for verdict in verdicts]
    assert {verdict.custom_share for verdict in verdicts} == {0.0}


@pytest.mark.quiet
def test_a_slow_program_is_said_to_be_slow(judge, scale_relu):
    verdict = judge.evaluate(scale_relu, Candidate(program(forward="time.sleep(0.003)")), QUICK)
    assert verdict.outcome is Outcome.CORRECT
    assert verdict.speedup < 0.5


@pytest.mark.slow
def test_torch_compile_is_a_baseline_too(judge, scale_relu, honest):
    verdict = judge.evaluate(scale_relu, honest, Settings(baseline="best", timing_seconds=0.1))
    assert verdict.outcome is Outcome.CORRECT
    names = {item.name: item.ratio for item in verdict.timing.baselines}
    assert set(names) == {"eager", "compile"}
    if names["compile"] is not None:
        assert verdict.speedup_vs_best <= verdict.speedup * 1.001 or names["compile"] <= 1


# -- policies --------------------------------------------------------------------------------------------------------


def test_policies(judge):
    problem = Problem.from_file(HERE / "catalogue/problems/matmul_epilogue.py")
    hybrid = Candidate((HERE / "catalogue/benign/hybrid_epilogue.py").read_text())
    outcomes = {}
    for policy in ("strict", "hybrid", "any"):
        verdict = judge.evaluate(problem, hybrid, Settings(compile_baseline=False, timing_seconds=0, policy=policy))
        outcomes[policy] = (verdict.outcome, verdict.rule)
    assert outcomes["strict"] == (Outcome.REJECTED, "library_compute")
    assert outcomes["hybrid"][0] is outcomes["any"][0] is Outcome.CORRECT


def test_what_a_problem_warns_of_is_not_said_by_the_judge(judge, scale_relu, honest):
    noisy = Problem.from_source(scale_relu.source + "\nimport warnings\nwarnings.warn('mind the gap')\n", name="noisy")
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()
        assert judge.evaluate(noisy, honest, UNTIMED).outcome is Outcome.CORRECT
    assert not [one for one in said if "mind the gap" in str(one.message)]


# -- problems of every kind ------------------------------------------------------------------------------------------


def problem_of(body, inputs, init="[]", setup=""):
    return Problem.from_source(
        f"import torch\nimport torch.nn as nn\n{setup}\n"
        f"class Model(nn.Module):\n    def __init__(self, *args):\n"
        f"        super().__init__()\n        self.args = args\n"
        f"    def forward(self, *inputs):\n        {body}\n"
        f"def get_inputs():\n    return {inputs}\n"
        f"def get_init_inputs():\n    return {init}\n"
    )


def same(problem):
    return Candidate(problem.source.replace("class Model(", "class ModelNew("))


@pytest.mark.parametrize(
    ("body", "inputs", "init"),
    [
        ("x, k = inputs; return x * k", "[torch.randn(64, 64), 3]", "[]"),
        ("x, k = inputs; return x if k is None else x * 2", "[torch.randn(64), None]", "[]"),
        ("xs, = inputs; return sum(xs)", "[[torch.randn(32), torch.randn(32)]]", "[]"),
        ("d, = inputs; return d['a'] + d['b']", "[{'a': torch.randn(8), 'b': torch.randn(8)}]", "[]"),
        ("x, = inputs; return x + 1, [x * 2, {'k': x.sum()}]", "[torch.randn(16)]", "[]"),
        ("x, = inputs; return x.sum().item()", "[torch.rand(16)]", "[]"),
        ("x, = inputs; return x.bool()", "[torch.randint(0, 2, (40,))]", "[]"),
        ("x, = inputs; return x * x", "[torch.randn(16, dtype=torch.float64)]", "[]"),
        ("x, = inputs; return x + 1", "[torch.randn(64).to(torch.bfloat16)]", "[]"),
        ("x, = inputs; return torch.fft.fft(x)", "[torch.randn(64)]", "[]"),
        ("x, = inputs; return x.t() @ x", "[torch.randn(24, 16).t()]", "[]"),
        ("x, = inputs; return x[:0]", "[torch.randn(4, 4)]", "[]"),
        ("x, = inputs; return x * self.args[0] + self.args[1]", "[torch.randn(8)]", "[torch.randn(8), 2.5]"),
        ("x, = inputs; return x.expand(3, 5) * 2", "[torch.randn(1, 5)]", "[]"),
    ],
)
def test_inputs_and_outputs_of_any_kind(judge, body, inputs, init):
    problem = problem_of(body, inputs, init)
    verdict = judge.evaluate(
        problem, same(problem), Settings(compile_baseline=False, timing_seconds=0.02, policy="any")
    )
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


def test_large_inputs(judge):
    problem = problem_of("x, = inputs; return x.view(256, -1).sum(1)", "[torch.ones(1 << 26).mul_(torch.rand(1))]")
    verdict = judge.evaluate(
        problem, same(problem), Settings(compile_baseline=False, timing_seconds=0.01, seeds=2, policy="any")
    )
    assert verdict.outcome is Outcome.CORRECT, verdict.detail


def test_a_live_module(judge):
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    problem = Problem.from_module(module, [torch.randn(32, 64)])
    assert "class Sequential" in problem.source
    good = (
        KERNEL
        + '''
SOURCE = r"""
extern "C" void relu(float* y, long n) { for (long i = 0; i < n; ++i) if (y[i] < 0) y[i] = 0; }
"""
kernel = build(SOURCE).relu
kernel.argtypes = [ctypes.c_void_p, ctypes.c_long]

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module("0", nn.Linear(64, 64))

    def forward(self, x):
        y = getattr(self, "0")(x)
        kernel(y.data_ptr(), y.numel())
        return y
'''
    )
    verdict = judge.evaluate(problem, Candidate(good), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    wrong = judge.evaluate(problem, Candidate(good.replace("kernel(y.data", "pass; (lambda *a: 0)(y.data")), QUICK)
    assert wrong.outcome is Outcome.MISMATCH
    # At each of several workloads, and at a length that no example has.
    several = Problem.from_module(module, [[torch.randn(32, 64)], [torch.randn(96, 64)]], dynamic={0: {0: (1, 99)}})
    fixed = good.replace("y = getattr", "assert len(x) == ROWS; y = getattr")
    longer = Workload(inputs=1, lengths=(AxisLength(0, 0, 97),))
    for workload, rows in zip((*several.workloads, longer), (32, 96, 97), strict=True):
        verdict = judge.evaluate(several.at(workload), Candidate(fixed.replace("ROWS", str(rows))), QUICK)
        assert verdict.outcome is Outcome.CORRECT, verdict.detail
        assert verdict.timing is not None
    refused = judge.evaluate(several.at(longer), Candidate(fixed.replace("ROWS", "96")), QUICK)
    assert refused.outcome is Outcome.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("return [torch.randn(8)]", "return torch.randn(8)"), "get_inputs() returns a Tensor"),
        (("return [torch.randn(8)]", "return [1 / 0]"), "get_inputs() raises ZeroDivisionError"),
        (("return x * 2", "return x * undefined"), "the reference's forward raises NameError"),
        (("return []", "return [object()]"), "get_init_inputs() returns a object"),
        (("import torch\n", "import torch\nimport no_such_thing\n"), "running the file raises ModuleNotFoundError"),
    ],
)
def test_a_problem_that_cannot_run_is_not_held_against_the_candidate(judge, honest, change, says):
    problem = problem_of("x, = inputs; return x * 2", "[torch.randn(8)]")
    source = problem.source.replace(*change)
    assert source != problem.source
    with pytest.raises(ProblemError) as caught:
        judge.evaluate(Problem.from_source(source, path="odd.py"), honest, UNTIMED)
    assert says in str(caught.value)
    assert str(caught.value).startswith("odd.py")


@pytest.mark.parametrize(
    "change",
    [
        ("return x * 2", "return x[x > 0]"),
        ("return [torch.randn(8)]", "return [torch.randn(8).to_sparse()]"),
        ("return [torch.randn(8)]", "return [torch.randn(8, device='meta')]"),
        ("return [torch.randn(8)]", "raise SystemExit(0)"),
    ],
)
def test_problems_that_cannot_be_judged_are_said_to_be(judge, honest, change):
    source = problem_of("x, = inputs; return x * 2", "[torch.randn(8)]").source.replace(*change)
    with pytest.raises(ProblemError):
        judge.evaluate(Problem.from_source(source), same(Problem.from_source(source)), UNTIMED)


@pytest.fixture
def any_time(monkeypatch):
    """No call is too small to time, however fast this machine is."""
    monkeypatch.setattr(audit, "SMALLEST_SECONDS", 0.0)


def test_tied_weights_follow_together(judge, any_time):
    body = (
        "import torch\nimport torch.nn as nn\n"
        "class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Linear(16, 16, bias=False)\n{tie}"
        "    def forward(self, x):\n        return {second}(torch.relu(self.a(x)))\n"
        "def get_inputs():\n    return [torch.randn(2000, 16)]\ndef get_init_inputs():\n    return []\n"
    )
    tie = "        self.b = nn.Linear(16, 16, bias=False)\n        self.b.weight = self.a.weight\n"
    problem = Problem.from_source(body.format(name="Model", tie=tie, second="self.b"))
    assert judge.session(problem, UNTIMED).cases.degenerate == ()
    once = Candidate(body.format(name="ModelNew", tie="", second="self.a"))
    settings = Settings(compile_baseline=False, timing_seconds=0, policy="any")
    assert judge.evaluate(problem, once, settings).outcome is Outcome.CORRECT


def test_random_values_outside_the_state_come_from_the_same_seed(judge):
    problem = problem_of("x, = inputs; return x * self.noise", "[torch.randn(4, 64)]")
    source = problem.source.replace("self.args = args\n", "self.args = args\n        self.noise = torch.randn(64)\n")
    problem = Problem.from_source(source)
    settings = Settings(compile_baseline=False, timing_seconds=0, policy="any")
    assert judge.evaluate(problem, same(problem), settings).outcome is Outcome.CORRECT


def test_text_nested_too_deeply_is_a_verdict(judge, scale_relu):
    deep = "class ModelNew: pass\nx = " + "(" * 2000 + "1" + ")" * 2000
    assert judge.evaluate(scale_relu, Candidate(deep), UNTIMED).outcome is Outcome.COMPILATION_FAILURE


def test_half_characters_in_a_message_do_no_harm(judge, scale_relu):
    verdict = judge.evaluate(scale_relu, Candidate(program(init="raise ValueError('odd \\ud800 text')")), UNTIMED)
    assert verdict.outcome is Outcome.RUNTIME_ERROR
    verdict.detail.encode()


def test_fresh_content_can_be_made_again_and_never_repeats(judge, scale_relu, monkeypatch):
    import torch

    timed_inputs = judge.session(scale_relu, QUICK).timed_inputs
    sets = timed_inputs.sets().tensors
    for patchworks in ([Patchwork(sets[0][0].clone())], []):
        monkeypatch.setattr(timed_inputs, "_patchworks", patchworks)
        seen = []
        for _ in range(3):
            timed_inputs.refresh()
            for number, (shown,) in enumerate(sets):
                assert same_bits(shown, timed_inputs.content(number)[0]), number
                seen.append(shown.clone())
        assert not any(torch.equal(one, two) for one, two in itertools.combinations(seen, 2))


def test_special_values_are_left_out_of_timed_inputs_and_come_back(judge, scale_relu):
    import torch

    session = judge.session(scale_relu, QUICK)
    list(session.cases.cases_to_check(1))
    timed_inputs = session.timed_inputs

    def special_sets() -> int:
        count = 0
        for _ in range(40):
            timed_inputs.refresh()
            count += sum(not bool(torch.isfinite(tensors[0]).all()) for tensors in timed_inputs.sets().tensors)
        return count

    assert special_sets() > 0
    timed_inputs.leave_out_special(True)
    assert special_sets() == 0
    timed_inputs.leave_out_special(False)
    assert special_sets() > 0


# -- the audit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "setup", "name"),
    [
        ("x, = inputs; return torch.ones(64) * 3", "", "input-independent"),
        ("x, = inputs; return torch.zeros(64) + x * 0", "", "near-constant"),
        ("x, = inputs; return torch.softmax(x.view(64, 1), dim=1)", "", "near-constant"),
        ("return torch.arange(4096).float().sin()", "", "input-independent"),
        ("x, = inputs; return x + random.random()", "import random", "non-deterministic"),
    ],
)
def test_degenerate_problems_are_named(judge, body, setup, name):
    problem = problem_of(body, "[torch.randn(64)]", setup=setup)
    assert name in " ".join(judge.session(problem, UNTIMED).cases.degenerate)


@pytest.mark.parametrize(("body", "smallest", "named"), [("x[:1]", 1.0, True), ("x[:2]", 0.0, False)])
def test_a_call_below_the_smallest_time_is_too_small_to_time(judge, monkeypatch, body, smallest, named):
    """The bound is set here: on a busy machine a slice takes longer than the real one, which is 20 µs."""
    monkeypatch.setattr(audit, "SMALLEST_SECONDS", smallest)
    problem = problem_of(f"x, = inputs; return {body}", "[torch.randn(64)]")
    assert ("too-small-to-time" in " ".join(judge.session(problem, UNTIMED).cases.degenerate)) is named


def test_sums_in_no_fixed_order_are_no_reason_not_to_judge(judge):
    """As atomics add them up: a last place or two differ from run to run."""
    body = "x, = inputs; return x.cumsum(0) * (1 + 2e-6 * (random.random() - 0.5))"
    problem = problem_of(body, "[torch.randn(640)]", setup="import random")
    assert "non-deterministic" not in " ".join(judge.session(problem, UNTIMED).cases.degenerate)


def test_a_problems_module_is_constructed_once(judge):
    """Of billions of parameters, the constructor is what takes longest."""
    source = (
        "import torch\nimport torch.nn as nn\nMADE = []\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        MADE.append(self)\n"
        "        self.weight = nn.Parameter(torch.randn(8))\n"
        "    def forward(self, x):\n        return x * self.weight\n"
        "def get_inputs():\n    return [torch.randn(64, 8)]\ndef get_init_inputs():\n    return []\n"
    )
    cases = judge.session(Problem.from_source(source, "once"), UNTIMED).cases
    assert len(cases.reference._namespace.MADE) == 1


def test_a_parameter_without_influence_is_named(judge, any_time):
    problem = Problem.from_source(
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.lost = nn.Parameter(torch.ones(8))\n"
        "    def forward(self, x):\n        return x * 2 + self.lost * 0\n"
        "def get_inputs():\n    return [torch.randn(2000, 8)]\ndef get_init_inputs():\n    return []\n"
    )
    reasons = judge.session(problem, UNTIMED).cases.degenerate
    assert reasons == ("parameter-insensitive: parameter lost cannot influence the output",)


# -- evidence --------------------------------------------------------------------------------------------------------


def test_a_verdict_carries_its_evidence(judge, scale_relu, honest):
    verdict = judge.evaluate(scale_relu, honest, QUICK)
    evidence = verdict.evidence
    assert evidence.problem.id == scale_relu.id
    assert evidence.candidate.id == honest.id
    assert evidence.settings.seed is not None
    assert len(evidence.distributions) >= 5
    assert "torch" in evidence.versions
    assert evidence.device["cores"]
    assert evidence.native
    assert evidence.parameters == ("scale",)
    assert any("caches" in item for item in evidence.unchecked)
    wire = json.dumps(jsonable.encode(Report("j", "p", honest.id, "cpu", verdict)))
    assert jsonable.decode(Report, json.loads(wire)).verdict == verdict


@pytest.mark.quiet
def test_replay(kforge_warm, tmp_path):
    kernel = HERE / "catalogue/benign/example_style.py"
    problem = HERE / "catalogue/problems/scale_relu.py"
    record = tmp_path / "evidence.json"
    said: dict[str, object] = {}
    for _ in range(4):
        made = subprocess.run(
            [
                *KFORGE,
                "evaluate",
                str(problem),
                str(kernel),
                "--no-compile-baseline",
                "--json",
                "--evidence",
                str(record),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        said = json.loads(made.stdout)
        held = kforge_warm("evaluate", "--replay", record, "--json")
        # A machine that is shared may be half as fast a moment later, and a claim of before then does not hold: made
        # anew, it does. Beside other work times may be too unsure to confirm anything.
        if held.returncode in (0, 3):
            break
    assert held.returncode in (0, 3), held.stdout + held.stderr
    for name in (
        "outcome",
        "detail",
        "speedup",
        "speedup_vs_best",
        "interval",
        "degenerate",
        "custom_share",
        "sandbox",
    ):
        assert name in said
    claim = json.loads(record.read_text())
    timing = claim["verdict"]["timing"]
    timing["speedup"] *= 50
    timing["interval"] = [bound * 50 for bound in timing["interval"]]
    record.write_text(json.dumps(claim))
    broken = kforge_warm("evaluate", "--replay", record)
    assert broken.returncode == 1 or (broken.returncode == 3 and "contended" in broken.stdout), broken.stdout
    assert "does not hold" in broken.stdout or broken.returncode == 3


# -- in Python -------------------------------------------------------------------------------------------------------


def test_the_python_face():
    verdict = kforge.evaluate(
        HERE / "catalogue/problems/scale_relu.py",
        HERE / "catalogue/benign/example_style.py",
        platform="cpu",
        compile_baseline=False,
        timing_seconds=0,
    )
    assert verdict.outcome is Outcome.CORRECT
    with pytest.raises(UsageError, match="sees"):
        kforge.evaluate(HERE / "catalogue/problems/scale_relu.py", "x = 1\n", sees=3)
    with pytest.raises(UnknownPlugin, match="abacus"):
        kforge.evaluate(HERE / "catalogue/problems/scale_relu.py", "x = 1\n", platform="abacus")


def test_a_sandbox_that_is_not_there_is_an_error_not_a_weaker_one(judge, scale_relu, honest, monkeypatch):
    from kforge.worker.sandbox import levels

    monkeypatch.setattr(levels, "unavailable_reason", lambda level: "not today" if level == "bubblewrap" else "")
    with pytest.raises(SandboxUnavailable, match="not today"):
        judge.evaluate(scale_relu, honest, Settings(sandbox="bubblewrap"))


def test_no_compiler_is_said_with_the_cure(monkeypatch):
    from kforge.worker.judge.judge import Judge

    cpu = registry.load("platforms", "cpu")
    monkeypatch.setattr(type(cpu), "compilers", lambda self: {})
    with pytest.raises(PluginAbsent, match="apt-get install g"):
        Judge("cpu")


def test_a_judge_that_is_closed_blames_no_program_for_it(scale_relu: Problem) -> None:
    """Whoever is stopped kills what runs; a verdict that comes of it would be kept, and be wrong."""
    slow = Candidate(program(forward="import time; time.sleep(60)"))
    ends: list[BaseException | Verdict] = []

    def evaluate() -> None:
        try:
            ends.append(judge.evaluate(scale_relu, slow, QUICK, said.append))
        except KForgeError as error:
            ends.append(error)

    said: list[str] = []
    judge = Judge("cpu")
    worker = threading.Thread(target=evaluate)
    worker.start()
    deadline = time.monotonic() + 60
    while not any(word.startswith("checking") for word in said):
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
    judge.close()
    worker.join(60)
    assert len(ends) == 1
    assert isinstance(ends[0], HarnessError), ends
