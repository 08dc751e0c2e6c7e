"""Profilers: what they see of honest programs, and what they make of ones that lie."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import sysconfig
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kforge import Candidate, Outcome, Problem, Settings, jsonable, registry
from kforge.profilers import _ceilings, _remarks, _work_probe, compiler_remarks, roofline, torch_profiler
from kforge.profilers import digest as digesting
from kforge.profilers.base import NothingSeen, Profiler
from kforge.profilers.perf import Perf
from kforge.profilers.perf import read as read_perf
from kforge.types import ErrorNorm, Image, Job, Profile, Report, Verdict
from kforge.worker.judge import profiling_context
from kforge.worker.judge.lane import NONSENSE

HERE = Path(__file__).parents[1]
KERNELS = HERE.parent / "examples" / "kernels" / "cpu"
QUICK = Settings(compile_baseline=False, timing_seconds=0.05, seeds=2)
CPU = ("torch_profiler", "roofline", "compiler_remarks")

LOOPS = """
extern "C" void run(const float* x, const float* s, float* y, long rows, long columns, float slope) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        for (long c = 0; c < columns; ++c) y[r * columns + c] = in[c] * ((in[c] > 0 ? 1 : slope) * s[c]);
    }
}
extern "C" void carry(float* y, long n) {
    for (long i = 1; i < n; ++i) y[i] = y[i] + 0.5f * y[i - 1];
}
extern "C" long first(const float* x, long n) {
    for (long i = 0; i < n; ++i) {
        if (x[i] > 3.0f) return i;
    }
    return -1;
}
typedef float eight __attribute__((vector_size(32)));
extern "C" void wide(const eight* x, eight* y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] * x[i];
}
extern "C" float square(const float* x, long n) {
    float sum = 0;
    for (long i = 0; i < n; ++i) sum += x[i] * x[i];
    return sum;
}
extern "C" float square_freely(const float* x, long n) {
    float sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long i = 0; i < n; ++i) sum += x[i] + x[i];
    return sum;
}
extern "C" float largest(const float* x, long n) {
    float top = x[0];
    for (long i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
    return top;
}
"""

PROGRAM = """
import ctypes, os, subprocess, tempfile
import torch
import torch.nn as nn

PROFILED = ctypes._CFuncPtr.__module__ != "_ctypes"

with tempfile.TemporaryDirectory() as folder:
    with open(folder + "/k.cpp", "w") as file:
        file.write({code!r})
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([{compiler!r}, *flags, folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
    kernel = ctypes.CDLL(folder + "/k.so").run
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_float]
{top}

class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], self.slope)
        return y
"""

EXTENSION = '''
import importlib.util, subprocess, sys, sysconfig, tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <Python.h>
static PyObject* run(PyObject*, PyObject* words) {
    Py_ssize_t x, s, y;
    long rows, columns;
    float slope;
    if (!PyArg_ParseTuple(words, "nnnllf", &x, &s, &y, &rows, &columns, &slope)) return nullptr;
    for (long i = 0; i < rows * columns; ++i) {
        float v = ((const float*)x)[i];
        ((float*)y)[i] = (v > 0 ? v : slope * v) * ((const float*)s)[i % columns];
    }
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"run", run, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "extra", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_extra() { return PyModule_Create(&module); }
"""
folder = tempfile.mkdtemp()
with open(folder + "/extra.cpp", "w") as file:
    file.write(SOURCE)
include = "-I" + sysconfig.get_path("include")
command = ["g++", "-O2", "-shared", "-fPIC", include, folder + "/extra.cpp", "-o", folder + "/extra.so"]
subprocess.run(command, check=True)
spec = importlib.util.spec_from_file_location("extra", folder + "/extra.so")
extra = sys.modules["extra"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extra)


class ModelNew(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        extra.run(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], self.slope)
        return y
