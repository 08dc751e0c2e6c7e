"""The NVIDIA platforms without a GPU: why they are absent, what they say of a device, what their examples hold."""

from __future__ import annotations

import ast
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kforge import registry
from kforge.platforms._nvidia import driver, gpu, monitor
from kforge.platforms.cuda.platform import Cuda
from kforge.platforms.triton.platform import Triton
from kforge.worker.judge import static_rules

HERE = Path(__file__).parents[1]
EXAMPLES = [
    path
    for name in ("cuda", "triton")
    for folder in (f"src/kforge/platforms/{name}/example/candidate.py", f"examples/kernels/{name}/*.py")
    for path in sorted(HERE.parent.glob(folder))
]


def card(number: int = 0, major: int = 9, minor: int = 0, name: str = "NVIDIA H200", mode: int = 0) -> driver.Gpu:
    attributes = {
        "shared_per_block": 232448,
        "clock_khz": 1_980_000,
        "compute_mode": mode,
        "multiprocessors": 132,
        "memory_clock_khz": 3_201_000,
        "bus_bits": 6144,
        "l2_bytes": 60 << 20,
        "threads_per_multiprocessor": 2048,
        "major": major,
        "minor": minor,
        "shared_per_multiprocessor": 233472,
        "registers_per_multiprocessor": 65536,
    }
    return driver.Gpu(number, name, f"GPU-{number}", 141 << 30, attributes)


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "gpus", lambda: (card(0), card(1)))


def none_found() -> Any:
    raise driver.NoDriver("no NVIDIA driver: libcuda.so.1 is not on this machine")


# -- why it is absent ------------------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize("platform", [Cuda(), Triton()], ids=lambda platform: platform.name)
@pytest.mark.parametrize(
    ("found", "cuda", "module", "says"),
    [
        (none_found, "13.0", True, ("no NVIDIA driver", "install NVIDIA's driver", "`nvidia-smi`")),
        (tuple, "13.0", True, ("no GPU is visible", "CUDA_VISIBLE_DEVICES=7", "nvidia-smi")),
        (lambda: (card(name="Tesla P100", major=6),), "13.0", True, ("Tesla P100", "6.0", "7.0 (Volta) or newer")),
        (lambda: (card(mode=3),), "13.0", True, ("NVIDIA H200", "exclusive process", "nvidia-smi -c DEFAULT")),
        (lambda: (card(),), "", True, ("torch was built without CUDA", "pip install torch")),
        (lambda: (card(),), "13.0", False, ("is missing", "pip install")),
    ],
    ids=["no driver", "none visible", "too old", "one process only", "torch without CUDA", "module missing"],
)
def test_a_reason_is_one_sentence_with_a_cure(
    monkeypatch: pytest.MonkeyPatch, platform: Any, found: Any, cuda: str, module: bool, says: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setattr(driver, "gpus", found)
    monkeypatch.setattr(gpu, "_torch_cuda", lambda: cuda)
    monkeypatch.setattr(gpu, "_importable", lambda name: module)
    reason = platform.unavailable_reason()
    assert all(words in reason for words in says), reason
    assert "\n" not in reason
    assert "Traceback" not in reason
    if not module:
        assert platform.needed_module in reason
        assert platform.needed_cure in reason


@pytest.mark.pure
def test_with_everything_there_nothing_is_said(monkeypatch: pytest.MonkeyPatch, two_cards: None) -> None:
    monkeypatch.setattr(gpu, "_torch_cuda", lambda: "13.0")
    asked: list[str] = []
    monkeypatch.setattr(gpu, "_importable", lambda name: bool(asked.append(name)) or True)
    assert Cuda().unavailable_reason() == Triton().unavailable_reason() == ""
    assert asked == ["cuda.core", "triton"]
    assert Cuda().devices() == (0, 1)
    assert Cuda().identity(1) == "GPU-1"
    assert Cuda().device_name(1) == "cuda:1"


@pytest.mark.pure
def test_an_old_gpu_beside_a_new_one_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "gpus", lambda: (card(0, major=6, minor=1, name="Quadro P400"), card(1)))
    assert "Quadro P400" not in Cuda().unavailable_reason()
    assert Cuda().devices() == (1,)


@pytest.mark.pure
def test_no_devices_where_the_driver_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "gpus", none_found)
    assert Cuda().devices() == ()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("cuda: Optional[str] = '13.0'", "13.0"),
        ("cuda: Optional[str] = None", ""),
        ("cuda: str | None = '12.8'", "12.8"),
        ("something = 'else'", None),
    ],
)
def test_torchs_cuda_version_is_read_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, version: str | None
) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2.11.0'\n{line}\n")
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: found)
    assert gpu._torch_cuda() == version


@pytest.mark.pure
def test_a_module_below_a_missing_package_is_missing() -> None:
    assert not gpu._importable("no_such_package.core")
    assert gpu._importable("json")


# -- the driver's answers --------------------------------------------------------------------------------------------


