"""Calls and models that try to have a program run where nobody verified it."""

from __future__ import annotations

import copy
import gc
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import kforge
from packages import shipped
from packages.test_forms import HEAD, as_program, problem_text

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("packages"), pytest.mark.filterwarnings("ignore:forms_")]
Make = Callable[..., Any]

SCALE = """class Model(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, self.slope) * self.scale
"""
PROBLEM = problem_text(SCALE, "[torch.randn(ROWS, 8)]", "ROWS = 16\nSLOPE = 0.1\n", "[SLOPE]")


def leaky(x: torch.Tensor, scale: torch.Tensor, slope: float = 0.1) -> torch.Tensor:
    return torch.nn.functional.leaky_relu(x, slope) * scale


class Layer(torch.nn.Module):
    def __init__(self, slope: float = 0.1) -> None:
        super().__init__()
        self.act = torch.nn.LeakyReLU(slope)
        self.scale = torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x) * self.scale


@pytest.fixture
def package(make: Make) -> Any:
    return make(PROBLEM, as_program(SCALE))


# -- tensors -----------------------------------------------------------------------------------------------------------


def test_parameters_come_in_the_dtype_that_the_program_holds_them_in(make: Make) -> None:
    double = as_program(SCALE).replace("torch.rand(8))", "torch.rand(8).double())")
    double = double.replace("* self.scale", "* self.scale.view(torch.int64).view(torch.float64).float()")
    package = make(PROBLEM, double)
    x, scale = torch.randn(16, 8), torch.rand(8)
    torch.testing.assert_close(package.thing(x, scale, strict=True), leaky(x, scale))


def test_a_negative_that_was_not_computed_yet(package: Any) -> None:
    x, scale = torch.randn(16, 8), torch.rand(8)
    for one, two in ((torch._neg_view(x), scale), (x, torch._neg_view(scale))):
        torch.testing.assert_close(package.thing(one, two), leaky(one.clone(), two.clone()))
    assert package.stats()["reference"] == 1


def test_sparse_tensors_and_zeros_without_memory(package: Any) -> None:
    scale = torch.rand(8)
    zeros = torch._efficientzerotensor(16, 8)
    torch.testing.assert_close(package.thing(zeros, scale), torch.zeros(16, 8))
    assert package.stats()["program"] == 0


TIED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8, bias=False)
        self.two = nn.Linear(8, 8, bias=False)
        self.two.weight = self.one.weight
        self.register_buffer("mask", torch.arange(8) % 2 == 0)

    def forward(self, x):
        return self.two(self.one(x)) * self.mask
"""
TIED_PROGRAM = """class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        y = x @ self.one.weight.t() @ self.one.weight.t()
        y[:, 1::2] = 0
        return y
"""


def test_tensors_that_the_program_has_no_place_for(make: Make) -> None:
    package = make(problem_text(TIED, "[torch.randn(4, 8)]"), HEAD + TIED_PROGRAM)
    names = [item["name"] for item in package._package.verified["state"]]
    x, weight, other = torch.randn(4, 8), torch.rand(8, 8), torch.rand(8, 8)
    mask = torch.arange(8) % 2 == 0

    def call(one: torch.Tensor, two: torch.Tensor, mask: torch.Tensor) -> Any:
        given = {"one.weight": one, "two.weight": two, "mask": mask}
        return package.thing(x, *(given[name] for name in names))

    torch.testing.assert_close(call(weight, weight, mask), (x @ weight.t() @ weight.t()) * mask)
    assert package.stats()["program"] == 1
    torch.testing.assert_close(call(weight, other, mask), (x @ weight.t() @ other.t()) * mask)
    torch.testing.assert_close(call(weight, weight, ~mask), (x @ weight.t() @ weight.t()) * ~mask)
    assert package.stats()["program"] == 1


# -- around a call -----------------------------------------------------------------------------------------------------


def test_a_default_device_and_a_tracer(package: Any) -> None:
    x, scale = torch.randn(16, 8), torch.rand(8)
    package.thing(x, scale)
    with torch.device("meta"):
        torch.testing.assert_close(package.thing(x, scale), leaky(x, scale))
    graph = make_fx(lambda x, scale: package.thing(x, scale))(x, scale)
    assert "thing" in graph.code
    torch.testing.assert_close(graph(x * 2, scale), leaky(x * 2, scale))


def test_autocast_inside_of_a_graph(package: Any) -> None:
    x, scale = torch.randn(16, 8), torch.rand(8)
    torch.compiler.reset()

    def use(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return package.thing(x, scale)

    torch.compile(use, backend="aot_eager")(x, scale)
    assert package.stats()["program"] == 0


SCRATCH = as_program(SCALE).replace(
    "        self.scale =",
    '        self.register_buffer("work", torch.zeros(16, 8), persistent=False)\n        self.scale =',
)
SCRATCH = SCRATCH[: SCRATCH.index("        return torch")]
SCRATCH += """        self.work.copy_(x)
        self.work.mul_(torch.where(self.work > 0, 1.0, self.slope))
        for _ in range(20):
            self.work.mul_(2.0)
            self.work.mul_(0.5)
        self.work.mul_(self.scale)
        return self.work.clone()
