"""Programs that compile, or keep something, in the first call of each kind: on servers, in graphs, in threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge import Problem
from kforge.packages.built_files import with_built
from kforge.packages.description import Winner
from kforge.packages.package_files import package_files, write_package
from packages import shipped

pytestmark = [pytest.mark.toolchain, pytest.mark.xdist_group("packages")]

PROBLEM = """
import torch, torch.nn as nn
ROWS, COLUMNS = 16, 32
ROWS = 16
KFORGE = {"dynamic": {"ROWS": (1, 64, 1)}}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(32))
    def forward(self, x):
        return torch.relu(x) * self.w
def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]
def get_init_inputs():
    return []
"""
# A kernel for one row and another for more, each compiled in the first call that needs it, into a folder of its own.
# What it made of the weight is kept until that changes.
PROGRAM = """
import ctypes, os, subprocess, tempfile, torch, torch.nn as nn
KERNELS = {}
CODE = '''extern "C" void k(const float* x, const float* w, float* y, long n, long c) {
    for (long i = 0; i < n; ++i) y[i] = (x[i] < 0 ? 0 : x[i]) * w[i % c]; }'''
def kernel(many):
    if many not in KERNELS:
        folder = os.path.join(os.environ.get("KFORGE_BUILD_DIR") or tempfile.mkdtemp(), f"kernels{int(many)}")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "kernel.so")
        if not os.path.exists(path):
            with open(path + ".cpp", "w") as file:
                file.write(CODE)
            compiler = os.environ.get("CXX") or "g++"
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", path + ".cpp", "-o", path], check=True)
        KERNELS[many] = ctypes.CDLL(path).k
        KERNELS[many].argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2
    return KERNELS[many]
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(32))
        self.kept = None
    def forward(self, x):
        x = x.contiguous()
        key = (self.w.data_ptr(), self.w._version)
        if self.kept is None or self.kept[0] != key:
            self.kept = (key, self.w.detach().clone())
        y = torch.empty_like(x)
        kernel(x.shape[0] > 1)(x.data_ptr(), self.kept[1].data_ptr(), y.data_ptr(), x.numel(), x.shape[1])
        return y
"""


@pytest.fixture(scope="module")
def winner(judge: Any, tmp_path_factory: pytest.TempPathFactory) -> Winner:
    result = shipped.forged(judge, Problem.from_source(PROBLEM, "1_thing"), PROGRAM, tmp_path_factory.mktemp("run"))
    assert result.best is not None
    return Winner.of(result, result.best)


@pytest.fixture(scope="module")
def folder(winner: Winner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("packages") / "lazy_thing"
    write_package(package_files(winner, "lazy_thing"), to)
    return to


def run(folder: Path, rows: tuple[int, ...], cache: Path, before: str = "", **place: str) -> str:
    text = (
        f"import torch, warnings, lazy_thing as p\nwarnings.simplefilter('ignore')\n{before}\nw = torch.rand(32)\n"
        f"for rows in {rows}:\n    x = torch.randn(rows, 32)\n"
        "    torch.testing.assert_close(p.thing(x, w), torch.relu(x) * w)\nprint(p.stats())"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder), "KFORGE_PACKAGE_CACHE": str(cache), **place}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return done.stdout


def test_what_is_carried_suffices_for_all_lengths(winner: Winner, tmp_path: Path) -> None:
    files, notes = with_built(package_files(winner, "lazy_thing"), "lazy_thing", "lazy_thing/")
    assert not notes
    write_package(files, tmp_path / "lazy_thing")
    assert len(list((tmp_path / "lazy_thing").rglob("kernel.so"))) == 2
    said = run(tmp_path / "lazy_thing", (1, 7, 64), tmp_path / "cache", CXX="no-such-compiler")
    assert said.strip() == "{'program': 3, 'reference': 0, 'reasons': {}}"


def test_what_does_not_compile_for_some_lengths_is_the_reference_there(folder: Path, tmp_path: Path) -> None:
    first = "import os; p.thing(torch.randn(1, 32), torch.rand(32)); os.environ['CXX'] = 'no-such-compiler'"
    said = run(folder, (1, 7, 1), tmp_path, before=first)
    assert "'program': 3, 'reference': 1" in said
    assert "there is no no-such-compiler on this machine" in said


def test_a_library_in_a_folder_below_that_was_cut_off_is_compiled_again(folder: Path, tmp_path: Path) -> None:
    run(folder, (1, 7), tmp_path)
    libraries = sorted(tmp_path.rglob("kernel.so"))
    assert len(libraries) == 2
    whole = libraries[0].read_bytes()
    libraries[0].write_bytes(whole[: len(whole) // 2])
    assert "'program': 2" in run(folder, (1, 7), tmp_path)
    assert libraries[0].read_bytes() == whole


def test_a_transform_may_be_what_needs_the_reference_first(folder: Path, tmp_path: Path) -> None:
    first = (
        "x, w = torch.randn(3, 8, 32), torch.rand(32)\n"
        "torch.testing.assert_close(torch.vmap(lambda y: p.thing(y, w))(x), torch.relu(x) * w)"
    )
    assert "'reference': 1" in run(folder, (), tmp_path, before=first)


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    monkeypatch.setenv("KFORGE_PACKAGE_CACHE", str(tmp_path_factory.getbasetemp() / "lazy"))
    loaded = shipped.load(folder)
    loaded._package.program.counts.reset()
    return loaded


@pytest.fixture
def capturing(package: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As while a CUDA graph is captured, once it is switched on; calls that are ready are looked at closely then."""
    state = {"on": False}
    for name in ("bound_program", "guard"):
        monkeypatch.setattr(sys.modules[f"lazy_thing.runtime.{name}"], "is_capturing", lambda device: state["on"])

    def switch(on: bool) -> None:
        state["on"] = on
        package._package.program.ready.by_state.clear()

    return switch


