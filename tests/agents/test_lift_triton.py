"""Lifting for GPUs: Inductor's Triton kernels become plain ones, launched as its own runtime would launch them.

Without a GPU the recorded output of Inductor is translated, and run in Triton's interpreter where Triton is installed;
with one, programs are lifted and judged.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.agents.base import Situation, Target
from kforge.agents.offline import rules, triton_functions, variants
from kforge.agents.offline.call_translation import CallTranslation, translate
from kforge.agents.offline.interface import DenseLayout, Input, Interface
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.program import Parts, compose
from kforge.agents.offline.recipe import TRITON, LoweringRequest, LoweringResult, Recipe, Unliftable
from kforge.agents.offline.triton_kernel import TritonKernel, read
from kforge.agents.offline.triton_launch import Tuning, launch_of
from kforge.agents.offline.triton_text import triton_kernels
from kforge.agents.offline.wrapper import GeneratedModule, take_apart
from kforge.agents.offline.writer import OfflineWriter
from kforge.types import (
    Attempt,
    Candidate,
    Digest,
    ErrorNorm,
    Intent,
    Move,
    Outcome,
    Problem,
    Settings,
    Signal,
    Timing,
    Verdict,
)

HERE = Path(__file__).parents[1]
FIXTURES = {path.stem: path.read_text() for path in sorted((HERE / "fixtures" / "inductor_cuda").glob("*.txt"))}
RECORDED = sorted(FIXTURES)
WORKING = [name for name in RECORDED if name != "matmul"]
FOREIGN = ("_inductor", "triton_helpers", "triton_heuristics", "async_compile", "tl_math", "extern_kernels", "stream")


def interface_of(wrapper: GeneratedModule, code: str) -> Interface:
    """Every input of a recorded module as an argument of forward."""
    inputs = []
    for name in wrapper.inputs:
        found = re.search(rf"assert_size_stride\({name}, (\([^)]*\)), (\([^)]*\))", code)
        shape, stride = (ast.literal_eval(text) for text in found.groups()) if found else ((), ())
        inputs.append(Input(name, name, DenseLayout(shape, stride, "float32")))
    result = "(" + "".join(f"{{{place}}}, " for place in range(len(wrapper.outputs))) + ")"
    return Interface(wrapper.inputs, tuple(inputs), (), {}, {}, result)


def translated(name: str, tuning: Tuning = Tuning()) -> tuple[GeneratedModule, Interface, CallTranslation]:
    wrapper = take_apart(FIXTURES[name])
    interface = interface_of(wrapper, FIXTURES[name])
    return wrapper, interface, translate(wrapper, interface, (), tuning)


def program_of(name: str, tuning: Tuning = Tuning()) -> str:
    wrapper, interface, made = translated(name, tuning)
    return compose(Parts(name, "default", "2.x", interface, made, triton_kernels(wrapper.triton)))


def unresolved(source: str) -> set[str]:
    """Names that are read somewhere and bound nowhere."""
    tree = ast.parse(source)
    bound = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - bound


def launches(source: str) -> dict[str, ast.Call]:
    """The launch of each kernel in forward."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and isinstance(node.func.value, ast.Name)
        ):
            found[node.func.value.id] = node
    return found


# -- recorded code becomes a program -----------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize("name", WORKING)
def test_a_program_stands_on_its_own(name: str) -> None:
    source = program_of(name)
    assert not [word for word in FOREIGN if word in source.split('"""', 2)[-1]]
    assert not unresolved(source)
    kernels = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    made = launches(source)
    assert made
    for kernel, call in made.items():
        parameters = [argument.arg for argument in kernels[kernel].args.args]
        named = [word.arg for word in call.keywords if word.arg not in ("num_warps", "num_stages")]
        assert [*parameters[: len(call.args)], *named] == parameters, f"{kernel} is launched with other arguments"


@pytest.mark.pure
@pytest.mark.parametrize("name", WORKING)
def test_a_cleaned_kernel_still_stores_all_it_stored(name: str) -> None:
    for kernel in take_apart(FIXTURES[name]).triton:
        stores = re.findall(r"tl\.store\(.*", kernel.text)
        original = FIXTURES[name].split(f"async_compile.triton('{kernel.name}'")[1].split("''', device_str")[0]
        assert stores == re.findall(r"tl\.store\(.*", original)
        assert not re.search(r"^\s+(rnumel|rindex|xmask) = (?!.*\n(?:.*\n)*.*\1)", kernel.text, re.MULTILINE)