"""


def test_what_a_program_works_in_is_a_threads_own(make: Make) -> None:
    package = make(PROBLEM, SCRATCH)
    scale, wrong = torch.rand(8), []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _ in range(200):
                x = torch.randn(16, 8, generator=generator)
                error = (package.thing(x, scale) - leaky(x, scale)).abs().max()
                wrong.extend([float(error)] if error > 1e-4 else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_was_kept_for_parameters_goes_with_them(package: Any) -> None:
    x = torch.randn(16, 8)
    for _ in range(50):
        package.thing(x, torch.rand(8))
    gc.collect()
    program = package._package.program
    assert len(program._bound._mine._modules) <= 1
    assert len(program.ready.by_state) <= 1


# -- modules -----------------------------------------------------------------------------------------------------------


class Wrapped(Layer):
    def forward(self, x: torch.Tensor) -> Any:
        return (super().forward(x),)


class Cast(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return torch.sin(x) - self.scale


class Counting(Layer):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


class Dropping(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(super().forward(x))


@pytest.mark.parametrize("kind", [Wrapped, Cast, Counting, Dropping])
def test_modules_that_do_something_else_are_left_alone(package: Any, kind: Any) -> None:
    assert package.apply(torch.nn.Sequential(kind())) == []


def test_graphs_within_graphs_are_compared(make: Make) -> None:
    inside = SCALE.replace(
        "        return torch.nn.functional.leaky_relu(x, self.slope) * self.scale",
        '        with torch.autocast("cpu", enabled=False):\n            return torch.relu(x) * self.scale',
    )
    package = make(problem_text(inside, "[torch.randn(16, 8)]", "", "[0.1]"), as_program(inside))
    assert package.apply(torch.nn.Sequential(Cast())) == []


class Branching(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2 if self.training or self.act.training else super().forward(x)


def test_a_mode_that_was_not_compared_runs_the_modules_own_forward(package: Any) -> None:
    model, x = torch.nn.Sequential(Branching()).eval(), torch.randn(16, 8)
    assert package.apply(model) == ["0"]
    with torch.no_grad():
        once = model(x)
        assert package.stats()["program"] == 1
        model.train()
        torch.testing.assert_close(model(x), once * 2)
        model.eval()
        model[0].act.train()
        torch.testing.assert_close(model(x), once * 2)
    assert package.stats() == {"program": 1, "reference": 2, "reasons": {"it was changed after apply": 2}}


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_is_changed_after_apply_is_seen(package: Any, is_compiled: bool) -> None:
    torch.compiler.reset()
    model, x = torch.nn.Sequential(Layer()), torch.randn(16, 8)
    assert package.apply(model) == ["0"]
    layer, scale = model[0], model[0].scale.detach()
    run = torch.compile(model, backend="aot_eager") if is_compiled else model
    with torch.no_grad():
        torch.testing.assert_close(run(x), leaky(x, scale))
        layer.act.negative_slope = 0.5
        torch.testing.assert_close(run(x), leaky(x, scale, 0.5))
        layer.act.negative_slope = 0.1
        torch.testing.assert_close(run(x), leaky(x, scale))
        layer.act = torch.nn.GELU()
        torch.testing.assert_close(run(x), torch.nn.functional.gelu(x) * scale)
        layer.act = torch.nn.LeakyReLU(0.1)
        seen: list[int] = []
        layer.act.register_forward_hook(lambda *_: seen.append(1))
        layer(x)
        assert seen
        del layer.scale
        layer.register_buffer("scale", torch.ones(8))
        torch.testing.assert_close(layer(x), leaky(x, torch.ones(8)))


class Grown(Layer):
    """A module with places for more."""

    def __init__(self) -> None:
        super().__init__()
        self.post = torch.nn.ModuleList()
        self.again = self.act
        self.register_parameter("bias", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.again(x) * self.scale
        for step in self.post:
            y = step(y)
        return y if self.bias is None else y + self.bias


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.post.append(torch.nn.ReLU()),
        lambda layer: setattr(layer, "bias", torch.nn.Parameter(torch.ones(8))),
        lambda layer: setattr(layer.act, "forward", torch.sin),
        lambda layer: setattr(layer, "again", torch.nn.Tanh()),
    ],
    ids=["a module more", "a parameter more", "another forward inside", "the second name of a module"],
)
def test_what_is_added_after_apply_is_seen(package: Any, change: Any) -> None:
    layer, x = Grown(), torch.randn(16, 8)
    assert package.apply(layer) == [""]
    with torch.no_grad():
        layer(x)
        assert package.stats()["program"] == 1
        change(layer)
        found = layer(x)
        package.revert(layer)
        torch.testing.assert_close(found, layer(x))
    assert package.stats()["program"] == 1


class Odd(Layer):
    """Names that Python has a meaning for, an object that is copied, a number that equals nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.nothing = {"a": 1}, float("nan")
        setattr(self, "lambda", 1.0)

    def forward(self, id: torch.Tensor, *rest: Any) -> torch.Tensor:
        return super().forward(id) if not rest else super().forward(id) + rest[0]


