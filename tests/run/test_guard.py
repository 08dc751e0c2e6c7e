"""A program as it is handed to a user: right where it was verified, one sentence everywhere else, never silently wrong.

The program below checks nothing at all: whatever is refused, the guard refuses.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.run import guarded_program
from kforge.types import Domain, DynamicAxes, TensorLayout
from kforge.worker import trees

pytestmark = [
    pytest.mark.toolchain,
    # torch's own: forward-mode derivatives script functions when first used, and tracing is on its way out.
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]

CARELESS = r'''
import ctypes, hashlib, os, subprocess, tempfile
import torch

SOURCE = r"""
extern "C" void scale(const float* x, const float* weight, float* y, long rows, long columns) {
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * weight[c];
}
"""
folder = tempfile.mkdtemp(dir=os.environ.get("KFORGE_BUILD_DIR"))
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
library = os.path.join(folder, "k.so")
subprocess.run(["g++", "-O1", "-shared", "-fPIC", file.name, "-o", library], check=True)
kernel = ctypes.CDLL(library).scale
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2


class ModelNew(torch.nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0) + 1)
        self.register_buffer("shift", torch.zeros(2, 4), persistent=False)

    def forward(self, x):
        y = torch.empty(4, 8)
        kernel(x.data_ptr(), self.weight.data_ptr(), y.data_ptr(), 4, 8)
        return y
'''

DOMAIN = Domain(
    arguments=["l", [["T", 0]]],
    tensors=(TensorLayout("", "float32", (4, 8), (8, 1)),),
    state=(TensorLayout("weight", "float32", (8,), (1,)), TensorLayout("shift", "float32", (2, 4), (4, 1))),
    device="cpu",
)


def loaded(text: str, name: str = "program") -> Any:
    """The namespace of a program's text."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec"), namespace)
    return namespace


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Makes a guarded class; compiled once."""
    os.environ["KFORGE_BUILD_DIR"] = str(tmp_path_factory.mktemp("build"))
    try:
        bare = loaded(CARELESS)["ModelNew"]
    finally:
        del os.environ["KFORGE_BUILD_DIR"]
    tail = guarded_program.add_guard("", "scale", None).rpartition("_kforge_guard(\n")[0]

    def make(domain: Domain | None = DOMAIN, kind: Any = bare) -> Any:
        text = guarded_program.add_guard("", "scale", domain)
        assert text.startswith(tail)
        made = type("ModelNew", (kind,), {})
        namespace: dict[str, Any] = {"ModelNew": made, "__name__": "program"}
        exec(text, namespace)
        return made

    return make


@pytest.fixture
def module(kinds: Callable[..., Any]) -> Any:
    return kinds()()


def right(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x.detach() * module.weight.detach()


class Residual(torch.nn.Module):
    """A block in which a wrong gradient would go unnoticed: another path has one."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.inner(x * 2)).relu()


# -- what it was verified for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_it_runs_as_it_was_verified(module: Any, surroundings: Any) -> None:
    x = torch.randn(4, 8)
    with surroundings():
        torch.testing.assert_close(module(x), right(module, x))
        torch.testing.assert_close(module(x=x), right(module, x))


def test_other_strides_of_an_argument_are_copied(module: Any) -> None:
    with torch.no_grad():
        for x in (torch.randn(8, 4).t(), torch.randn(4, 16)[:, ::2], torch.randn(1, 8).expand(4, 8)):
            torch.testing.assert_close(module(x), right(module, x))
        shifted = torch.randn(33)[1:].view(4, 8)
        torch.testing.assert_close(module(shifted), right(module, shifted))


def test_it_can_be_copied_and_its_state_loaded(module: Any) -> None:
    twin = copy.deepcopy(module)
    with torch.no_grad():
        module(torch.randn(4, 8))
        again = copy.deepcopy(module)
        for one in (twin, again):
            assert list(one.state_dict()) == ["weight"]
            one.load_state_dict({"weight": torch.full((8,), 3.0)})
            torch.testing.assert_close(one(torch.ones(4, 8)), torch.full((4, 8), 3.0))
        again.weight.data = again.weight.data.double()
        with pytest.raises(ValueError, match="weight must be float32"):
            again(torch.ones(4, 8))
        torch.testing.assert_close(module(torch.ones(4, 8)), right(module, torch.ones(4, 8)))


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_a_gradient_is_refused_where_it_is_asked_for(module: Any) -> None:
    block, x = Residual(module), torch.randn(4, 8, requires_grad=True)
    loss = block(x).square().mean()
    with pytest.raises(RuntimeError, match="verified for inference only: it has no gradient"):
        loss.backward()


