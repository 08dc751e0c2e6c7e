"""A program as a repository for Hugging Face's kernels, loaded by that package itself; the Hub is not asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kforge
from kforge.packages.description import Winner
from kforge.packages.hugging_face import kernel_files
from kforge.packages.package_files import write_package
from packages import shipped

kernels = pytest.importorskip("kernels", reason="the package kernels is not installed")
pytestmark = [pytest.mark.toolchain, pytest.mark.xdist_group("packages")]

ROWS, COLUMNS = 64, 256
PROBLEM = f"""import torch
import torch.nn as nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand({COLUMNS}))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, shift):
        return x * self.inner.gain + shift


def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS}), torch.randn({ROWS}, {COLUMNS})]


def get_init_inputs():
    return []
"""
PROGRAM = (Path(kforge.__file__).parent / "platforms" / "cpu" / "example" / "candidate.py").read_text()
PROGRAM = PROGRAM[: PROGRAM.index("class ModelNew")]
PROGRAM = PROGRAM.replace("float* y,\n", "const float* z, float* y,\n", 1)
PROGRAM = PROGRAM.replace(
    "out[c] = (v > 0.0f ? v : slope * v) * scale[c];", "out[c] = v * scale[c] + z[r * columns + c];"
)
PROGRAM = PROGRAM.replace("[ctypes.c_void_p] * 3", "[ctypes.c_void_p] * 4")
PROGRAM += f"""class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand({COLUMNS}))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, shift):
        y = torch.empty_like(x)
        pointers = (x.data_ptr(), self.inner.gain.data_ptr(), shift.data_ptr(), y.data_ptr())
        kernel(*pointers, x.shape[0], x.shape[1], 0.0)
        return y
"""


class Shifted(torch.nn.Module):
    """A layer of somebody's model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.gain = torch.nn.Parameter(torch.rand(COLUMNS))

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return x * self.inner.gain + shift


@pytest.fixture(scope="module")
def repository(judge: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("kernel")
    result = shipped.forged(judge, kforge.Problem.from_source(PROBLEM, "9_GainShift"), PROGRAM, folder)
    assert result.best is not None
    write_package(kernel_files(Winner.of(result, result.best), "gain-shift"), folder / "gain-shift")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KFORGE_PACKAGE_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield folder / "gain-shift"


@pytest.fixture(scope="module")
def kernel(repository: Path) -> Any:
    return kernels.get_local_kernel(repository)


def test_kernels_loads_it(kernel: Any) -> None:
    x, shift, gain = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS), torch.rand(COLUMNS)
    torch.testing.assert_close(kernel.gain_shift(x, shift, gain), x * gain + shift)
    assert kernel.stats()["program"] == 1
    assert {"gain_shift", "layers", "apply"} <= set(kernel.__all__)


def test_its_layer_takes_the_place_of_a_modules_forward(repository: Path, kernel: Any) -> None:
    extensible = kernels.use_kernel_forward_from_hub("Shifted")(Shifted)
    module = extensible()
    x, shift = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)
    place = kernels.LocalLayerRepository(repository, layer_name="GainShift")
    modes = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
    with kernels.use_kernel_mapping({"Shifted": {"cpu": {modes: place}}}):
        kernels.kernelize(module, mode=modes, device="cpu")
    before = kernel.stats()["program"]
    found = module(x, shift)
    torch.testing.assert_close(found, x * module.inner.gain + shift)
    found.sum().backward()
    torch.testing.assert_close(module.inner.gain.grad, x.sum(0), rtol=1e-4, atol=1e-4)
    torch.compiler.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, fullgraph=True)(x, shift), x * module.inner.gain + shift)
    assert kernel.stats() == {"program": before + 2, "reference": 0, "reasons": {}}


def test_the_builder_would_take_its_source_and_the_digest_is_right(repository: Path) -> None:
    from kernels import _rust

    general = _rust.Build.open(repository).general
    assert "Cpu" in repr(general)
    variant = repository / "build" / "torch-cpu"
    metadata = _rust.Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(_rust.Digest.hash_variant(_rust.DigestAlgorithm.SHA256, variant))
    data = json.loads((variant / "metadata.json").read_text())
    assert (data["name"], data["version"], data["backend"]) == ("gain-shift", 1, {"type": "cpu"})
    source = repository / "torch-ext" / "gain_shift"
    assert {path.name for path in variant.iterdir()} - {path.name for path in source.iterdir()} == {"metadata.json"}


def test_its_own_tests_pass(repository: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
