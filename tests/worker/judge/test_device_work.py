"""What is made of work on a device: whose it is, what its errors mean, and what a program's text gives away."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kforge import Outcome, registry
from kforge.errors import WireError
from kforge.worker.judge import explain, integrity, static_rules
from kforge.worker.judge.baselines import describe_baseline_error
from kforge.worker.judge.integrity import Observation
from kforge.worker.judge.runner_handle import ProgramError
from kforge.worker.protocol.base import RaisedError, answer_from_wire, answer_to_wire
from kforge.worker.protocol.calls import RecordedCall, WatchedCall
from kforge.worker.protocol.records import ObservedKernel, Operator

pytestmark = pytest.mark.cpu

EXAMPLES = Path(__file__).parents[3] / "examples" / "kernels"

REFERENCE = Observation((Operator("aten.mm", "compute", 4096, 900), Operator("aten.relu", "compute", 4096, 100)), False)
ALLOCATION = Operator("aten.empty_like", "allocation", 4096, 5)


def observed(
    *kernels: ObservedKernel, operators: tuple[Operator, ...] = (ALLOCATION,), effect: bool = True
) -> Observation:
    own = tuple(dict.fromkeys(kernel.name for kernel in kernels if kernel.whose == "own"))
    return Observation(operators, effect, own, kernels)


OWN = ObservedKernel("my_kernel(float const*, float*)", "own", 700)
TORCHS = ObservedKernel("void at::native::vectorized_elementwise_kernel<4>(int)", "torch", 300)
LIBRARYS = ObservedKernel("sm90_xmma_gemm_f32f32(int)", "library", 701)


# -- whose work it is ------------------------------------------------------------------------------------------------


def test_a_kernel_of_its_own_is_needed() -> None:
    torchs = observed(TORCHS, operators=(Operator("aten.relu", "compute", 4096, 300),))
    rule, what = integrity.judge_work(torchs, REFERENCE, "hybrid")
    assert rule == "no_custom_kernel"
    assert "at::native::vectorized_elementwise_kernel" in what
    assert integrity.judge_work(observed(OWN), REFERENCE, "hybrid") == ("", "")
    assert integrity.judge_work(torchs, REFERENCE, "any") == ("", "")


def test_without_any_kernel_torch_did_the_work() -> None:
    rule, what = integrity.judge_work(observed(), REFERENCE, "hybrid")
    assert rule == "no_custom_kernel"
    assert "no native code" in what


def test_where_launches_are_noted_it_is_kernels_that_are_missed() -> None:
    watched = WatchedCall(False, [], "")
    recorded = RecordedCall([Operator("aten.relu", "compute", 4096, 300)], 0, None, [], 0)
    noted = integrity.read_observation(watched, recorded, ("/usr/lib/libvendor.so",), noted=True)
    assert integrity.judge_work(noted, REFERENCE, "hybrid") == (
        "no_custom_kernel",
        "no kernel of its own was launched; torch did the work (aten.relu)",
    )
    assert "C++" not in explain.how_to_comply("no_custom_kernel")
    assert "native" not in explain.how_to_comply("no_custom_kernel")


def test_a_kernel_without_effect_is_decoration() -> None:
    rule, _ = integrity.judge_work(observed(OWN, effect=False), REFERENCE, "hybrid")
    assert rule == "decorative_kernel"


def test_a_library_called_past_torchs_operators_must_not_do_most_of_the_work() -> None:
    rule, what = integrity.judge_work(observed(OWN, LIBRARYS), REFERENCE, "hybrid")
    assert rule == "decorative_kernel"
    assert "sm90_xmma_gemm_f32f32" in what
    assert "past torch's operators" in what
    less = ObservedKernel(LIBRARYS.name, "library", 699)
    assert integrity.judge_work(observed(OWN, less), REFERENCE, "hybrid") == ("", "")
    assert integrity.judge_work(observed(OWN, LIBRARYS), REFERENCE, "any") == ("", "")


def test_the_library_beside_a_kernel_is_work_shared_and_not_forbidden() -> None:
    half = observed(OWN, TORCHS, operators=(Operator("aten.mm", "compute", 4096, 300),))
    assert integrity.judge_work(half, REFERENCE, "hybrid") == ("", "")
    assert integrity.judge_work(half, REFERENCE, "strict")[0] == "library_compute"
    assert integrity.judge_work(observed(OWN), REFERENCE, "strict") == ("", "")


def test_random_numbers_that_the_reference_draws_may_be_drawn_under_strict() -> None:
    draws = Operator("aten.normal_", "compute", 96, 20)
    reference = replace(REFERENCE, operators=(*REFERENCE.operators, draws))
    assert integrity.judge_work(observed(OWN, operators=(draws,)), reference, "strict") == ("", "")
    for others in ((draws, draws), (draws._replace(elements=97),), (draws._replace(name="aten.mul"),)):
        assert integrity.judge_work(observed(OWN, operators=others), reference, "strict")[0] == "library_compute"
    assert integrity.judge_work(observed(OWN, operators=(draws,)), REFERENCE, "strict")[0] == "library_compute"


def test_torch_doing_all_of_the_reference_makes_a_kernel_decoration() -> None:
    whole = observed(OWN, TORCHS, operators=REFERENCE.operators)
    rule, what = integrity.judge_work(whole, REFERENCE, "hybrid")
    assert rule == "decorative_kernel"
    assert "aten.mm, aten.relu" in what


@pytest.mark.parametrize(
    ("seen", "share"),
    [
        (observed(OWN), 1.0),
        (observed(OWN, TORCHS), 0.7),
        (observed(OWN, TORCHS, ObservedKernel("nvjet_tst", "library", 400)), 0.5),
        (observed(OWN, effect=False), 0.0),
        (observed(TORCHS), 0.0),
        (observed(ObservedKernel("mine", "own", 0)), 0.0),
    ],
    ids=["all", "beside torch", "beside a library", "no effect", "none", "no time"],
)
def test_the_share_is_that_of_the_devices_time(seen: Observation, share: float) -> None:
    assert integrity.custom_share(seen, call_ns=1e9) == pytest.approx(share)


def test_without_a_device_the_share_is_that_of_the_call() -> None:
    seen = Observation((Operator("aten.mm", "compute", 4, 250), ALLOCATION), True, ("/tmp/k.so",))
    assert integrity.custom_share(seen, call_ns=1000) == pytest.approx(0.75)


WATCHED = WatchedCall(True, [], "")
RECORDED = RecordedCall(
    [Operator("aten.mm", "compute", 4096, 300)],
    0,
    None,
    [ObservedKernel("mine", "own", 700), ObservedKernel("mine", "own", 10), ObservedKernel("gemm", "torch", 300)],
    0,
)


def test_a_reply_is_read() -> None:
    seen = integrity.read_observation(WATCHED, RECORDED, (), on_device=True)
    assert seen.operators == (Operator("aten.mm", "compute", 4096, 300),)
    assert seen.native == ("mine",)
    assert seen.custom_effect is True
    assert (seen.device_ns("own"), seen.device_ns("torch"), seen.device_ns("library")) == (710, 300, 0)


def test_without_a_device_a_kernel_that_is_claimed_does_not_count() -> None:
    seen = integrity.read_observation(WATCHED, RECORDED, ())
    assert (seen.kernels, seen.native) == ((), ())
    assert integrity.judge_work(seen, REFERENCE, "hybrid")[0] == "no_custom_kernel"


@pytest.mark.parametrize(
    "change",
    [
        {"kernels": [["mine", "own"]]},
        {"kernels": [["mine", "own", 700, 1]]},
        {"kernels": [["mine", "own", "long"]]},
        {"kernels": [["mine", "own", float("nan")]]},
        {"operators": [["aten.mm", "compute", 4096]]},
        {"operators": ["aten.mm"]},
        {"operators": [["aten.mm", "compute", "many", 300]]},
        {"device_ns": True},
    ],
)
def test_a_reply_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    message = json.loads(json.dumps({**answer_to_wire(RECORDED), **change}))
    with pytest.raises(WireError, match=f"RecordedCall.{next(iter(change))}"):
        answer_from_wire(RecordedCall, message)


@pytest.mark.parametrize("time", [-1, 1 << 60, 10**400])
def test_a_time_that_is_none_is_refused(time: int) -> None:
    for recorded in (
        replace(RECORDED, call_ns=time),
        replace(RECORDED, device_ns=time),
        replace(RECORDED, operators=[Operator("aten.mm", "compute", 4096, time)]),
        replace(RECORDED, kernels=[ObservedKernel("mine", "own", time)]),
    ):
        with pytest.raises(ValueError, match="a time that is none"):
            integrity.read_observation(WATCHED, recorded, (), on_device=True)


# -- what errors mean ------------------------------------------------------------------------------------------------


def said(kind: str, message: str, phase: str = "forward", text: str = "") -> tuple[Outcome, str]:
    return explain.program_error(phase, RaisedError(kind, message, (), text or message), "")


NVRTC = """NVRTC_ERROR_COMPILATION: NVRTC_ERROR_COMPILATION, compilation log:

default_program(4): warning #177-D: variable "unused" was declared but never referenced
      int unused;
          ^

default_program(7): error: identifier "blockIdz" is undefined
      int i = blockIdz.x;
              ^

default_program(9): error: expected a ";"
      y[i] = 0.0f
      ^

2 errors detected in the compilation of "default_program".
"""


@pytest.mark.parametrize("phase", ["import", "init", "forward"])
def test_nvrtcs_first_error_is_shown_with_its_lines_and_the_others_in_short(phase: str) -> None:
    outcome, sentence = said("NVRTCError", NVRTC, phase)
    assert outcome is Outcome.COMPILATION_FAILURE
    lines = sentence.splitlines()
    assert lines[0] == "the compiler refused the kernel:"
    assert lines[1] == 'default_program(7): error: identifier "blockIdz" is undefined'
    assert "int i = blockIdz.x;" in lines[2]
    assert 'default_program(9): error: expected a ";"' in lines
    assert "warning" not in sentence


def test_a_log_that_is_there_twice_has_no_more_errors_than_once() -> None:
    _, once = said("NVRTCError", NVRTC, "import")
    _, twice = said("NVRTCError", NVRTC + NVRTC, "import")
    assert "more error" not in once + twice
    assert twice.count('expected a ";"') == 1


def test_nvccs_error_in_an_extension_is_shown() -> None:
    text = (
        "Error building extension 'k': [1/3] nvcc -c cuda.cu\n/tmp/runner/k/cuda.cu(3): error: no instance of "
        "function\n  f(x);\n  ^\n\n1 error detected in the compilation of cuda.cu.\nninja: build stopped: failed."
    )
    outcome, sentence = said("RuntimeError", text, "import")
    assert outcome is Outcome.COMPILATION_FAILURE
    assert sentence.splitlines()[1] == "/tmp/runner/k/cuda.cu(3): error: no instance of function"


@pytest.mark.parametrize("kind", ["CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure"])
def test_tritons_refusal_is_a_compilation_failure_whenever_it_comes(kind: str) -> None:
    message = "at 5:8:\n    x = tl.load(p)\n        ^\nNameError('p is not defined')"
    outcome, sentence = said(kind, message)
    assert outcome is Outcome.COMPILATION_FAILURE
    assert "the compiler refused the kernel" in sentence
    assert "p is not defined" in sentence


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA", "mapped read-only"),
        ("CUDA error: misaligned address", "no multiple of its size"),
        ("CUDA error: no kernel image is available for execution on the device", "another architecture"),
        ("CUDA error: an illegal instruction was encountered", "wrong arch"),
        ("CUDA error: device-side assert triggered", "an assertion in a kernel"),
        ("CUDA error: unspecified launch failure", "touched memory it must not"),
        ("CUDA error: too many resources requested for launch", "more registers or threads"),
        ("CUDA error: invalid configuration argument", "the grid or block"),
        ("out of resource: shared memory, Required: 300000, Hardware limit: 232448.", "more shared memory"),
    ],
)
@pytest.mark.parametrize("phase", ["import", "forward"])
def test_a_fault_of_the_device_is_a_runtime_error_with_its_meaning(message: str, says: str, phase: str) -> None:
    outcome, sentence = said("AcceleratorError", message, phase)
    assert outcome is Outcome.RUNTIME_ERROR
    assert message.splitlines()[0] in sentence
    assert says in sentence.splitlines()[-1]


def test_what_torch_adds_to_every_error_is_left_out() -> None:
    message = (
        "CUDA error: misaligned address\n"
        "Search for `cudaErrorMisalignedAddress' in https://docs.nvidia.com/cuda for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    )
    _, sentence = said("AcceleratorError", message)
    assert sentence.splitlines()[0] == "AcceleratorError in forward: CUDA error: misaligned address"
    assert len(sentence.splitlines()) == 2
    error = ProgramError("forward", RaisedError("AcceleratorError", message), [])
    assert describe_baseline_error(error) == "AcceleratorError: CUDA error: misaligned address"


def test_an_ordinary_error_is_given_no_meaning_it_does_not_have() -> None:
    assert said("ValueError", "odd shape") == (Outcome.RUNTIME_ERROR, "ValueError in forward: odd shape")
    assert said("ValueError", "odd shape", "import")[0] is Outcome.COMPILATION_FAILURE


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 300.00 GiB."),
        ("OutOfMemoryError", "no room"),
        ("RuntimeError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("AcceleratorError", "CUDA error: out of memory"),
    ],
)
def test_out_of_device_memory_says_what_it_shares_the_device_with(kind: str, message: str) -> None:
    outcome, sentence = said(kind, message, "import")
    assert outcome is Outcome.RUNTIME_ERROR
    assert message in sentence
    assert "more device memory than is free beside the reference's inputs and outputs" in sentence
    assert "than its limit allows" not in sentence


def test_the_sanitizers_rule_says_how_to_comply() -> None:
    assert "inside its tensor" in explain.how_to_comply("sanitizer")


# -- what the text gives away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from cuda.core import ObjectCode\ncode = ObjectCode.from_cubin(data)", "from_cubin"),
        ("from cuda.core import ObjectCode\nload = ObjectCode.from_fatbin", "from_fatbin"),
        ("import ctypes\nctypes.CDLL('libcuda.so.1').cuModuleLoadData(m, data)", "cuModuleLoadData"),
        ("from cuda.bindings import driver\ndriver.cuLibraryLoadData(data)", "cuLibraryLoadData"),
    ],
)
def test_what_loads_compiled_code_is_found(source: str, name: str) -> None:
    (finding,) = static_rules.scan(source)
    assert (finding.rule, finding.line) == ("embedded_binary", 2)
    assert finding.what == f"{name} loads compiled code"


@pytest.mark.parametrize("platform", ["cuda", "triton"])
def test_honest_programs_are_not(platform: str) -> None:
    sources = [registry.load("platforms", platform).example()[1]]
    sources += [path.read_text() for path in (EXAMPLES / platform).glob("*.py")]
    assert len(sources) > 1
    assert [static_rules.scan(source) for source in sources] == [[]] * len(sources)
    assert static_rules.scan('"""Neither from_cubin nor cuModuleLoadData is used."""\nx = 1  # cuModuleLoadData') == []