@pytest.mark.pure
def test_the_program_reads_like_one() -> None:
    source = program_of("gelu")
    assert "variant: default" in source
    assert variants.variant_of(source) == "default"
    assert "fused_gelu_0[(131072,)](arg0_1, buf0, XBLOCK=1024, num_warps=4)" in source
    assert "def fused_gelu_0(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):" in source
    assert 'torch.empty((16384, 8192), dtype=torch.float32, device="cuda")' in source
    assert "xnumel" not in source, "nothing reads it here"


@pytest.mark.pure
def test_library_calls_stay_torchs_and_a_program_of_them_alone_is_no_work() -> None:
    _, _, made = translated("matmul")
    assert made.lines[-1] == "torch.mm(arg0_1, arg1_1, out=buf0)"
    assert made.library == ["mm"]
    assert made.kernel_calls == 0


@pytest.mark.pure
def test_turning_a_tensor_round_is_no_work() -> None:
    kernels = take_apart(FIXTURES["conv_bias_relu_pool"]).triton
    assert [kernel.only_copies for kernel in kernels] == [True, True, False, False]
    _, _, made = translated("conv_bias_relu_pool")
    assert made.kernel_calls == 2


@pytest.mark.pure
def test_a_template_keeps_the_grid_that_inductor_chose() -> None:
    call = launches(program_of("small_template"))["fused_add_addmm_gelu_t_0"]
    original = re.search(r"fused_add_addmm_gelu_t_0\.run\(.*, (\d+), 1, 1, stream", FIXTURES["small_template"])
    assert original is not None
    assert isinstance(call.func, ast.Subscript)
    assert ast.literal_eval(call.func.slice) == (int(original.group(1)),)


@pytest.mark.pure
def test_what_we_have_nothing_for_is_refused_with_its_name() -> None:
    code = FIXTURES["row_argmax"].replace("triton_helpers.max_with_index", "triton_helpers.sort_with_index")
    with pytest.raises(Unliftable, match="sort_with_index"):
        triton_kernels(take_apart(code).triton)
    wrapper = take_apart(FIXTURES["softmax"].replace("'Grid1D'", "'CooperativeReductionGrid'"))
    with pytest.raises(Unliftable, match="CooperativeReductionGrid"):
        translate(wrapper, interface_of(wrapper, FIXTURES["softmax"]))


@pytest.mark.pure
def test_every_function_of_ours_needs_only_triton_and_the_others() -> None:
    texts = triton_functions.texts(set(triton_functions._ALL))
    source = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n" + "".join(
        texts
    )
    assert not unresolved(source)
    assert len(texts) == len(triton_functions._ALL)
    few = triton_functions.texts({"max2"})
    assert [re.findall(r"def (\w+)", text)[0] for text in few] == ["maximum", "max_along"], "callees, and those first"


# -- launches ----------------------------------------------------------------------------------------------------------


def inductors_grid(kernel: TritonKernel, blocks: dict[str, int]) -> tuple[int, int, int]:
    """The formulas of Inductor's runtime."""
    x = math.ceil(kernel.numels.get("x", 1) / blocks.get("XBLOCK", 1))
    y = math.ceil(kernel.numels.get("y", 1) / blocks.get("YBLOCK", 1))
    if kernel.grid == "Grid1D":
        return x, 1, 1
    if kernel.grid == "Grid2D":
        return x, y, 1
    assert kernel.grid == "Grid2DWithYZOverflow"
    layers = math.ceil(y / 65535)
    return x, math.ceil(y / layers), layers