def test_odd_names_copies_and_further_arguments(package: Any) -> None:
    layer, x = Odd(), torch.randn(16, 8)
    assert package.apply(layer) == [""]
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), leaky(x, layer.scale))
        torch.testing.assert_close(twin(x), leaky(x, twin.scale))
        assert package.stats()["program"] == 2
        torch.testing.assert_close(layer(x, x), leaky(x, layer.scale) + x)
    assert package.stats()["program"] == 2


@pytest.mark.parametrize("where", ["forward", "__init__"])
def test_a_program_that_fails_where_it_is_compiled_is_the_reference(package: Any, where: str) -> None:
    source = package._package.program._file._source
    place = "        return torch" if where == "forward" else "        self.slope"
    package._package.program._file._source = source.replace(
        place, f'        raise FileNotFoundError(2, "", "cc")\n{place}'
    )
    x, scale = torch.randn(16, 8), torch.rand(8)
    for _ in range(2):
        torch.testing.assert_close(package.thing(x, scale), leaky(x, scale))
    assert package.stats()["program"] == 0
    assert "there is no cc on this machine" in next(iter(package.stats()["reasons"]))


def test_a_module_is_compared_at_several_sizes(make: Make) -> None:
    constants = 'ROWS = 16\nSLOPE = 0.1\nKFORGE = {"dynamic": {"ROWS": (16, 128, 1)}}\n'
    package = make(problem_text(SCALE, "[torch.randn(ROWS, 8)]", constants, "[SLOPE]"), as_program(SCALE))

    class Sized(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return leaky(x, self.scale, 0.1 if x.shape[0] < 32 else 0.5)

    assert package.apply(torch.nn.Sequential(Sized())) == []
    assert package.apply(torch.nn.Sequential(Layer())) == ["0"]


def test_a_graph_of_another_size_has_the_modules_own_operators(package: Any) -> None:
    class Sized(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return leaky(x, self.scale, 0.1 if x.shape[0] == 16 else 0.5)

    torch.compiler.reset()
    model = torch.nn.Sequential(Sized())
    assert package.apply(model) == ["0"]
    for rows, slope in ((16, 0.1), (32, 0.5)):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(model(x), leaky(x, model[0].scale, slope))
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            torch.testing.assert_close(compiled(x), leaky(x, model[0].scale, slope))
        torch.testing.assert_close(model(x.requires_grad_()), leaky(x, model[0].scale, slope))


def test_strict_holds_in_graphs_and_for_other_arguments(package: Any) -> None:
    class Masked(Layer):
        def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
            return super().forward(x) if mask is None else super().forward(x) * mask

    torch.compiler.reset()
    model, x = Masked(), torch.randn(16, 8)
    assert package.apply(model, strict=True) == [""]
    with torch.no_grad():
        torch.testing.assert_close(model(x=x), leaky(x, model.scale))
        torch.testing.assert_close(model(x, None), leaky(x, model.scale))
        assert package.stats()["program"] == 2
        with pytest.raises(package.NotVerified):
            model(x, torch.ones(16, 8))
        with pytest.raises(Exception, match="strict=True"):
            torch.compile(model, fullgraph=True, backend="aot_eager")(x[:3])


def test_apply_leaves_the_reference_in_its_mode(make: Make) -> None:
    dropping = (
        SCALE.replace(
            "        self.scale", "        self.drop = nn.Dropout(0.5)\n        self.eval()\n        self.scale"
        )
        .replace("        return ", "        return self.drop(")
        .replace("* self.scale", "* self.scale)")
    )
    package = make(problem_text(dropping, "[torch.randn(16, 8)]", "", "[0.1]"), as_program(dropping))
    package.apply(torch.nn.Sequential(Dropping()))
    x, scale = torch.randn(3, 8), torch.rand(8)
    torch.testing.assert_close(package.thing(x, scale), leaky(x, scale))


def test_a_saved_model_needs_no_package(package: Any, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), Layer())
    assert package.apply(model) == ["1"]
    torch.save(model, tmp_path / "model.pt")
    assert package.__name__.encode() not in (tmp_path / "model.pt").read_bytes()


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(judge: Any, tmp_path: Path) -> Path:
    problem = kforge.Problem.from_source(PROBLEM, "1_Thing")
    result = shipped.forged(judge, problem, as_program(SCALE), tmp_path, shipped.ANY)
    return shipped.export(result, "honest_thing", tmp_path)


def _hash(home: Path, file: str) -> None:
    import hashlib

    verified = json.loads((home / "verified.json").read_text())
    verified["files"][file] = hashlib.sha256((home / file).read_bytes()).hexdigest()
    (home / "verified.json").write_text(json.dumps(verified, indent=1, sort_keys=True) + "\n")


def _widen(home: Path) -> None:
    verified = json.loads((home / "verified.json").read_text())
    verified["calls"][0]["tensors"][0]["shape"][0] = -1
    verified["calls"][0]["ranges"] = [{"low": 1, "high": 1000, "step": 1}]
    (home / "verified.json").write_text(json.dumps(verified, indent=1, sort_keys=True) + "\n")


def _other_reference(home: Path) -> None:
    path = home / "reference.py"
    path.write_text(path.read_text().replace("* self.scale", "* self.scale + 1"))
    _hash(home, "reference.py")


def _other_start(home: Path) -> None:
    path = home / "__init__.py"
    path.write_text(path.read_text() + "print('hello')\n")


@pytest.mark.parametrize("change", [_widen, _other_reference, _other_start])
def test_a_doctored_package_is_found_out(folder: Path, kforge_warm: Any, change: Callable[[Path], None]) -> None:
    assert kforge_warm("verify", folder, "--no-tests").returncode == 0
    change(folder / "honest_thing")
    done = kforge_warm("verify", folder, "--no-tests")
    assert done.returncode == 1, done.stdout
    assert "is not what the record makes" in done.stdout


def test_exporting_again_replaces_a_package_and_nothing_else(folder: Path, judge: Any, tmp_path: Path) -> None:
    (folder / "honest_thing" / "__pycache__").mkdir()
    (folder / "honest_thing" / "__pycache__" / "a.pyc").write_text("")
    problem = kforge.Problem.from_source(PROBLEM, "1_Thing")
    result = shipped.forged(judge, problem, as_program(SCALE), tmp_path, shipped.ANY)
    shipped.export(result, "honest_thing", tmp_path)
    (folder / "thesis.tex").write_text("all of it")
    with pytest.raises(kforge.errors.UsageError, match="holds something else"):
        shipped.export(result, "honest_thing", tmp_path)
    assert (folder / "thesis.tex").read_text() == "all of it"
    shutil.rmtree(folder)
    (tmp_path / "honest_thing" / "vendored").mkdir(parents=True)
    (tmp_path / "honest_thing" / "vendored" / "verified.json").write_text("{}")
    with pytest.raises(kforge.errors.UsageError, match="holds something else"):
        shipped.export(result, "honest_thing", tmp_path)