def test_the_modules_own_parameters_have_none_either(module: Any) -> None:
    loss = module(torch.randn(4, 8)).sum()
    with pytest.raises(RuntimeError, match="it has no gradient"):
        loss.backward()


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x, weight = (tensor.detach() for tensor in context.saved_tensors)
        return gradient.detach() * weight, (gradient.detach() * x).sum(0)


@pytest.fixture
def trained(kinds: Callable[..., Any]) -> Any:
    """A module whose gradients were verified."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return _Scaled.apply(x, self.weight)  # type: ignore[no-untyped-call, no-any-return]

    def start(self: Any) -> None:
        torch.nn.Module.__init__(self)
        self.weight = torch.nn.Parameter(torch.arange(8.0) + 1)
        self.register_buffer("shift", torch.zeros(2, 4), persistent=False)

    bare = type("Bare", (torch.nn.Module,), {"__init__": start, "forward": forward})
    return kinds(replace(DOMAIN, backward=True), bare)()


def test_a_program_whose_gradients_were_verified_can_be_trained(trained: Any) -> None:
    block, x = Residual(trained), torch.randn(4, 8, requires_grad=True)
    before = trained.weight.detach().clone()
    optimiser = torch.optim.SGD(block.parameters(), lr=0.1)
    block(x).square().mean().backward()
    weight = before.clone().requires_grad_()
    other = x.detach().requires_grad_()
    plain = other + block.linear(other * 2 * weight).relu()
    wanted = torch.autograd.grad(plain.square().mean(), [other, weight])
    torch.testing.assert_close([x.grad, trained.weight.grad], list(wanted))
    optimiser.step()
    assert not torch.equal(trained.weight, before)


def test_what_it_was_not_verified_for_is_refused_in_training_too(trained: Any) -> None:
    with pytest.raises(ValueError, match="was verified for nothing else"):
        trained(torch.randn(4, 9, requires_grad=True))


def test_a_second_derivative_is_refused(trained: Any) -> None:
    x = torch.randn(4, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="verified for first derivatives only"):
        torch.autograd.grad(trained(x).square().sum(), x, create_graph=True)


def test_an_argument_in_another_layout_gets_its_gradient(trained: Any) -> None:
    x = torch.randn(8, 4, requires_grad=True)
    trained(x.t()).sum().backward()
    torch.testing.assert_close(x.grad, trained.weight.detach()[:, None].expand(8, 4))


def test_a_frozen_module_gives_a_plain_result(module: Any) -> None:
    module.requires_grad_(False)
    assert not module(torch.randn(4, 8)).requires_grad


def test_forward_mode_is_refused(module: Any) -> None:
    from torch.autograd import forward_ad

    module.requires_grad_(False)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(4, 8), torch.randn(4, 8))
        with pytest.raises(RuntimeError, match="it has no gradient"):
            module(dual)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev])
def test_functional_transforms_raise(module: Any, transform: Any) -> None:
    with pytest.raises(RuntimeError):
        transform(lambda x: module(x).sum())(torch.randn(4, 8))


# -- compilers and tracers ---------------------------------------------------------------------------------------------


def test_a_compiled_model_gives_the_same_result(module: Any) -> None:
    torch._dynamo.reset()
    block, x = Residual(module).eval(), torch.randn(4, 8)
    with torch.no_grad():
        want = block(x)
        compiled = torch.compile(block, backend="eager")
        for _ in range(3):
            torch.testing.assert_close(compiled(x), want)
        torch.testing.assert_close(torch.compile(module, backend="eager")(x), right(module, x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_a_compiled_model_refuses_gradients_too(module: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 8, requires_grad=True)
    loss = torch.compile(Residual(module), backend="eager")(x).sum()
    with pytest.raises(RuntimeError, match="it has no gradient"):
        loss.backward()


def test_one_graph_is_refused_in_a_sentence(module: Any) -> None:
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="cannot be part of a graph: compile without fullgraph=True"):
        torch.compile(Residual(module), backend="eager", fullgraph=True)(torch.randn(4, 8))


def test_tracers_are_refused(module: Any) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    block, x = Residual(module).eval(), torch.randn(4, 8)
    sentence = "native code no tracer can see into"
    with torch.no_grad():
        block(x)
        with pytest.raises(RuntimeError, match=sentence):
            torch.jit.trace(block, x)
        with pytest.raises(TypeError, match=sentence):
            torch.export.export(block, (x,))
        with pytest.raises(RuntimeError, match=sentence):
            make_fx(block)(x)
        with pytest.raises(TypeError, match=sentence):
            torch.fx.symbolic_trace(block)
        with pytest.raises(Exception, match="fullgraph"):
            torch.export.export(block, (x,), strict=True)
        # Neither what was tried nor what was left behind spoils the module.
        torch.testing.assert_close(copy.deepcopy(block)(x), block(x))


INDUCTOR = """
import sys, torch
sys.path.insert(0, {folder!r})
import kernel

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.linear = kernel.ModelNew(), torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(self.inner(x * 2)).relu()