class Library:
    """The driver's library, with the answers given; one GPU unless `initialised` is an error."""

    def __init__(self, initialised: int = 0) -> None:
        self._initialised = initialised

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self._initialised

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        device._obj.value = number
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, device: Any) -> int:  # noqa: N802
        total._obj.value = 141 << 30
        return 0

    def cuDeviceGetUuid(self, raw: Any, device: Any) -> int:  # noqa: N802
        raw._obj[:] = bytes(range(16))
        return 0

    def cuDeviceGetAttribute(self, value: Any, code: int, device: Any) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0, 16: 132}.get(code, 1)
        return 1 if code == 36 else 0


@pytest.mark.pure
def test_a_gpu_as_the_driver_describes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    (found,) = driver.gpus.__wrapped__()
    assert (found.number, found.name, found.memory_bytes) == (0, "NVIDIA H200", 141 << 30)
    assert found.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (found.capability, found.arch) == ((9, 0), "sm_90a")
    assert found.attributes["multiprocessors"] == 132
    assert found.attributes["memory_clock_khz"] == 0, "what the driver does not say is 0"
    assert card(major=8, minor=6).arch == "sm_86"


@pytest.mark.pure
@pytest.mark.parametrize(
    ("status", "says"), [(803, "different versions"), (804, "too old"), (999, "unknown error"), (46, "error")]
)
def test_an_error_of_the_driver_is_said_in_words(monkeypatch: pytest.MonkeyPatch, status: int, says: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(status))
    with pytest.raises(driver.NoDriver, match=f"does not answer: .*{says}.*\\({status}\\)"):
        driver.gpus.__wrapped__()


@pytest.mark.pure
def test_hiding_every_gpu_is_no_fault_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(100))
    assert driver.gpus.__wrapped__() == ()


@pytest.mark.pure
def test_without_the_library_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(driver.NoDriver, match=r"libcuda\.so\.1 is not on this machine"):
        driver.gpus.__wrapped__()


# -- what it says of a device ----------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize("platform", [Cuda, Triton], ids=lambda kind: kind.name)
def test_the_guide_is_filled_from_the_device(platform: Any, two_cards: None) -> None:
    guide = platform().guide()
    assert "$" not in guide
    facts = ("NVIDIA H200", "capability 9.0", "132 multi", "65536 32-bit", "228 KiB", "227 KiB", "60 MiB", "141 GiB")
    for fact in (*facts, "4.9 TB/s", "67 TFLOP/s"):
        assert fact in guide, fact
    assert "unknown of" not in guide
    if platform is Cuda:
        assert 'arch="sm_90a"' in guide


@pytest.mark.pure
@pytest.mark.parametrize("platform", [Cuda, Triton], ids=lambda kind: kind.name)
def test_without_a_gpu_the_guide_says_unknown(monkeypatch: pytest.MonkeyPatch, platform: Any) -> None:
    monkeypatch.setattr(driver, "gpus", none_found)
    bare = platform()
    assert "$" not in bare.guide()
    assert "The device: unknown, compute capability unknown" in bare.guide()
    monkeypatch.setattr(driver, "gpus", lambda: (card(),))
    assert set(platform().facts()) == set(bare.facts())