def test_lengths_that_are_new_are_not_captured(package: Any, capturing: Any) -> None:
    w = torch.rand(32)
    package.thing(torch.randn(5, 32), w)
    capturing(True)
    package.thing(torch.randn(5, 32), w, strict=True)
    with pytest.raises(package.NotVerified, match="a CUDA graph is being captured"):
        package.thing(torch.randn(6, 32), w, strict=True)


def test_weights_that_changed_are_not_captured_before_a_call(package: Any, capturing: Any) -> None:
    module = package._package.program.references["reference.py"].construct().requires_grad_(False)
    model = torch.nn.Sequential(module)
    package.apply(model, strict=True)
    package.warmup(model=model)
    x = torch.randn(64, 32)
    capturing(True)
    model(x)
    capturing(False)
    model.load_state_dict({"0.w": torch.rand(32)})
    capturing(True)
    with pytest.raises(package.NotVerified, match="as they are now"):
        model(x)
    capturing(False)
    torch.testing.assert_close(model(x), torch.relu(x) * module.w)
    capturing(True)
    torch.testing.assert_close(model(x), torch.relu(x) * module.w)


def test_a_module_that_calls_the_program_no_longer_is_not_warmed_up(package: Any) -> None:
    module = package._package.program.references["reference.py"].construct().requires_grad_(False)
    model = torch.nn.Sequential(module)
    package.apply(model)
    module.another = torch.nn.ReLU()
    with pytest.raises(ValueError, match="was changed after apply"):
        package.warmup(model=model)
    del module.another, module.w
    with pytest.raises(ValueError, match="has no w any more"):
        package.warmup(model=model)
    with pytest.raises(ValueError, match="name a device or a model"):
        package.warmup("cpu", model=model)


def test_packages_that_are_loaded_at_once_build_in_their_own_folders(winner: Winner, tmp_path: Path) -> None:
    for name in ("one_thing", "two_thing"):
        write_package(package_files(winner, name), tmp_path / name)
    text = (
        "import sys, threading, torch\n"
        f"sys.path += [{str(tmp_path / 'one_thing')!r}, {str(tmp_path / 'two_thing')!r}]\n"
        "import one_thing, two_thing, os\n"
        "threads = [threading.Thread(target=p.warmup) for p in (one_thing, two_thing)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert 'KFORGE_BUILD_DIR' not in os.environ; print(one_thing.stats(), two_thing.stats())"
    )
    environment = {**os.environ, "KFORGE_PACKAGE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.count("'reference': 0") == 2, done.stdout + done.stderr
    built = [path.relative_to(tmp_path / "cache").parts[0] for path in (tmp_path / "cache").rglob("kernel.so")]
    assert sorted(built) == ["one_thing", "one_thing", "two_thing", "two_thing"]