block, x = Block().eval(), torch.randn(4, 8)
with torch.no_grad():
    want = block(x)
    compiled = torch.compile(block)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), want)
    for _ in range(50):
        torch.testing.assert_close(block(x), want)
print("whole")
"""


@pytest.mark.slow
def test_an_exported_file_survives_inductor_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(guarded_program.add_guard(CARELESS, "scale", DOMAIN))
    (tmp_path / "use.py").write_text(INDUCTOR.format(folder=str(tmp_path)))
    environment = {**os.environ, "KFORGE_BUILD_DIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "use.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "whole"


# -- parameters --------------------------------------------------------------------------------------------------------


def strided(module: Any) -> None:
    module.weight.data = torch.zeros(16)[::2]


def shortened(module: Any) -> None:
    module.weight = torch.nn.Parameter(torch.ones(7))


def wrapped(module: Any) -> None:
    class Wrapper(torch.Tensor):
        pass

    module._parameters["weight"] = torch.ones(8).as_subclass(Wrapper)


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bfloat16": (lambda module: module.to(torch.bfloat16), "module's weight must be float32 .* and is bfloat16"),
    "float64": (lambda module: module.double(), "module's weight must be float32 .* and is float64"),
    "strided": (strided, r"weight must be .* with strides \(1,\), and is with strides \(2,\)"),
    "shortened": (shortened, r"weight must be float32 \(8,\) on cpu, and is float32 \(7,\)"),
    "meta": (lambda module: module.to("meta"), "weight must be .* on cpu, and is .* on meta"),
    "subclass": (wrapped, "weight must be a plain tensor"),
    "none": (lambda module: setattr(module, "weight", None), "weight must be a plain tensor"),
    "buffer": (lambda module: setattr(module, "shift", module.shift.half()), "module's shift must be float32"),
    "lost": (lambda module: module._buffers.pop("shift"), "has lost its shift"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("called_before", [False, True])
def test_a_changed_parameter_is_refused(module: Any, change: str, called_before: bool) -> None:
    alter, sentence = CHANGES[change]
    with torch.no_grad():
        if called_before and change != "lost":
            module(torch.randn(4, 8))
        alter(module)
        with pytest.raises(ValueError, match=sentence):
            module(torch.randn(4, 8))


# -- arguments ---------------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "dtype": (lambda: (torch.randn(4, 8).half(),), r"argument 1 must be float32 \(4, 8\) on cpu, and is float16"),
    "shape": (lambda: (torch.randn(5, 8),), r"argument 1 must be float32 \(4, 8\) on cpu, and is float32 \(5, 8\)"),
    "meta": (lambda: (torch.empty(4, 8, device="meta"),), "argument 1 must be .* and is .* on meta"),
    "count": (lambda: (torch.randn(4, 8), 2), "was verified with 1 arguments, and is given 2"),
    "kind": (lambda: (3,), "argument 1 is a builtins.int and no plain tensor"),
}


@pytest.mark.parametrize("change", ARGUMENTS)
def test_another_argument_is_refused(module: Any, change: str) -> None:
    make, sentence = ARGUMENTS[change]
    with torch.no_grad(), pytest.raises((ValueError, TypeError), match=sentence):
        module(*make())


# -- surroundings ------------------------------------------------------------------------------------------------------


def test_autocast_does_not_reach_inside(module: Any) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(module(x), right(module, x))


def test_another_default_dtype_is_refused(module: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), pytest.raises(ValueError, match="default dtype must be float32, and is float64"):
            module(torch.randn(4, 8, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_mode_matters_only_where_it_does(kinds: Callable[..., Any]) -> None:
    x = torch.randn(4, 8)
    with torch.no_grad():
        either, evaluated = kinds()(), kinds(replace(DOMAIN, training=False))()
        either.train()(x), either.eval()(x), evaluated.eval()(x)
        with pytest.raises(ValueError, match="the module must be in evaluation mode, and is in training mode"):
            evaluated.train()(x)


def test_what_an_emulator_verified_takes_other_sizes(kinds: Callable[..., Any]) -> None:
    bare = type("Bare", (torch.nn.Module,), {"forward": lambda self, x: x + 1})
    domain = replace(DOMAIN, state=(), exact_shapes=False)
    with torch.no_grad():
        made = kinds(domain, bare)()
        assert made(torch.zeros(64, 512)).shape == (64, 512)
        with pytest.raises(ValueError, match="argument 1 must be float32"):
            made(torch.zeros(64, 512).half())


def test_without_a_domain_gradients_and_tracers_are_still_refused(kinds: Callable[..., Any]) -> None:
    module = kinds(None)()
    with torch.no_grad():
        torch.testing.assert_close(module(torch.ones(4, 8)), right(module, torch.ones(4, 8)))
        with pytest.raises(RuntimeError, match="no tracer can see into"):
            torch.jit.trace(module, torch.ones(4, 8))
    with pytest.raises(RuntimeError, match="it has no gradient"):
        module(torch.ones(4, 8)).sum().backward()
    assert "not on record" in guarded_program.domain_lines(None)[0]


# -- several sizes -----------------------------------------------------------------------------------------------------

ADDED = type("Added", (torch.nn.Module,), {"forward": lambda self, x, y: x[: len(y)] + y.reshape(-1)[0]})
TWO = Domain(
    arguments=["l", [["T", 0], ["T", 1]]],
    tensors=(TensorLayout("", "float32", (4, 8), (8, 1)), TensorLayout("", "float32", (4,), (1,))),
    state=(),
    device="cpu",
    ranges=(DynamicAxes(2, 64, 2, ((0, 0), (1, 0))),),
)


@given(rows=st.integers(0, 70), others=st.integers(0, 70), columns=st.integers(7, 9))
def test_lengths_in_a_range_are_taken_where_they_are_alike(
    kinds: Callable[..., Any], rows: int, others: int, columns: int
) -> None:
    made = kinds(TWO, ADDED)()
    x, y = torch.randn(rows, columns), torch.randn(others)
    if rows == others and columns == 8 and rows in range(2, 65, 2):
        torch.testing.assert_close(made(x, y), x + y[0])
        torch.testing.assert_close(made(x.t().contiguous().t(), y), x + y[0])
    else:
        with pytest.raises(ValueError, match=r"argument [12] must be float32 \(2 to 64,"):
            made(x, y)


def test_a_call_may_be_like_any_of_the_verified_ones(kinds: Callable[..., Any]) -> None:
    bare = type("Bare", (torch.nn.Module,), {"forward": lambda self, x: x + 1})
    wide = TensorLayout("", "float32", (2, 32), (1, 2))
    domain = replace(DOMAIN, state=(), others=(replace(DOMAIN, state=(), tensors=(wide,)),))
    made = kinds(domain, bare)()
    with torch.no_grad():
        for shape in ((4, 8), (2, 32), (2, 32), (4, 8)):
            torch.testing.assert_close(made(torch.zeros(shape)), torch.ones(shape))
        with pytest.raises(ValueError, match=r"float32 \(4, 8\) on cpu.* for nothing but that and 1 other size;"):
            made(torch.zeros(2, 8))
    assert "(4, 8) or float32 (2, 32)" in guarded_program.domain_lines(domain)[0]


def test_modules_of_several_sizes_are_told_apart_by_their_state(kinds: Callable[..., Any]) -> None:
    class Sized(torch.nn.Module):
        def __init__(self, columns: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(columns))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    def sized(columns: int) -> Domain:
        tensors = (TensorLayout("", "float32", (4, columns), (columns, 1)),)
        return replace(DOMAIN, tensors=tensors, state=(TensorLayout("weight", "float32", (columns,), (1,)),))

    made = kinds(replace(sized(8), others=(sized(1),)), Sized)
    with torch.no_grad():
        made(8)(torch.zeros(4, 8)), made(1)(torch.zeros(4, 1))
        with pytest.raises(ValueError, match="weight"):
            made(1)(torch.zeros(4, 8))


# -- the text ----------------------------------------------------------------------------------------------------------


def test_hostile_names_stay_text(kinds: Callable[..., Any]) -> None:
    hostile = '"""\n}); raise SystemExit("out") #'
    domain = replace(DOMAIN, state=(TensorLayout(hostile, "float32", (8,), (1,)),))
    text = guarded_program.add_guard("ModelNew = type('M', (), {'forward': lambda self, x: x})", hostile, domain)
    loaded(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([torch.half])
VALUES = st.recursive(
    SCALARS | st.just("tensor").map(lambda _: torch.zeros(2, 3)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def domain_of(arguments: list[Any]) -> Domain:
    tree, tensors = trees.pack(arguments)
    layouts = tuple(TensorLayout("", "float32", tuple(t.shape), t.stride()) for t in tensors)
    return Domain(arguments=tree, tensors=layouts, state=(), device="cpu")


ECHO = type("Echo", (torch.nn.Module,), {"forward": lambda self, *arguments: trees.pack(list(arguments))[0]})


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, max_size=3), st.lists(VALUES, max_size=3))
def test_any_structure_of_arguments_is_told_from_any_other(
    kinds: Callable[..., Any], verified: list[Any], given: list[Any]
) -> None:
    made = kinds(domain_of(verified), ECHO)()
    with torch.no_grad():
        assert made(*verified) == trees.pack(verified)[0]
        if trees.pack(given)[0] == trees.pack(verified)[0]:
            return
        with pytest.raises((ValueError, TypeError)):
            made(*given)