# -- what a runner is given ------------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize(
    ("visible", "number", "named"),
    [(None, 1, "GPU-1"), ("2,3", 1, "3"), (" GPU-a , GPU-b", 0, "GPU-a"), ("", 0, "GPU-0")],
)
def test_a_runner_sees_its_own_device(
    monkeypatch: pytest.MonkeyPatch, two_cards: None, visible: str | None, number: int, named: str
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    environment = Cuda().environment(number)
    assert environment["CUDA_VISIBLE_DEVICES"] == named
    assert environment["TORCH_CUDA_ARCH_LIST"] == "9.0a"


@pytest.mark.pure
def test_an_only_gpu_is_number_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(driver, "gpus", lambda: (card(0),))
    assert Cuda().environment()["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CUDA toolkit that is not on the PATH."""
    home = tmp_path / "cuda"
    for folder in ("bin", "include"):
        (home / folder).mkdir(parents=True)
    (home / "bin/nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    (home / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return home


@pytest.mark.pure
def test_the_toolkits_tools_are_on_a_runners_path(toolkit: Path, two_cards: None) -> None:
    environment = Cuda().environment(0)
    assert environment["CUDA_HOME"] == environment["CUDA_PATH"] == str(toolkit)
    assert str(toolkit / "bin") in environment["PATH"].split(":")
    assert str(toolkit) in Cuda().folders()
    assert Cuda().compilers()["nvcc"] == "V13.0.88"
    assert Cuda().facts()["include"] == f"{toolkit}/include"


@pytest.mark.cpu
@pytest.mark.parametrize("blind", [False, True])
def test_a_nursery_adds_to_the_path_and_hides_the_device_from_builders(
    toolkit: Path, two_cards: None, monkeypatch: pytest.MonkeyPatch, blind: bool
) -> None:
    from kforge.worker.judge.runner_pool import RunnerPool

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    runner_pool = RunnerPool("triton", "process", device=1, blind=blind)
    try:
        environment = runner_pool._environment("/tmp/runner")
    finally:
        runner_pool.close()
    folders = environment["PATH"].split(":")
    assert folders[0] == os.path.join(sys.prefix, "bin")
    assert str(toolkit / "bin") in folders
    assert len(folders) == len(set(folders))
    assert environment["CUDA_VISIBLE_DEVICES"] == ("" if blind else "3")


# -- who else is there -----------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.pure
def test_a_gpu_is_slowed_down_by_anything_but_the_power_its_own_work_draws(
    monkeypatch: pytest.MonkeyPatch, two_cards: None
) -> None:
    limits: dict[str, list[str] | None] = {"GPU-0": ["power cap"], "GPU-1": None}
    monkeypatch.setattr(monitor, "_clock_limits", lambda uuid: limits[uuid])
    assert (Cuda().slowed_because(0), Cuda().slowed_because(1)) == ("", "")
    limits["GPU-0"] = ["power cap", "power brake"]
    assert "(power brake)" in Cuda().slowed_because(0)


@pytest.mark.pure
def test_only_others_make_a_gpu_busy(monkeypatch: pytest.MonkeyPatch, two_cards: None, child: int) -> None:
    stranger, there = os.getppid(), {"GPU-0": {}, "GPU-1": {}}
    load: dict[str, int | None] = {"GPU-0": 90, "GPU-1": 90}
    monkeypatch.setattr(monitor, "processes", lambda uuid: there[uuid])
    monkeypatch.setattr(monitor, "load_percent", lambda uuid: load[uuid])
    assert Cuda().busy_because(0) == ""
    there["GPU-0"] = {os.getpid(): 1 << 30, child: 2 << 30}
    assert Cuda().busy_because(0) == ""
    assert Cuda().held_bytes(0, child) == 2 << 30
    assert Cuda().held_bytes(0, stranger) == 0
    there["GPU-0"] = {os.getpid(): 0, stranger: 0, child: 0}
    said = Cuda().busy_because(0)
    assert f"process {stranger};" in said
    assert "90 %" in said
    assert "--devices" in said
    assert Cuda().busy_because(1) == "", "another GPU is not this one"
    for idle in (3, None):
        load["GPU-0"] = idle
        assert Cuda().busy_because(0) == ""


@pytest.mark.pure
def test_an_unknown_gpu_has_no_conditions() -> None:
    assert monitor.conditions("GPU-none") == {}
    assert monitor.processes("GPU-none") == {}
    assert monitor.load_percent("GPU-none") is None


# -- the examples ----------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_there_are_examples_of_both_languages() -> None:
    names = [part for path in EXAMPLES for part in path.parts]
    assert names.count("cuda") >= 3
    assert names.count("triton") >= 2


@pytest.mark.pure
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_every_example_passes_the_tripwire(path: Path) -> None:
    source = path.read_text()
    assert static_rules.syntax_error(source) == ""
    assert static_rules.defines_class(source, "ModelNew")
    assert static_rules.scan(source) == []


@pytest.mark.pure
@pytest.mark.parametrize("name", ["cuda", "triton"])
def test_the_single_shot_pair_takes_the_same_arguments(name: str) -> None:
    def signatures(source: str, kind: str) -> dict[str, list[str]]:
        body = next(item for item in ast.parse(source).body if isinstance(item, ast.ClassDef) and item.name == kind)
        methods = [item for item in body.body if isinstance(item, ast.FunctionDef)]
        return {item.name: [argument.arg for argument in item.args.args] for item in methods}

    reference, candidate = registry.load("platforms", name).example()
    assert signatures(reference, "Model") == signatures(candidate, "ModelNew")


def kernels(path: Path) -> list[str]:
    """The CUDA C++ that a program holds and NVRTC would be given."""
    constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    return [text for text in constants if isinstance(text, str) and 'extern "C" __global__' in text]


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if kernels(path)], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_the_examples_kernels_compile(path: Path, tmp_path: Path) -> None:
    for number, text in enumerate(kernels(path)):
        source = tmp_path / f"{number}.cu"
        source.write_text(text)
        command = ["nvcc", "-std=c++17", "-arch=sm_80", "-cubin", str(source), "-o", str(tmp_path / f"{number}.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"{number}.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.pure
def test_what_was_gained_is_counted_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    held, peak, current = {0: 20, 1: 1}, {0: 20, 1: 1}, [0]
    cuda = SimpleNamespace(
        current_device=lambda: current[0],
        max_memory_allocated=lambda: peak[current[0]],
        memory_allocated=lambda: held[current[0]],
        reset_peak_memory_stats=lambda: peak.update({current[0]: held[current[0]]}),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu, "_held_before", {})
    platform = Cuda()
    for number in (0, 1):
        current[0] = number
        platform.peak_bytes()
    peak[0], peak[1] = 25, 4
    for number, gained in ((0, 5), (1, 3), (0, 0)):
        current[0] = number
        assert platform.peak_bytes() == gained