'''

LIAR = """
class Event:
    name, input_shapes, cpu_parent = {name}, [], None
    self_cpu_memory_usage, self_cpu_time_total, cpu_time_total = {number}, {number}, {number}

class Liar:
    function_events = [Event()]
    def __init__(self, **options): pass
    def __enter__(self): return self
    def __exit__(self, *error): pass

if PROFILED:
    torch.autograd.profiler.profile = Liar
"""


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    """Ceilings are measured once for this module, and the user's are left alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def report(judge, problem, source, profilers=CPU, **settings):
    wanted = replace(QUICK, profilers=tuple(profilers), **settings)
    return judge.report(Job("job", problem, Candidate(source), wanted))


def by_tool(made):
    return {profile.tool: profile for profile in made.profiles}


def line_of(source, text):
    return source[: source.index(text)].count("\n") + 1


def line_about(profile, number):
    return next((line for line in profile.text.splitlines() if f" k.cpp:{number} " in line), "")


# -- on real programs ------------------------------------------------------------------------------------------------


@pytest.mark.toolchain
def test_a_bundled_kernel_is_seen_by_all_three(judge):
    problem = Problem.from_file(HERE.parent / "src/kforge/problems/bundled/level2/1_linear_gelu_residual.py")
    made = report(judge, problem, (KERNELS / "level2_1_linear_gelu_residual.py").read_text())
    assert made.verdict.outcome is Outcome.CORRECT, made.verdict.detail
    assert [profile.tool for profile in made.profiles] == list(CPU)
    assert all(not profile.absent for profile in made.profiles), made.profiles
    seen = by_tool(made)
    shares = [seen["torch_profiler"].metrics[name] for name in ("custom_share", "library_share", "overhead_share")]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares[:2]) > 0.02
    assert "aten::addmm" in seen["torch_profiler"].text or "aten::mm" in seen["torch_profiler"].text
    place = seen["roofline"].metrics
    rows, width, out = 8192, 96, 96
    assert place["flops"] - place["flops_estimated"] == 2 * rows * width * out
    assert place["bytes_min"] == 4 * (2 * rows * width + width * out + out)
    assert 0 < place["roofline_share"] <= 1
    assert place["headroom"] >= 1
    assert seen["compiler_remarks"].metrics["vectorised_loops"] >= 1
    assert jsonable.decode(Report, json.loads(json.dumps(jsonable.encode(made)))) == made
    found = digesting.digest(made.profiles, made.verdict)
    assert found.signals[0].words.split()[0] in ("memory", "compute", "overhead")
    assert found.value("library_share") == pytest.approx(shares[1])


@pytest.mark.toolchain
def test_remarks_name_the_line_of_a_loop_that_can_and_of_ones_that_cannot(judge, scale_relu):
    made = report(judge, scale_relu, program(), ("compiler_remarks",), timing_seconds=0.0)
    assert made.verdict.outcome is Outcome.CORRECT, made.verdict.detail
    (profile,) = made.profiles
    can, carried, early = (line_of(LOOPS, text) for text in ("in[c] > 0", "y[i - 1]", "i < n; ++i) {"))
    assert re.search(rf"vectorised with .*: k.cpp:{can} `for \(long c = 0; c < columns", profile.text)
    assert f"not vectorised: k.cpp:{carried} `for (long i = 1; i < n" in profile.text
    assert "may depend on one computed just before" in profile.text
    assert f"not vectorised: k.cpp:{early} `for (long i = 0; i < n; ++i) {{`: control flow" in profile.text
    ordered, free, top, wide = (
        line_of(LOOPS, text) for text in ("x[i] * x[i];\n    return", "+ x[i];", "top ?", "y[i] = x")
    )
    assert "`#pragma omp simd reduction(+:sum)` allows a real one" in line_about(profile, ordered)
    assert line_about(profile, free).startswith("vectorised with ")
    assert "`#pragma omp simd reduction(+|max|min: top)` allows it" in line_about(profile, top)
    assert line_about(profile, wide) == ""
    assert profile.metrics["unvectorised_loops"] == 4
    assert profile.metrics["by_hand_loops"] == 1
    assert profile.metrics["vector_bytes"] >= 16 or "vectors of the processor's length" in profile.text
    assert "-O3 -march=native" in profile.text


def of_square(*said: str) -> Profile:
    """What becomes of GCC's remarks on the loop whose sum is taken in order."""
    line = line_of(LOOPS, "x[i] * x[i];\n    return")
    remarks = [
        f"k.cpp:{line}:24: note:   operand sum_15 = PHI <sum_12(6), 0.0(5)>, type of def: reduction",
        f"k.cpp:{line}:24: note:   using an in-order (fold-left) reduction.",
        *(f"k.cpp:{line}:24: {words}" for words in said),
    ]
    build = {"words": ["-O3"], "sources": [["k.cpp", LOOPS]], "remarks": remarks}
    return compiler_remarks.profile_of({"builds": [build]})


def test_a_sum_in_order_that_short_vectors_do_not_pay_for():
    """As GCC says it for NEON."""
    profile = of_square("missed: couldn't vectorize loop", "missed: Loop costings may not be worthwhile.")
    assert "sum in order: k.cpp" in profile.text
    assert "the sum is kept in order: `#pragma omp simd reduction(+:sum)` allows a real one" in profile.text
    assert profile.metrics["unvectorised_loops"] == profile.metrics["in_order_sums"] == 1
    assert profile.metrics["vectorised_loops"] == 0


def test_vectors_of_the_processors_length():
    """As GCC says it for SVE."""
    said = "optimized: loop vectorized using variable length vectors"
    assert "vectorised, but the sum is kept in order" in of_square(said).text
    line = line_of(LOOPS, "in[c] > 0")
    build = {"words": ["-O3"], "sources": [["k.cpp", LOOPS]], "remarks": [f"k.cpp:{line}:28: {said}"]}
    profile = compiler_remarks.profile_of({"builds": [build]})
    assert f"vectorised with vectors of the processor's length: k.cpp:{line}" in profile.text
    assert profile.metrics["vectorised_loops"] == 1
    assert profile.metrics["vector_bytes"] == 0


@pytest.mark.toolchain
def test_what_cannot_be_had_says_why_and_leaves_the_verdict_alone(judge, scale_relu, monkeypatch):
    monkeypatch.setattr(torch_profiler.TorchProfiler, "unavailable_reason", lambda self: "left at home")
    wanted = ("torch_profiler", "ncu", "no_such_tool", "roofline", "compiler_remarks")
    whole_path = program(compiler=shutil.which("g++"))
    made = report(judge, scale_relu, whole_path, wanted, timing_seconds=0.0)
    assert made.verdict.outcome is Outcome.CORRECT
    reasons = {profile.tool: profile.absent for profile in made.profiles}
    assert list(reasons) == list(wanted)
    assert reasons["torch_profiler"] == "left at home"
    assert "no profiler is called" in reasons["no_such_tool"]
    assert "not timed" in reasons["roofline"]
    assert "no compilation was seen" in reasons["compiler_remarks"]
    assert all(reasons.values())


@pytest.mark.toolchain
def test_a_program_that_is_not_built_again_says_so_in_each_profile(judge, scale_relu, monkeypatch):
    monkeypatch.setattr(profiling_context, "_too_slow", lambda verdict: "building the program takes 20 s")
    made = report(judge, scale_relu, program(), ("torch_profiler", "compiler_remarks"), timing_seconds=0.0)
    assert made.verdict.outcome is Outcome.CORRECT
    assert [profile.absent for profile in made.profiles] == ["building the program takes 20 s"] * 2


@pytest.mark.toolchain
def test_a_wrong_program_is_not_profiled(judge, scale_relu):
    made = report(judge, scale_relu, program().replace("return y\n", "return y + 1\n"))
    assert made.verdict.outcome is Outcome.MISMATCH
    assert made.profiles == ()


@pytest.mark.toolchain
@pytest.mark.skipif(not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="no Python headers")
def test_time_in_an_extension_module_is_the_programs_own(judge, scale_relu):
    made = report(judge, scale_relu, EXTENSION, ("torch_profiler",), timing_seconds=0.0)
    assert made.verdict.outcome is Outcome.CORRECT, made.verdict.detail
    assert made.profiles[0].metrics["custom_share"] > 0.5


# -- on programs that lie --------------------------------------------------------------------------------------------


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("top", "says"),
    [
        (LIAR.format(name='"aten::" + "a" * (40 << 20)', number="1"), "could not be profiled"),
        (LIAR.format(name='"aten::mm"', number='float("nan")'), "makes no sense"),
        (LIAR.format(name='"aten::mm"', number='"many"'), "could not be profiled"),
        ("if PROFILED:\n    os._exit(3)", "could not be profiled"),
        ("if PROFILED:\n    raise SystemExit(3)", "could not be profiled"),
    ],
    ids=["endless", "no number", "no type", "leaves", "raises"],
)
def test_a_liar_gets_no_profile_and_keeps_its_verdict(judge, scale_relu, top, says):
    made = report(judge, scale_relu, program(top=top), ("torch_profiler",), timing_seconds=0.0)
    assert made.verdict.outcome is Outcome.CORRECT, made.verdict.detail
    (profile,) = made.profiles
    assert says in profile.absent
    assert len(profile.absent) <= 500
    assert (profile.metrics, profile.text) == ({}, "")


class Loud(Profiler):
    """A third party's profiler with more to say than anybody reads."""

    name = "loud"

    def unavailable_reason(self):
        return ""

    def collect(self, context):
        assert context.problem.name == "scale_relu"
        assert context.working_bytes > 0
        metrics = {f"metric {number}": float(number) for number in range(500)} | {"odd": float("inf")}
        pictures = (Image("image/png", b"small"), Image("image/png", bytes(5 << 20)))
        return Profile("another name", metrics, "line\x1b[2J\n" * 10_000, pictures)


class Broken(Profiler):
    name = "broken"

    def unavailable_reason(self):
        return ""

    def collect(self, context):
        raise ZeroDivisionError("of its own")


@pytest.mark.toolchain
def test_a_third_partys_profiler_is_held_to_a_size(judge, scale_relu, monkeypatch):
    plugins = {"loud": Loud(), "broken": Broken()}
    monkeypatch.setattr(registry, "load", lambda kind, name: plugins[name])
    loud, broken = report(judge, scale_relu, program(), tuple(plugins), timing_seconds=0.0).profiles
    assert loud.tool == "loud"
    assert len(loud.metrics) <= profiling_context._MAX_METRICS < 500
    assert len(loud.text) <= 20_000
    assert "\x1b" not in loud.text
    assert [image.data for image in loud.images] == [b"small"]
    assert broken.absent == "it failed: ZeroDivisionError: of its own"


@pytest.mark.pure
@given(st.recursive(st.none() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_whatever_a_runner_says_is_read_or_refused(value):
    shaped = {"words": value, "sources": value, "remarks": value}
    for reply in ({"builds": value}, {"builds": [shaped]}, {}):
        with contextlib.suppress(NothingSeen, *NONSENSE):
            assert isinstance(compiler_remarks.profile_of(reply), Profile)


WORK = {"exact": 1, "estimated": 2, "read_bytes": 3, "output_bytes": 4, "dtype": "torch.float32"}
RATES = {"bandwidth": [[1 << 20, 1e10]], "flops": 1e11, "overhead_ns": 3000}
SEEN = {
    "calls": 9,
    "wall_ns": 1e5,
    "native_share": 0.5,
    "profiled_ns": 1e5,
    "profiled_native_ns": 5e4,
    "library_ns": 1e4,
    "operator_ns": 0,
    "operator_calls": 2,
    "allocated_bytes": 64,
    "operators": [["aten::add", "[[2]]", 1, 100.0]],
}


@pytest.mark.pure
@pytest.mark.parametrize(
    ("read", "reply"), [(roofline.read_work, WORK), (_ceilings.read, RATES), (torch_profiler.read, SEEN)]
)
def test_numbers_that_make_no_sense_are_refused_one_by_one(read, reply):
    assert read(reply)
    for name in [name for name, value in reply.items() if isinstance(value, int | float)]:
        for wrong in (-1, math.nan, -math.inf, math.inf, None, "many", [1]):
            with pytest.raises(NONSENSE):
                read({**reply, name: wrong})
    if "bandwidth" in reply:
        for rate in (0, -1, math.nan, math.inf):
            with pytest.raises(NONSENSE):
                read({**reply, "bandwidth": [[1 << 20, rate]]})


@pytest.mark.pure
def test_time_that_only_the_judge_saw_raises_no_ceiling(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    timed = SimpleNamespace(candidate_ns=(7e5,), baseline_ns=(2e6,), clock_excess=0.45)
    context = SimpleNamespace(
        verdict=SimpleNamespace(timing=timed, evidence=None),
        platform=SimpleNamespace(device="cpu", facts=lambda: {"processor": "one"}),
        working_bytes=1 << 20,
        ask=lambda request, of: (
            {**WORK, "read_bytes": 8 * 10**6, "output_bytes": 2 * 10**6} if of == "reference" else RATES
        ),
    )
    made = roofline.Roofline().collect(context)
    assert made.metrics["roofline_share"] == pytest.approx(1e6 / (7e5 * 1.45))
    assert _ceilings.CeilingsFile({"processor": "one"}, lambda: RATES).get().memory == 1e10


@pytest.mark.pure
@pytest.mark.parametrize(
    "text",
    [
        "for (;;) {" + "{(" * 100_000,
        "for (;;) {\n" * 18_000,
        ("for (i = q; i < q; i += a" + "a" * 250 + "\n") * 700,
        ("  do do " + " " * 280 + "do\n") * 650,
        ("typedef " + "a " * 140 + "vector_size\n") * 650,
    ],
)
def test_a_source_made_to_be_slow_is_not(text):
    began = time.process_time()
    lines = [f"k.cpp:{number}:1: missed: couldn't vectorize loop" for number in range(1, 3001)]
    build = {"words": ["-O3"], "sources": [["k.cpp", text]], "remarks": lines}
    assert compiler_remarks.profile_of({"builds": [build] * 16}).metrics["unvectorised_loops"] >= 0
    assert time.process_time() - began < 10


# -- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_clangs_remarks_are_read_too():
    text = "void f(float* x, long n) {\n  for (long i = 0; i < n; ++i) x[i] *= 2;\n  while (x[n] > 0) ++n;\n}\n"
    said = [
        "k.cpp:2:3: remark: vectorized loop (vectorization width: 8, interleaved count: 4) [-Rpass=loop-vectorize]",
        "k.cpp:3:3: remark: loop not vectorized: could not determine number of loop iterations [-Rpass-analysis=x]",
    ]
    remarks = _remarks.Remarks()
    _remarks.read(said, {"k.cpp": text}, remarks)
    assert [(loop.line, loop.vector_bytes) for loop in remarks.vectorised_loops()] == [(2, 32)]
    (missed,) = remarks.missed_loops()
    assert (missed.line, missed.reason) == (3, "could not determine number of loop iterations")


def missed(text, *said):
    """The loops of k.cpp that are called slow, by line, and why."""
    remarks = _remarks.Remarks()
    _remarks.read([f"k.cpp:{line}" if line[0].isdigit() else line for line in said], {"k.cpp": text}, remarks)
    return {loop.line: loop.reason for loop in remarks.missed_loops()}


@pytest.mark.pure
def test_only_the_innermost_loop_counts():
    text = "for (int r = 0; r < n; ++r) {\n  int k = r;\n  for (int c = 0; c < n; ++c) {\n    y[c] += k;\n  }\n}\n"
    assert list(missed(text, *(f"{line}:1: missed: couldn't vectorize loop" for line in (2, 4)))) == [3]
    vectorised = ("1:1: missed: couldn't vectorize loop", "3:1: optimized: loop vectorized using 32 byte vectors")
    assert missed(text, *vectorised) == {}
    part = ("1:1: missed: couldn't vectorize loop", "4:5: optimized: basic block part vectorized using 32 byte vectors")
    assert missed(text, *part) == {}


@pytest.mark.pure
@pytest.mark.parametrize(
    "text",
    [
        "for (long x = 0; x < n; x += 16L)\n{\n  work(x);\n}",
        "for (long x = 0; x < n; x += Vec::size()) {\n  work(x);\n}",
        "for (long x = 0; x < n; ++x) {\n  __m256 a = _mm256_loadu_ps(in + 8 * x);\n}",
        "for (long x = 0; x < n; ++x) {\n\n\n\n\n\n\n  auto t = at::vec::Vectorized<float>::loadu(in + x);\n}",
        "for (long x = 0; x < n; ++x) {\n  float32x4_t a = vld1q_f32(in + 4 * x);\n}",
        "for (long x = 0; x < n; ++x) y[x] = x4{};\nusing x4 = float __attribute__((vector_size(16)));",
    ],
)
def test_vectors_written_by_hand_are_no_fault(text):
    assert missed(text, "1:1: missed: couldn't vectorize loop", "1:1: missed: latch block not empty") == {}


@pytest.mark.pure
def test_the_rest_of_a_loop_by_hand_is_no_fault_and_a_vector_type_in_a_header_is_seen():
    rest = "for (; i + 8 <= n; i += 8) {\n  work(i);\n}\nfor (; i < n; ++i) y[i] = x[i];\nfor (; j < n; ++j) z();\n"
    said = [f"{line}:1: missed: couldn't vectorize loop" for line in (1, 4)]
    assert missed(rest, *said) == {}
    assert missed(rest.split("}\n")[1], said[0]) == {1: ""}
    quarters = "for (long i = 0; i < q; ++i) {\n  a[i & 3] += x[i];\n}\nfor (long i = 4 * q; i < n; ++i) s += x[i];\n"
    assert list(missed(quarters, *said)) == [1]
    assert list(missed(quarters.replace("4 * q", "0"), *said)) == [1, 4]
    header = "/include/avxintrin.h:905:23: missed: not vectorized: no vectype for stmt: _1 = MEM[(__m256_u *)_3];"
    assert missed("for (long i = 0; i < n; ++i) step(i);", said[0], header, " scalar_type: __m256_u") == {}


@pytest.mark.pure
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("statement clobbers memory: tile<4, 4> (_838, _12);", "calls tile<4, 4> for each element"),
        ("statement clobbers memory: _14 = __builtin_expf (_4);", "calls expf for each element"),
        ("not vectorized: latch block not empty.", "control flow in the loop: an early exit or a branch"),
        ("not vectorized: no grouped stores in _17", ""),
        ("", ""),
    ],
)
def test_reasons_are_words_or_nothing(said, reason):
    line = "for (long i = 0; i < n; ++i) y[i] = f(i);"
    assert missed(line, "1:1: missed: couldn't vectorize loop", f"1:9: missed: {said}") == {1: reason}
    build = {"words": ["-O3"], "sources": [["k.cpp", line]], "remarks": ["k.cpp:1:1: missed: couldn't vectorize loop"]}
    why = "--param large-stack-frame-growth limit reached"
    call = f"k.cpp:1:40: missed:   not inlinable: void g()/1 -> float f(long)/2, {why}"
    text = compiler_remarks.profile_of({"builds": [build | {"remarks": [*build["remarks"], call]}] * 2}).text
    assert text.splitlines() == [
        "compiled with: -O3",
        f"not vectorised: k.cpp:1 `{line}`",
        f"not inlined: k.cpp:1 `{line}`: f, it is too large: `inline __attribute__((always_inline))` forces it",
    ]


@pytest.mark.pure
def test_the_place_under_the_roof():
    ceilings = _ceilings.Ceilings(((1 << 20, 2e11), (1 << 30, 1e10)), 1e11, 3000.0)
    streaming = roofline.RooflinePoint(roofline.Work(0, 10**6, 8 * 10**6, 2 * 10**6), ceilings, 2e6, 1 << 28)
    assert streaming.bound == "memory"
    assert streaming.metrics()["roofline_share"] == pytest.approx(0.5)
    assert replace(streaming, working_bytes=1000).memory_ns == pytest.approx(streaming.memory_ns / 20)
    product = roofline.RooflinePoint(roofline.Work(10**9, 0, 10**6, 10**6), ceilings, 2e7, 1 << 28)
    assert product.bound == "compute"
    assert product.metrics()["compute_share"] == pytest.approx(0.5)
    tiny = roofline.RooflinePoint(roofline.Work(0, 100, 400, 400), ceilings, 8000.0, 1000)
    assert tiny.bound == "overhead"
    assert tiny.metrics()["headroom"] == pytest.approx(8000 / 3000, rel=0.01)


@pytest.mark.pure
def test_ceilings_are_measured_once_and_only_ever_raised(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def measure(rate=1e10):
        asked.append(rate)
        return {"bandwidth": [[1 << 20, rate]], "flops": 1e11, "overhead_ns": 3000}

    first = _ceilings.CeilingsFile({"processor": "one"}, measure).get()
    assert _ceilings.CeilingsFile({"processor": "one"}, measure).get() == first
    assert len(asked) == 1
    _ceilings.CeilingsFile({"processor": "another"}, measure).get()
    assert len(asked) == 2
    better = _ceilings.CeilingsFile({"processor": "one"}, lambda: measure(2e10))
    assert better.raise_ceilings().memory == 2e10
    assert _ceilings.CeilingsFile({"processor": "one"}, lambda: measure(1e9)).raise_ceilings().memory == 2e10
    for path in (tmp_path / "kforge").glob("ceilings-*"):
        path.write_text("{ half")
    assert better.get().memory == 2e10
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert _ceilings.CeilingsFile({"processor": "one"}, measure).get() == first


@pytest.mark.pure
def test_a_ceiling_that_is_beaten_is_raised_to_what_was_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = {"bandwidth": [[1 << 20, 5e10], [1 << 30, 1e10]], "flops": 1e11, "overhead_ns": 3000}
    kept = _ceilings.CeilingsFile({"processor": "one"}, lambda: measured)
    place = roofline.RooflinePoint(roofline.Work(0, 10**6, 8 * 10**6, 2 * 10**6), kept.get(), 8e5, 1 << 28)
    healed = roofline.correct_ceilings(place, 9e5, kept)
    assert healed.metrics()["roofline_share"] == pytest.approx(1.0)
    assert kept.get().bandwidth == ((1 << 20, 5e10), (1 << 30, 1.25e10))
    assert "raised to what was seen" in healed.text()
    behind = roofline.correct_ceilings(place.at(2e6), 7e5, kept)
    assert kept.get().memory == pytest.approx(1e16 / 7e5)
    assert behind.metrics()["roofline_share"] == pytest.approx(0.35)
    unreal = roofline.correct_ceilings(place.at(1e5), 9e5, kept)
    assert kept.get().memory == pytest.approx(1e16 / 7e5)
    assert "does less than the reference" in unreal.text()


@pytest.mark.pure
def test_the_place_is_said_with_one_time_and_no_empty_estimate():
    ceilings = _ceilings.Ceilings(((1 << 30, 1e10),), 1e11, 3000.0)
    text = roofline.RooflinePoint(roofline.Work(10**9, 10**5, 10**6, 10**6), ceilings, 4e7, 1 << 28).text()
    assert text.startswith("compute sets the least time, and the program is far from it: 25 % of what")
    assert "40 ms a call" in text
    assert "estimate" not in text


@pytest.mark.pure
def test_operators_are_shown_where_they_matter():
    row = ["aten::empty", "[]", 2, 3000.0]
    reply = {
        "calls": 17,
        "wall_ns": 1e6,
        "native_share": 0.97,
        "profiled_ns": 1e6,
        "profiled_native_ns": 9.7e5,
        "library_ns": 0.0,
        "operator_ns": 0.0,
        "operator_calls": 2,
        "allocated_bytes": 4096,
        "operators": [row],
    }
    few = torch_profiler.table(torch_profiler.read(reply)).splitlines()
    assert few[0] == "97 % of the time is in its own native code; the rest is allocation and Python"
    assert len(few) == 2
    reply |= {"library_ns": 4e5, "native_share": 0.5, "profiled_native_ns": 5e5}
    many = torch_profiler.table(torch_profiler.read(reply | {"operators": [["aten::mm", "[[8, 8]]", 1, 4e5], row]}))
    assert "40 %" in many.splitlines()[0]
    assert many.splitlines()[-1].split() == ["40", "%", "400", "µs", "1", "aten::mm", "[[8,", "8]]"]


@pytest.mark.pure
@pytest.mark.parametrize("platform", ["opencl", "metal", "triton"])
def test_kernels_that_a_library_launches_are_not_taken_for_nothing(platform):
    """Foreign functions are all that is timed in the runner: of a vendor's launches nothing is known."""
    reply = {
        "calls": 17,
        "wall_ns": 1e6,
        "native_share": 0.0,
        "profiled_ns": 1e6,
        "profiled_native_ns": 0.0,
        "library_ns": 1e5,
        "operator_ns": 0.0,
        "operator_calls": 2,
        "allocated_bytes": 4096,
        "operators": [],
    }
    context = SimpleNamespace(platform=registry.load("platforms", platform), ask=lambda request: reply)
    seen = torch_profiler.PLUGIN.collect(context)
    assert "native code" not in seen.text
    assert seen.text.startswith("10 % of the time is in torch's operators; of the rest it cannot be told here")
    assert seen.metrics["library_share"] == pytest.approx(0.1)
    assert not seen.metrics.keys() & {"custom_share", "overhead_share"}
    verdict = Verdict(Outcome.CORRECT, "right", errors=(ErrorNorm("natural", 0.0, 1.0, 0.0),), custom_share=0.9)
    signals = digesting.digest((seen,), verdict).signals
    assert any(signal.words == "90 % of the time is in the program's own code" for signal in signals)
    assert not any("native code" in signal.words for signal in signals)


@pytest.mark.cpu
def test_bytes_are_counted_once_whatever_the_views():
    def read(call, *given):
        subject = SimpleNamespace(module=torch.nn.Identity(), arguments=[given], call=lambda: call(*given))
        return _work_probe._count(subject)["read_bytes"]

    arena = torch.zeros(3000)
    one, two = arena[:1000], arena[1024:2024]
    assert read(lambda a, b: a + b, one, two) == 8000
    assert read(lambda a, b: (a * 2) + a.view(10, 100).sum(), one, two) == 4000
    arena = torch.ones(2 * 4 * 128 * 1024 + 1024)
    x, gate = (arena[start : start + 4 * 128 * 1024].view(4, 128, 1024) for start in (0, 4 * 128 * 1024))
    weight = arena[-1024:]
    gated = read(
        lambda x, g, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w * g.sigmoid() * g, x, gate, weight
    )
    assert gated == 4 * (2 * 4 * 128 * 1024 + 1024)
    matrix = torch.zeros(10, 100)
    assert read(lambda m: m[:, :50].exp(), matrix) == 2000
    assert read(lambda m: m[:, :50].exp() * m[:, 50:], matrix) == 4000
    assert read(lambda m: m[:1].expand(10, 100) * 2, matrix) == 400
    assert read(lambda m: torch.nn.functional.embedding(torch.tensor([1, 2]), m), matrix) == 800


@pytest.mark.pure
def test_a_build_that_takes_longer_than_judging_is_not_made_again():
    def evidence(seconds):
        return SimpleNamespace(evidence=SimpleNamespace(seconds=seconds))

    quick = {"start": 12.0, "time": 1.0}
    usual = {"start": 20.0, "check": 5.0, "time": 16.0}
    slow = {"start": 20.0, "check": 5.0, "time": 6.0}
    said = [profiling_context._too_slow(evidence(seconds)) for seconds in (quick, usual, slow)]
    assert said[:2] == ["", ""]
    assert said[2].startswith("building the program takes 20 s")


@pytest.mark.pure
def test_perfs_lines_are_counts():
    said = (
        "1200,,instructions:u,10,100.00,,\n<not supported>,,cache-misses,0,100.00,,\n600,,cycles:u,10,100.00,,\nnoise\n"
    )
    assert read_perf(said) == {"instructions": 1200.0, "cycles": 600.0}
    profile = Perf()._profile(read_perf(said), 10)
    assert profile.metrics == {"instructions": 120.0, "cycles": 60.0, "instructions_per_cycle": 2.0}


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
def test_perf_counts_the_runner_from_outside(judge, scale_relu, monkeypatch):
    """Software events stand in for hardware ones, which a virtual machine rarely has."""
    monkeypatch.setattr(Perf, "events", ("task-clock", "page-faults"))
    monkeypatch.setattr(Perf, "unavailable_reason", lambda self: "")
    (profile,) = report(judge, scale_relu, program(), ("perf",), timing_seconds=0.0).profiles
    if "counted nothing" in profile.absent:
        pytest.skip(profile.absent)
    assert profile.metrics["task_clock"] > 0, profile.absent


@pytest.mark.pure
def test_every_profiler_of_a_platform_exists():
    for name in registry.names("platforms"):
        assert set(registry.load("platforms", name).profilers) <= set(registry.names("profilers"))


def program(top="", compiler="g++"):
    """A program for scale_relu that builds in a folder it removes again."""
    return PROGRAM.format(code=LOOPS, top=top, compiler=compiler)
