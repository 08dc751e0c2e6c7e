"""An exported package: the program where it was verified, the reference everywhere else, and nothing silently wrong."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kforge
from kforge.packages.built_files import with_built
from kforge.packages.description import Winner
from kforge.packages.package_files import package_files, write_package
from kforge.packages.package_process import run_package
from packages import shipped

pytestmark = [pytest.mark.toolchain, pytest.mark.xdist_group("packages")]

EXAMPLE = Path(kforge.__file__).parent / "platforms" / "cpu" / "example"
ROWS, COLUMNS, SLOPE = 64, 256, 0.1
PROBLEM = f'''"""Leaky ReLU followed by a scale for each column."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = {ROWS}
COLUMNS = {COLUMNS}


class Model(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return F.leaky_relu(x, self.slope) * self.scale


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS, {SLOPE}]
'''
# What the example checks by itself is left out: the guard has to.
UNCHECKED = (EXAMPLE / "candidate.py").read_text().replace("        check(x, self.scale)\n", "")


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache of its own for what is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFORGE_PACKAGE_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the store that the run is in."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def result(judge: Any, home: Path) -> kforge.ForgeResult:
    problem = kforge.Problem.from_source(PROBLEM, "7_LeakyScale")
    return shipped.forged(judge, problem, UNCHECKED, home)


@pytest.fixture(scope="module")
def folder(result: kforge.ForgeResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipped.export(result, "fast_scale", tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def package(folder: Path) -> Any:
    return shipped.load(folder)


@pytest.fixture
def counted(package: Any) -> Any:
    """The package with its counters at 0."""
    package._package.program.counts.reset()
    return package


def expected(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.leaky_relu(x, SLOPE) * scale


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ROWS, COLUMNS), torch.rand(COLUMNS) + 0.5


# -- the operator ------------------------------------------------------------------------------------------------------


def test_the_function_is_called_after_the_problem_and_takes_the_modules_tensors(counted: Any) -> None:
    x, scale = inputs()
    torch.testing.assert_close(counted.leaky_scale(x, scale), expected(x, scale))
    torch.testing.assert_close(counted.leaky_scale(x=x, scale=scale), expected(x, scale))
    assert counted.stats() == {"program": 2, "reference": 0, "reasons": {}}


def test_opcheck_finds_nothing(package: Any) -> None:
    x, scale = inputs()
    torch.library.opcheck(package._package.op, (x, scale))
    torch.library.opcheck(package._package.op, (x.requires_grad_(), scale.requires_grad_()))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_model_holds_it_whole(counted: Any, dynamic: bool) -> None:
    torch.compiler.reset()

    def use(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return counted.leaky_scale(x + 1, scale) * 2

    x, scale = inputs()
    compiled = torch.compile(use, fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(x, scale), expected(x + 1, scale) * 2)
    assert counted.stats()["program"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", counted.FallbackWarning)
        other = torch.randn(5, COLUMNS)
        torch.testing.assert_close(compiled(other, scale), expected(other + 1, scale) * 2)
    assert counted.stats()["reference"] == 1


def test_gradients_are_the_references(counted: Any) -> None:
    x, scale = (item.requires_grad_() for item in inputs())
    counted.leaky_scale(x, scale).square().sum().backward()
    found = x.grad, scale.grad
    again = [item.detach().clone().requires_grad_() for item in (x, scale)]
    expected(*again).square().sum().backward()
    torch.testing.assert_close(found, (again[0].grad, again[1].grad))
    assert counted.stats()["program"] == 1
    torch.compiler.reset()
    x.grad = scale.grad = None
    torch.compile(counted.leaky_scale, fullgraph=True)(x, scale).square().sum().backward()
    torch.testing.assert_close(x.grad, again[0].grad)


def test_gradients_may_be_an_error(result: kforge.ForgeResult, tmp_path: Path) -> None:
    package = shipped.load(shipped.export(result, "no_gradients", tmp_path, gradients="error"))
    x, scale = inputs()
    y = package.leaky_scale(x.requires_grad_(), scale)
    torch.testing.assert_close(y, expected(x, scale))
    with pytest.raises(RuntimeError, match=r"no_gradients was verified for inference only.*--gradients reference"):
        y.sum().backward()


def test_a_second_derivative_is_no_wrong_one(package: Any) -> None:
    x, scale = inputs()
    y = package.leaky_scale(x.requires_grad_(), scale)
    with pytest.raises(RuntimeError, match="first derivatives at most"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)


def test_export_and_trace_see_one_node(package: Any) -> None:
    class Use(torch.nn.Module):
        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> Any:
            return package.leaky_scale(x, scale)

    x, scale = inputs()
    exported = torch.export.export(Use(), (x, scale))
    assert "fast_scale.leaky_scale" in str(exported.graph)
    torch.testing.assert_close(exported.module()(x, scale), expected(x, scale))
    traced = torch.jit.trace(Use(), (x, scale))
    assert "fast_scale::leaky_scale" in str(traced.inlined_graph)
    other = torch.randn(ROWS, COLUMNS)
    torch.testing.assert_close(traced(other, scale), expected(other, scale))


@pytest.mark.filterwarnings("ignore:fast_scale")
def test_transforms_and_forward_derivatives_are_the_references(counted: Any) -> None:
    x, scale = inputs()
    counted.leaky_scale(x, scale)
    many = torch.randn(3, ROWS, COLUMNS)
    found = torch.vmap(lambda one: counted.leaky_scale(one, scale))(many)
    torch.testing.assert_close(found, torch.stack([expected(one, scale) for one in many]))
    tangent = torch.randn_like(x)
    found = torch.func.jvp(lambda one: counted.leaky_scale(one, scale), (x,), (tangent,))
    torch.testing.assert_close(found, torch.func.jvp(lambda one: expected(one, scale), (x,), (tangent,)))
    with torch.autograd.forward_ad.dual_level():
        dual = counted.leaky_scale(torch.autograd.forward_ad.make_dual(x, tangent), scale)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, found[1])
        with pytest.raises(RuntimeError, match="no forward-mode derivative"):
            counted._package.op(torch.autograd.forward_ad.make_dual(x, tangent), scale)
    assert counted.stats()["reference"] == 3


# -- the guard ---------------------------------------------------------------------------------------------------------

OUTSIDE = {
    "x is float32 (3, 256), not float32 (64, 256)": lambda x, s: (x[:3], s),
    "x is float64 (64, 256), not float32 (64, 256)": lambda x, s: (x.double(), s),
    "scale is float64 (256,), not float32 (256,)": lambda x, s: (x, s.double()),
    "scale has strides (2,), not (1,)": lambda x, s: (x, s.repeat_interleave(2)[::2]),
    "scale does not begin at a multiple of 16 bytes": lambda x, s: (x, torch.cat([s[:1], s])[1:]),
}


@pytest.mark.parametrize("reason", OUTSIDE)
def test_what_was_not_verified_runs_the_reference(counted: Any, reason: str) -> None:
    x, scale = OUTSIDE[reason](*inputs())
    with pytest.warns(counted.FallbackWarning, match="stats.. counts such calls"):
        torch.testing.assert_close(counted.leaky_scale(x, scale), expected(x, scale))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counted.leaky_scale(x, scale)
    assert counted.stats() == {"program": 0, "reference": 2, "reasons": {reason: 2}}
    with pytest.raises(counted.NotVerified, match="fast_scale: "):
        counted.leaky_scale(x, scale, strict=True)


@pytest.mark.filterwarnings("ignore:fast_scale")
def test_what_is_switched_on_around_a_call_is_looked_at_each_time(counted: Any) -> None:
    x, scale = inputs()
    counted.leaky_scale(x, scale)
    counted.leaky_scale(x, scale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        counted.leaky_scale(x, scale)
    torch.set_default_dtype(torch.float64)
    try:
        counted.leaky_scale(x, scale)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        counted.leaky_scale(x, scale)
    found = counted.stats()
    assert (found["program"], found["reference"]) == (3, 2)
    assert set(found["reasons"]) == {"autocast is on", "torch's default dtype is float64, not float32"}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.cat([x.reshape(-1)[:1], x.reshape(-1)])[1:].view(ROWS, COLUMNS),
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
    ],
    ids=["transposed", "misaligned", "strided"],
)
def test_the_same_values_in_another_layout_are_copied(counted: Any, change: Any) -> None:
    x, scale = inputs()
    for _ in range(2):
        torch.testing.assert_close(counted.leaky_scale(change(x), scale), expected(x, scale))
    assert counted.stats()["program"] == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.sampled_from([1, ROWS - 1, ROWS, ROWS + 1]),
    columns=st.sampled_from([COLUMNS, COLUMNS, 8]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float64, torch.bfloat16]),
    state=st.sampled_from([torch.float32, torch.float32, torch.float64]),
    offset=st.integers(0, 3),
    turned=st.booleans(),
    step=st.integers(1, 2),
)
@pytest.mark.filterwarnings("ignore:fast_scale")
def test_whatever_it_is_given_it_gives_what_the_reference_gives(
    package: Any, rows: int, columns: int, dtype: Any, state: Any, offset: int, turned: bool, step: int
) -> None:
    memory = torch.randn(rows * columns + offset).to(dtype)[offset:]
    x = memory.view(columns, rows).t() if turned else memory.view(rows, columns)
    scale = (torch.rand(columns * step) + 0.5).to(state)[::step]
    found, wanted = package.leaky_scale(x, scale), expected(x, scale)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)


def test_strict_can_be_set_for_all_calls(counted: Any) -> None:
    x, scale = inputs()
    counted.set_strict(True)
    try:
        with pytest.raises(counted.NotVerified):
            counted.leaky_scale(x[:3], scale)
        torch.compiler.reset()
        with pytest.raises(counted.NotVerified):
            torch.compile(counted.leaky_scale, fullgraph=True)(x[:3], scale)
    finally:
        counted.set_strict(False)


def test_threads_do_not_meet(counted: Any) -> None:
    wrong: list[float] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(100):
            x = torch.randn(ROWS, COLUMNS, generator=generator)
            scale = torch.rand(COLUMNS, generator=generator)
            error = (counted.leaky_scale(x, scale) - expected(x, scale)).abs().max()
            wrong.extend([float(error)] if error > 1e-5 else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert counted.stats()["program"] == 400


# -- modules -----------------------------------------------------------------------------------------------------------


class Gated(torch.nn.Module):
    """What the problem's Model computes, under other names."""

    def __init__(self, slope: float = SLOPE) -> None:
        super().__init__()
        self.act = torch.nn.LeakyReLU(slope)
        self.gain = torch.nn.Parameter(torch.rand(COLUMNS))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.act(values) * self.gain


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.other = Gated(), Gated(), Gated(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.second(self.first(x)))


def test_modules_are_found_by_what_they_compute(counted: Any) -> None:
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    wanted = model(x).detach()
    parts = dict(model.named_modules())
    state = {name: value.data_ptr() for name, value in model.state_dict().items()}
    assert counted.apply(model) == ["first", "second"]
    assert counted.apply(model) == []
    with torch.no_grad():
        torch.testing.assert_close(model(x), wanted)
        torch.testing.assert_close(model.first(values=x), expected(x, model.first.gain))
    assert counted.stats()["program"] == 3
    assert {name: value.data_ptr() for name, value in model.state_dict().items()} == state
    assert isinstance(model.first, Gated)
    assert counted.revert(model) == ["first", "second"]
    assert all(part is parts[name] and not hasattr(part, "_kforge_program") for name, part in model.named_modules())
    torch.testing.assert_close(model(x).detach(), wanted)


def test_parameters_stay_the_models_own(counted: Any) -> None:
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    counted.apply(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(x).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        found = model(x)
        model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})
        ones = torch.ones(COLUMNS)
        torch.testing.assert_close(model.first(x), expected(x, ones))
        model.first.gain.data = ones * 3
        torch.testing.assert_close(model.first(x), expected(x, ones * 3))
    assert not torch.equal(found, model(x))
    assert counted.stats()["reference"] == 0


@pytest.mark.filterwarnings("ignore:fast_scale")
def test_a_model_that_is_cast_afterwards_runs_its_own_forward(counted: Any) -> None:
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    counted.apply(model)
    model(x)
    model.to(torch.bfloat16)
    assert model(x.bfloat16()).dtype is torch.bfloat16
    assert counted.stats()["reference"] == 2


def test_hooks_are_kept(counted: Any) -> None:
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    seen: list[str] = []
    model.first.register_forward_hook(lambda *_: seen.append("first"))
    model.second.act.register_forward_hook(lambda *_: seen.append("inside"))
    # Of a module whose inner one is looked at, the inner one must go on being called.
    assert counted.apply(model) == ["first"]
    model(x)
    assert seen == ["first", "inside"]


def test_copies_call_the_program_and_saved_models_do_not_need_it(counted: Any) -> None:
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    counted.apply(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.first.gain.zero_()
        assert not torch.count_nonzero(twin.first(x))
        assert torch.count_nonzero(model.first(x))
    assert counted.stats()["program"] == 2
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    assert type(torch.load(stream, weights_only=False).first) is Gated
    assert type(model.first) is not Gated


def test_a_compiled_model_with_the_program_in_it(counted: Any) -> None:
    torch.compiler.reset()
    model, x = Network(), torch.randn(ROWS, COLUMNS)
    wanted = model(x).detach()
    counted.apply(model)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), wanted)
    assert counted.stats()["program"] == 2


def test_apply_takes_modules_alone(package: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module, and was given a dict"):
        package.apply({})


# -- its files ---------------------------------------------------------------------------------------------------------


def test_the_same_run_gives_the_same_bytes(result: kforge.ForgeResult) -> None:
    assert result.best is not None
    once, again = (package_files(Winner.of(result, result.best), "fast_scale") for _ in range(2))
    assert once == again
    assert once["fast_scale/program.py"].decode() == result.source


def run_python(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that has the package, and no KForge."""
    whole = f"import sys\nsys.modules['kforge'] = None\n{code}"
    place = {**os.environ, "PYTHONPATH": str(folder), **environment}
    return subprocess.run([sys.executable, "-c", whole], env=place, capture_output=True, text=True, cwd=folder)


def test_its_own_tests_pass_without_kforge(folder: Path) -> None:
    done = run_python(folder, "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))")
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


USE = """
import torch, {name} as p, warnings
x, s = torch.randn({rows}, {columns}), torch.rand({columns})
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    y = p.leaky_scale(x, s)
assert torch.allclose(y, torch.nn.functional.leaky_relu(x, {slope}) * s, atol=1e-6)
print(p.stats(), *[str(item.message) for item in said])
"""


def use(name: str = "fast_scale") -> str:
    return USE.format(name=name, rows=ROWS, columns=COLUMNS, slope=SLOPE)


def test_processes_that_start_together_compile_once(folder: Path, tmp_path: Path) -> None:
    counting = tmp_path / "counting"
    counting.write_text('#!/bin/sh\necho one >> "$COMPILED"\nexec g++ "$@"\n')
    counting.chmod(0o755)
    place = {"KFORGE_PACKAGE_CACHE": str(tmp_path / "cache"), "CXX": str(counting), "COMPILED": str(tmp_path / "log")}
    environment = {**os.environ, "PYTHONPATH": str(folder), **place}
    started = [
        subprocess.Popen([sys.executable, "-c", use()], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in started:
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        assert "'program': 1" in said
    assert (tmp_path / "log").read_text().splitlines() == ["one"]


def test_without_a_compiler_the_reference_runs_and_a_sentence_says_so(folder: Path, tmp_path: Path) -> None:
    place = {"KFORGE_PACKAGE_CACHE": str(tmp_path / "cache"), "CXX": "no-such-compiler"}
    done = run_python(folder, use(), **place)
    assert done.returncode == 0, done.stderr
    assert "there is no no-such-compiler on this machine to compile the kernels with" in done.stdout
    assert "'reference': 1" in done.stdout
    strict = run_python(folder, f"import torch, fast_scale as p; p.set_strict(True){use()}", **place)
    assert "NotVerified: fast_scale: there is no no-such-compiler" in strict.stderr


def test_compiling_is_said_and_happens_in_the_first_call(folder: Path, tmp_path: Path) -> None:
    place = {"KFORGE_PACKAGE_CACHE": str(tmp_path / "cache")}
    imported = run_python(folder, "import fast_scale", **place)
    assert not imported.stderr
    assert not (tmp_path / "cache").exists()
    first = run_python(folder, use(), **place)
    assert "compiling its kernels for this machine, once, into" in first.stderr
    assert "compiling" not in run_python(folder, use(), **place).stderr


def test_a_cache_that_cannot_be_written_costs_a_compilation_and_no_more(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_python(folder, use(), KFORGE_PACKAGE_CACHE=str(tmp_path / "file" / "cache"))
    assert "'program': 1" in done.stdout, done.stderr
    assert "cannot be used" in done.stderr
    assert "for this process alone" in done.stderr


def test_a_library_that_is_not_what_was_compiled_is_compiled_again(folder: Path, tmp_path: Path) -> None:
    place = {"KFORGE_PACKAGE_CACHE": str(tmp_path / "cache")}
    assert "'program': 1" in run_python(folder, use(), **place).stdout
    (library,) = (tmp_path / "cache").rglob("*.so")
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    assert "'program': 1" in run_python(folder, use(), **place).stdout
    assert library.read_bytes() == whole
    # A library that somebody else put there before is never loaded.
    (library.parent / "libraries.json").unlink()
    library.write_bytes(b"not a library")
    assert "'program': 1" in run_python(folder, use(), **place).stdout


def test_a_package_that_carries_what_was_built_needs_no_compiler(result: kforge.ForgeResult, tmp_path: Path) -> None:
    assert result.best is not None
    made = package_files(Winner.of(result, result.best), "built_scale")
    files, notes = with_built(made, "built_scale", "built_scale/")
    assert not notes
    write_package(files, tmp_path / "built_scale")
    place = {"KFORGE_PACKAGE_CACHE": str(tmp_path / "cache"), "CXX": "no-such-compiler"}
    done = run_python(tmp_path / "built_scale", use("built_scale"), **place)
    assert "'program': 1" in done.stdout, done.stdout + done.stderr
    (library,) = (tmp_path / "built_scale").rglob("*.so")
    library.write_bytes(b"something else")
    done = run_python(
        tmp_path / "built_scale", use("built_scale"), **{**place, "KFORGE_PACKAGE_CACHE": str(tmp_path / "b")}
    )
    assert "'reference': 1" in done.stdout
    assert "is damaged: it is not what was built" in done.stdout


LAUNCHER = """
import os
import platform
import shutil
from pathlib import Path

# As Triton names its libraries: by what `file` says of the interpreter too.
place = Path(os.environ["TRITON_CACHE_DIR"]) / ("LAUNCHER" + platform.architecture()[1])
if not (place / "launcher.so").exists():
    if shutil.which("g++") is None:
        raise RuntimeError("Failed to find C compiler")
    place.mkdir(parents=True)
    (place / "launcher.so").write_bytes(b"launcher")
"""


def test_tritons_libraries_are_carried_for_servers_with_and_without_the_command_file(
    result: kforge.ForgeResult,
) -> None:
    assert result.best is not None
    winner = Winner.of(result, result.best)
    like_triton = dataclasses.replace(winner.candidate, source=LAUNCHER + winner.candidate.source)
    made = package_files(dataclasses.replace(winner, candidate=like_triton), "built_scale")
    files, _ = with_built(made, "built_scale", "built_scale/")
    carried = {path.split("/")[-2] for path in files if path.endswith("launcher.so")}
    assert carried == {"LAUNCHER", "LAUNCHERELF"}


def test_keys_do_not_reach_a_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    done = run_package(["-c", "import os, fast_scale; print(sorted(os.environ))"], folder, 600)
    assert "PATH" in done.stdout
    assert "OPENAI" not in done.stdout


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("program.py", lambda text: text + "#", "is not the file that was verified"),
        ("reference.py", lambda text: text.replace("leaky", "relu"), "is not the file that was verified"),
        ("verified.json", lambda text: text[:100], "is damaged: install the package again"),
        ("verified.json", lambda text: text.replace('"kforge_package": 1', '"kforge_package": 9'), "has format 9"),
        ("runtime/guard.py", lambda text: text + "#", "is not the file that was verified"),
    ],
)
def test_a_damaged_package_says_so(
    folder: Path, tmp_path: Path, kforge_here: Any, file: str, change: Any, words: str
) -> None:
    damaged = shutil.copytree(folder, tmp_path / "fast_scale")
    path = damaged / "fast_scale" / file
    path.write_text(change(path.read_text()))
    assert words in run_python(damaged, "import fast_scale").stderr
    done = kforge_here("verify", damaged)
    assert done.returncode == 2
    assert file in done.stderr or "format" in done.stderr


def test_two_packages_with_one_operator_cannot_be_imported_together(folder: Path, tmp_path: Path) -> None:
    twin = shutil.copytree(folder / "fast_scale", tmp_path / "twin")
    assert twin.is_dir()
    done = run_python(folder, f"sys.path.append({str(tmp_path)!r}); import fast_scale, twin")
    assert "fast_scale::leaky_scale is registered already, by another package" in done.stderr


def test_it_installs_with_pip(folder: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(folder, tmp_path / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", tmp_path / "site", copied], capture_output=True, text=True
    )
    if "No module named 'setuptools'" in done.stderr or "Cannot import 'setuptools" in done.stderr:
        pytest.skip("setuptools is not installed")
    assert done.returncode == 0, done.stderr
    assert "'program': 1" in run_python(tmp_path / "site", use()).stdout


# -- CUDA graphs and warming up ----------------------------------------------------------------------------------------


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As while a CUDA graph is captured, once it is switched on; that a real one is captured is tested on a GPU."""
    state = {"on": False}
    for name in ("bound_program", "guard"):
        monkeypatch.setattr(sys.modules[f"fast_scale.runtime.{name}"], "is_capturing", lambda device: state["on"])
    return state


def test_what_is_captured_was_called_before(counted: Any, capturing: Any) -> None:
    x, scale = inputs()
    capturing["on"] = True
    with pytest.warns(counted.FallbackWarning, match="a CUDA graph is being captured"):
        torch.testing.assert_close(counted.leaky_scale(x, scale), expected(x, scale))
    with pytest.raises(counted.NotVerified, match="before the capture"):
        counted.leaky_scale(x, scale, strict=True)
    capturing["on"] = False
    counted.leaky_scale(x, scale)
    capturing["on"] = True
    other, _ = inputs()
    torch.testing.assert_close(counted.leaky_scale(other, scale, strict=True), expected(other, scale))
    assert counted.stats()["program"] == 2


def test_warming_up_a_model_has_its_modules_call_the_program(counted: Any, capturing: Any) -> None:
    references = counted._package.program.references
    model = torch.nn.Sequential(*(references["reference.py"].construct() for _ in range(2))).requires_grad_(False)
    with pytest.raises(ValueError, match=r"apply\(model\) comes first"):
        counted.warmup(model=model)
    counted.apply(model)
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    counted.warmup(model=model)
    assert counted.stats()["program"] == 2
    assert not seen, "a hook saw random numbers"
    capturing["on"] = True
    model(inputs()[0])
    assert counted.stats() == {"program": 4, "reference": 0, "reasons": {}}


def test_a_compiled_model_keeps_one_program_for_each_module(counted: Any) -> None:
    module = counted._package.program.references["reference.py"].construct().requires_grad_(False)
    counted.apply(module)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    kept = counted._package.program._bound._mine._modules
    x = inputs()[0]
    compiled(x)
    before = len(kept)
    for _ in range(3):
        compiled(x)
    assert len(kept) == before


# -- the command line --------------------------------------------------------------------------------------------------


def test_export_and_verify(
    result: kforge.ForgeResult, home: Path, kforge_warm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kforge_warm("export", "--as", "package", "--to", "shipped_scale", "--store", home / "store")
    assert done.returncode == 0, done.stderr
    assert "written to shipped_scale" in done.stdout
    folder = tmp_path / "shipped_scale"
    assert json.loads((folder / "shipped_scale" / "verified.json").read_text())["op"] == "leaky_scale"
    done = kforge_warm("verify", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the claim holds" in done.stdout
    assert "passed" in done.stdout.split("tests:")[1]
    done = kforge_warm("verify", folder, "--no-tests", "--json")
    assert json.loads(done.stdout)["holds"] is True


def test_export_says_what_is_wrong(
    result: kforge.ForgeResult, home: Path, kforge_here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("")

    def export(*words: Any) -> str:
        done = kforge_here("export", "--as", "package", "--store", home / "store", *words)
        assert done.returncode == 2, done.stdout
        return str(done.stderr)

    assert "taken is there already and holds something else" in export("--to", "taken")
    assert "the package cannot be called '7-norm'" in export("--to", "7-norm")
    assert "the operator cannot be called 'a b'" in export("--to", "ok", "--op", "a b")
    assert (tmp_path / "taken" / "thesis.tex").exists()
    done = kforge_here("verify", tmp_path / "nothing")
    assert "there is no such folder" in done.stderr
    done = kforge_here("verify", tmp_path / "taken")
    assert "no package of KForge: it has no verified.json" in done.stderr


# -- in Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::kforge.NotFasterWarning")
def test_a_module_with_its_original_to_fall_back_to(result: kforge.ForgeResult) -> None:
    original, x = Gated(), torch.randn(ROWS, COLUMNS)
    original.register_forward_hook(lambda module, given, output: output + 1)
    module = result.module(fallback=original)
    wanted = original(x).detach()
    assert type(original) is Gated
    assert module.gain is original.gain
    with torch.no_grad():
        torch.testing.assert_close(module(x), wanted)
        original.gain.mul_(2)
        torch.testing.assert_close(module(x), original(x))
        with pytest.warns(UserWarning, match="the PyTorch reference runs in its place"):
            torch.testing.assert_close(module(x[:3]), original(x[:3]))
    torch.compiler.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, fullgraph=True)(x), original(x))
    with pytest.raises(RuntimeError, match="strict=True"):
        result.module(fallback=original, strict=True)(x[:3])
    with pytest.raises(kforge.errors.UsageError, match="no module like the reference of 7_LeakyScale"):
        result.module(fallback=Gated(0.3))
    with pytest.raises(kforge.errors.UsageError, match="fallback is a dict"):
        result.module(fallback={})  # type: ignore[arg-type]