@pytest.mark.pure
@pytest.mark.parametrize("name", WORKING)
@given(
    tuning=st.builds(Tuning, block=st.integers(-3, 3), warps=st.integers(-3, 3)),
)
def test_a_launch_covers_the_work_whatever_the_tuning(name: str, tuning: Tuning) -> None:
    for kernel in take_apart(FIXTURES[name]).triton:
        if kernel.kind == "template":
            continue
        launch = launch_of(kernel, (), tuning)
        grid = (*launch.grid, 1, 1)[:3]
        assert grid == inductors_grid(kernel, launch.blocks)
        assert set(launch.blocks) == set(kernel.blocks)
        assert all(size & (size - 1) == 0 for size in launch.blocks.values())
        assert launch.warps in (1, 2, 4, 8, 16)
        for block, size in launch.blocks.items():
            length = kernel.numels[block.removesuffix("BLOCK").lower()]
            assert block not in kernel.unmasked or length % size == 0, f"{block}={size} leaves a rest of {length}"


@pytest.mark.pure
@given(st.integers(1, 1 << 20), st.integers(1, 1 << 17), st.sampled_from(["INNER", "OUTER", "DEFAULT"]))
def test_a_reductions_launch_fits_any_shape(rows: int, length: int, lies: str) -> None:
    kernel = replace(
        next(kernel for kernel in take_apart(FIXTURES["softmax"]).triton),
        numels={"x": rows, "r0_": length},
        reduction=lies,
        text="",
    )
    launch = launch_of(kernel, (), Tuning())
    assert launch.grid == (math.ceil(rows / launch.blocks["XBLOCK"]),)
    assert launch.blocks["XBLOCK"] * launch.blocks["R0_BLOCK"] <= 4096
    persistent = launch_of(replace(kernel, kind="persistent_reduction", blocks=("XBLOCK",)), (), Tuning())
    assert persistent.grid[0] * persistent.blocks["XBLOCK"] >= rows


@pytest.mark.pure
def test_a_block_divides_a_dimension_that_has_no_mask() -> None:
    kernel = take_apart(FIXTURES["gelu"]).triton[0]
    assert kernel.unmasked == {"XBLOCK"}
    assert launch_of(replace(kernel, numels={"x": 3 * 64}), (), Tuning()).blocks == {"XBLOCK": 64}
    masked = replace(kernel, numels={"x": 3 * 64}, unmasked=frozenset())
    assert launch_of(masked, (), Tuning()).blocks == {"XBLOCK": 256}


@pytest.mark.pure
def test_a_kernel_whose_sizes_are_constants_of_its_signature_gets_them_all_the_same() -> None:
    """A dimension of one element is a constant for Inductor, and yet handed over."""
    code = FIXTURES["gelu"].split("'''")[1]
    code = code.replace("'xnumel': 'i32'", "'xnumel': 'constexpr'").replace(
        "'constants': {}", "'constants': {'xnumel': 1}"
    )
    kernel = read("triton_poi_fused_gelu_0", code)
    assert kernel.parameters == ("in_ptr0", "out_ptr0", "xnumel")
    assert kernel.blocks == ("XBLOCK",)
    assert kernel.dropped == {"xnumel"}


# -- the agents --------------------------------------------------------------------------------------------------------

TARGET = Target("triton", "", ("", ""), "gpu")
TEXT = "for r in tl.range(0, r0_numel, R0_BLOCK) libdevice.exp( num_warps=4 XBLOCK=1 torch.addmm( welford"


class Scripted:
    """A lowering that writes each variant's name."""

    def __init__(self) -> None:
        self.orders: list[LoweringRequest] = []

    async def make(self, order: LoweringRequest) -> LoweringResult:
        self.orders.append(order)
        return LoweringResult(f'"""A program.\n\nvariant: {order.variant}\n"""\n{TEXT}\n# {order.variant}\n')


def attempt(variant: str, *signals: Signal, failed: str = "") -> Attempt:
    source = f'"""A program.\n\nvariant: {variant}\n"""\n{TEXT}\n# {variant}\n'
    timing = Timing("eager", 1.0, (1.0, 1.0), None, (1e6,), (1e6,), 5, 1)
    errors = (ErrorNorm("natural", 0.0, 1.0, 0.0),)
    verdict = Verdict(Outcome.CORRECT, "correct", errors=errors, timing=timing, custom_share=0.9)
    if failed:
        verdict = Verdict(Outcome.REJECTED, "torch did the work", rule=failed)
    return Attempt(Move(0, 1, Intent.FRESH), Candidate(source), verdict, digest=Digest(signals) if signals else None)


def situation(first: Attempt, intent: Intent) -> Situation:
    return Situation(Problem("sample", "class Model: ..."), TARGET, Move(0, 2, intent, parent=1), (first,))


@pytest.mark.pure
@pytest.mark.parametrize(
    ("signals", "action"),
    [
        ((Signal("limiter", "memory limits `k`: DRAM works at 93 % of its peak"),), "whole_rows"),
        ((Signal("limiter", "compute limits `k`: the special-function pipe works"),), "split_products"),
        ((Signal("limiter", "registers (255 a thread) limit `k`: they allow 12 %"),), "more_warps"),
        ((Signal("limiter", "latency limits `k`: no unit works at more than 20 %"),), "more_warps"),
        ((Signal("bound", "memory sets the least time"),), "whole_rows"),
        (
            (Signal("limiter", "launches limit the call: 9 kernels"), Signal("traffic", "also: traffic limits")),
            "whole_rows",
        ),
        ((), "split_products"),
    ],
)
def test_the_limiter_in_the_digest_decides_the_move(signals: tuple[Signal, ...], action: str) -> None:
    choices = rules.ranked_moves(situation(attempt("default", *signals), Intent.OPTIMISE))
    assert choices[0].action == action
    assert choices[0].reading.evidence
    assert all(variants.VARIANTS[choice.action].language == TRITON for choice in choices)


@pytest.mark.pure
def test_the_writer_orders_triton_and_mends_with_its_safer_variants() -> None:
    lowering = Scripted()
    writer = OfflineWriter(lowering)  # type: ignore[arg-type]
    fresh = Situation(Problem("sample", "class Model: ..."), TARGET, Move(0, 1, Intent.FRESH))
    assert asyncio.run(writer.write(fresh)).source
    assert lowering.orders[-1].recipe == Recipe()
    assert asyncio.run(writer.write(situation(attempt("default", failed="no_custom_kernel"), Intent.REPAIR))).source
    assert lowering.orders[-1].variant == "triton_products"
    assert asyncio.run(writer.write(situation(attempt("default", failed="timing"), Intent.REPAIR))).source
    assert lowering.orders[-1].variant == "plain"


@pytest.mark.pure
def test_a_tile_that_is_asked_for_wins_over_the_products_own() -> None:
    assert variants.recipe("split_products+small_tiles", TRITON).tile == variants.VARIANTS["small_tiles"].recipe.tile
    assert variants.recipe("default", TRITON) == Recipe()


# -- in Triton's interpreter -------------------------------------------------------------------------------------------

CHECKS = {
    "small_norm": "F.layer_norm(x, (24,)), torch.softmax(x, -1), x.argmax(0)",
    "small_norm_newer": "F.layer_norm(x, (24,)), torch.softmax(x, -1), x.argmax(0)",
    "small_rows": "torch.softmax(x, -1), x.var(0), x.cumsum(1)",
    "small_template": "(x + F.gelu(F.linear(x, p_l_weight, p_l_bias)),)",
}
INTERPRETED = """
import sys, types
import numpy, torch, triton.language as tl
import torch.nn.functional as F
import triton.language.extra as extra
from triton.runtime.interpreter import TensorHandle

# The interpreter has no device library: torch's functions stand in for it.
class Library(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        def call(x):
            values = getattr(torch, name)(torch.from_numpy(numpy.ascontiguousarray(x.handle.data))).numpy()
            return tl.core.tensor(TensorHandle(values, x.handle.dtype), x.type)
        return call

extra.libdevice = sys.modules["triton.language.extra.libdevice"] = Library("libdevice")
import program
torch.manual_seed(0)
SHAPES
found = program.ModelNew()(ARGUMENTS)
wanted = EXPECTED
assert len(found) == len(wanted)
for one, other in zip(found, wanted):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
print("same")
"""


@pytest.mark.cpu
@pytest.mark.parametrize("name", sorted(CHECKS))
@pytest.mark.parametrize(
    "tuning", [Tuning(), Tuning(block=-2), Tuning(block=1, warps=1)], ids=["rule", "small", "large"]
)
def test_kernels_compute_what_the_module_computes(name: str, tuning: Tuning, tmp_path: Path) -> None:
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("numpy") is None:
        pytest.skip("Triton is not installed: pip install triton numpy")
    wrapper, interface, _ = translated(name)
    (tmp_path / "program.py").write_text(program_of(name, tuning).replace('"cuda"', '"cpu"'))
    shapes = [f"{item.name} = torch.randn({item.layout.shape})" for item in interface.inputs if item.layout]
    text = INTERPRETED.replace("SHAPES", "\n".join(shapes)).replace("ARGUMENTS", ", ".join(wrapper.inputs))
    (tmp_path / "check.py").write_text(text.replace("EXPECTED", CHECKS[name]))
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "check.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("same\n"), done.stderr[-2000:]


# -- the lowering process ----------------------------------------------------------------------------------------------


def lifted(problem: str, variant: str) -> LoweringResult:
    """What the lowering process answers."""

    async def lift() -> LoweringResult:
        lowering = Lowering()
        try:
            recipe = variants.recipe(variant, TRITON)
            return await lowering.make(LoweringRequest(Problem.from_source(problem), "gpu", variant, recipe))
        finally:
            await lowering.close()

    return asyncio.run(lift())


# -- tracing without memory --------------------------------------------------------------------------------------------

VAST = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1 << 12)
        self.alias = self.norm
        self.plain = torch.full((1 << 12,), 3.0)

    def forward(self, x):
        return self.norm(x) + self.plain, x, x.unsqueeze(0)

def get_inputs():
    return [torch.randn(1 << 28, 1 << 12)]

def get_init_inputs():
    return []
"""


@pytest.mark.cpu
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_problem_larger_than_any_memory_is_traced_for_the_gpu() -> None:
    from kforge.agents.offline.graph_export import export
    from kforge.agents.offline.loaded_problem import load

    loaded = load(Problem.from_source(VAST), "gpu")
    exported = export(loaded)
    values = [node.meta["val"] for node in exported.graph.graph.nodes if node.op == "placeholder"]
    assert {value.device.type for value in values} == {"cuda"}
    assert exported.interface.inputs[0].layout == DenseLayout((1 << 28, 1 << 12), (1 << 12, 1), "float32")
    assert [item.tied for item in exported.interface.state] == ["", "", "norm.weight", "norm.bias"]
    assert list(exported.interface.constants.values()) == ["torch.full((4096,), 3.0, dtype=torch.float32)"]
    assert exported.interface.copied == (0,), "what eager returns in the input's own memory is not copied"
    assert loaded.values.norm.weight.device.type == "cpu"


@pytest.mark.cpu
def test_without_a_gpu_the_reason_says_so() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    product = lifted(NORMS, "default")
    assert product.source is None
    assert "PyTorch sees none on this machine" in product.reason


# -- on the device -----------------------------------------------------------------------------------------------------

QUICK = Settings(timing_seconds=0, compile_baseline=False, seeds=2)

NORMS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.batch = nn.BatchNorm1d(features)

    def forward(self, x):
        return torch.softmax(self.batch(self.norm(x)), dim=-1), x.argmax(dim=0)

def get_inputs():
    return [torch.randn(300, 1000)]

def get_init_inputs():
    return [1000]
"""

PRODUCTS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(129, 257)
        self.conv = nn.Conv1d(64, 32, 3)

    def forward(self, x):
        return self.conv(self.linear(x))

def get_inputs():
    return [torch.randn(8, 64, 129)]

def get_init_inputs():
    return []
"""


@pytest.mark.accelerator
@pytest.mark.parametrize("platform", ["triton", "cuda"])
@pytest.mark.parametrize(
    ("problem", "variant"),
    [
        (NORMS, "default"),
        (NORMS, "whole_rows+more_warps"),
        (NORMS, "two_sums+pipelined+small_blocks"),
        (NORMS, "fast_math+large_blocks"),
        (PRODUCTS, "default"),
        (PRODUCTS, "split_products"),
        (PRODUCTS, "triton_products+plain"),
    ],
)
def test_a_lifted_program_is_judged_correct(platform: str, problem: str, variant: str) -> None:
    from kforge.worker.judge.judge import Judge

    product = lifted(problem, variant)
    assert product.source, product.reason
    with Judge(platform) as judge:
        verdict = judge.evaluate(Problem.from_source(problem), Candidate(product.source), QUICK)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
