"""The platform that everything on an NVIDIA GPU derives from."""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kforge.errors import PluginAbsent
from kforge.platforms._nvidia import driver, monitor
from kforge.platforms._nvidia.stopwatch import EventStopwatch
from kforge.platforms.base import Platform, Stopwatch

_TOOLS = ("nvcc", "ncu", "nsys", "compute-sanitizer", "cuobjdump", "nvdisasm", "g++", "gcc", "cc", "ninja", "ld", "as")
_TOOLKIT = ("/usr/local/cuda", "/opt/cuda")
_OLDEST = (7, 0)
_CLOSED_MODES = {2: "prohibited", 3: "exclusive process"}
_LOADED = 25
"""Percent of load by others beyond which a time is not to be believed."""
_held_before: dict[int, int] = {}
"""Device -> what this process held of its memory when it was last asked what it had gained."""
_TENSOR_FLOPS = {7: 1024, 8: 2048, 9: 4096, 10: 8192, 12: 2048}
"""Dense half-precision operations per clock and multiprocessor with tensor cores, by major compute capability."""


class NvidiaGpu(Platform):
    """CUDA's device behaviour; a subclass names its language, example and guide."""

    device_class = "gpu"
    device = "cuda"
    profilers = ("torch_trace", "roofline", "ncu", "sass")
    baselines = ("eager", "tf32", "compile")
    builds_apart = True
    address_space_limited = False
    flushes_cache = True
    supports_ipc = True
    records_kernels = True
    # Calls of the driver that fail are no fault by themselves: libraries ask it what it has in this way.
    sanitizers = tuple(
        (tool, ("compute-sanitizer", "--tool", tool, "--error-exitcode", "86", "--print-limit", "5", *more))
        for tool, more in (("memcheck", ("--report-api-errors", "no")), ("racecheck", ()))
    )

    needed_module = ""
    """The Python module its programs are written with."""
    needed_cure = ""

    def language_facts(self) -> dict[str, str]:
        """What is to be known beside the device: of the compiler of the platform's language."""
        return {}

    def unavailable_reason(self) -> str:
        try:
            gpus = driver.gpus()
        except driver.NoDriver as error:
            return f"{error} (install NVIDIA's driver; `nvidia-smi` must list the GPU)"
        if not gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            hidden = f"CUDA_VISIBLE_DEVICES={visible}: unset it, or name one there; " if visible is not None else ""
            return f"no GPU is visible ({hidden}`nvidia-smi -L` must list one)"
        reasons = [_unusable_because(gpu) for gpu in gpus]
        if all(reasons):
            return reasons[0]
        cuda = _torch_cuda()
        if cuda == "":
            return "this torch was built without CUDA (pip install torch from the index for your CUDA version)"
        if self.needed_module and not _importable(self.needed_module):
            return f"the module {self.needed_module} is missing ({self.needed_cure})"
        return ""

    def devices(self) -> tuple[int, ...]:
        try:
            return tuple(gpu.number for gpu in driver.gpus() if not _unusable_because(gpu))
        except driver.NoDriver:
            return ()

    def device_name(self, number: int) -> str:
        return f"cuda:{number}"

    def identity(self, number: int) -> str:
        return self._gpu(number).uuid

    def busy_because(self, number: int) -> str:
        uuid = self._gpu(number).uuid
        others = [pid for pid in monitor.processes(uuid) if _is_strange(pid)]
        load = monitor.load_percent(uuid)
        if not others or load is None or load < _LOADED:
            return ""
        return (
            f"other work is on the GPU (process {others[0]}; {load} % load in all): wait for it, or name another GPU "
            "with --devices"
        )

    def slowed_because(self, number: int) -> str:
        reasons = monitor.slowdowns(self._gpu(number).uuid)
        return f"the GPU is slowed down ({', '.join(reasons)}): measure again when it is not" if reasons else ""

    def compilers(self) -> dict[str, str]:
        versions = {}
        path = _tool("nvcc")
        if path:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            version = re.search(r"release ([\d.]+), (V[\d.]+)", done.stdout)
            versions["nvcc"] = version[2] if version else "unknown"
        return {**versions, "driver": monitor.driver_version() or "unknown"}

    def folders(self) -> tuple[str, ...]:
        paths = [os.path.realpath(path) for path in map(_tool, _TOOLS) if path]
        homes = {os.path.dirname(os.path.dirname(path)) for path in paths if not path.startswith("/usr/")}
        nsight = glob.glob("/opt/nvidia")
        home = toolkit()
        return tuple((homes | set(nsight) | ({home} if home and not home.startswith("/usr/") else set())) - {"/"})

    def device_files(self) -> tuple[str, ...]:
        return tuple(sorted([*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*")]))

    def environment(self, number: int = 0) -> dict[str, str]:
        home = toolkit()
        names = {
            "CUDA_VISIBLE_DEVICES": _physical_name(number),
            "CUDA_MODULE_LOADING": "LAZY",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        }
        if home:
            names |= {"CUDA_HOME": home, "CUDA_PATH": home}
        folders = dict.fromkeys(os.path.dirname(path) for path in map(_tool, _TOOLS) if path)
        names["PATH"] = ":".join(folders)
        major, minor = self._gpu(number).capability
        names["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}{'a' if major >= 9 else ''}"
        return names

    def enter_judge(self, number: int) -> None:
        """A torch that has no code for this GPU fails at the first operator, with words that help nobody."""
        import torch

        try:
            major, minor = torch.cuda.get_device_capability(self.device_name(number))
        except RuntimeError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PluginAbsent(f"platform {self.name}: torch cannot use the GPU: {reason}") from None
        # Said once by the thread of the first backward, which then finds one.
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")
        # The tolerance rests on eager in full precision.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        known = torch.cuda.get_arch_list()
        numbers = [int("".join(filter(str.isdigit, name))) for name in known if name.startswith(("sm_", "compute_"))]
        if numbers and not any(arch // 10 == major and arch <= 10 * major + minor for arch in numbers):
            has = ", ".join(known)
            raise PluginAbsent(
                f"platform {self.name}: this torch has no code for compute capability {major}.{minor} "
                f"(it has {has}): install a torch built for this GPU"
            )

    def enter_runner(self) -> None:
        import torch

        # Memory that torch takes from the driver so can be handed to the judge, who reads outputs where they lie.
        os.environ["TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"] = "1"
        with contextlib.suppress(AttributeError, RuntimeError):
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")

    def memory_bytes(self, number: int = 0) -> int:
        return self._gpu(number).memory_bytes

    def held_bytes(self, number: int, pid: int) -> int:
        return monitor.processes(self._gpu(number).uuid).get(pid, 0)

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def stopwatch(self) -> Stopwatch:
        return EventStopwatch()

    @contextlib.contextmanager
    def profiled_range(self) -> Iterator[None]:
        import torch

        profiler: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        profiler.cudaProfilerStart()
        yield
        profiler.cudaProfilerStop()

    def peak_bytes(self) -> int:
        import torch

        number = torch.cuda.current_device()
        peak = int(torch.cuda.max_memory_allocated()) - _held_before.get(number, 0)
        torch.cuda.reset_peak_memory_stats()
        _held_before[number] = int(torch.cuda.memory_allocated())
        return max(0, peak)

    def conditions(self, number: int = 0) -> dict[str, str]:
        return monitor.conditions(self._gpu(number).uuid)

    @functools.cache  # noqa: B019  one instance lives as long as the process
    def facts(self, number: int = 0) -> dict[str, str]:
        try:
            gpu = self._gpu(number)
        except (driver.NoDriver, IndexError):
            return dict.fromkeys((*_FACTS, *self.language_facts()), "unknown")
        have, clock = gpu.attributes, gpu.attributes["clock_khz"] * 1000
        tensor = _TENSOR_FLOPS.get(gpu.capability[0], 0) * have["multiprocessors"] * clock
        lanes = 64 if gpu.capability in ((7, 0), (7, 5), (8, 0)) else 128
        return {
            "processor": gpu.name,
            "capability": ".".join(map(str, gpu.capability)),
            "arch": gpu.arch,
            "multiprocessors": str(have["multiprocessors"]),
            "threads": str(have["threads_per_multiprocessor"]),
            "registers": str(have["registers_per_multiprocessor"]),
            "shared": f"{have['shared_per_multiprocessor'] >> 10} KiB",
            "shared_block": f"{have['shared_per_block'] >> 10} KiB",
            "l2": f"{have['l2_bytes'] >> 20} MiB",
            "memory": f"{gpu.memory_bytes / (1 << 30):.0f} GiB",
            "bandwidth": f"{2e3 * have['memory_clock_khz'] * have['bus_bits'] / 8 / 1e12:.2g} TB/s"
            if have["memory_clock_khz"]
            else "unknown",
            "float32_rate": f"{2 * lanes * have['multiprocessors'] * clock / 1e12:.0f} TFLOP/s",
            "tensor_rate": f"{tensor / 1e12:.0f} TFLOP/s" if tensor else "unknown",
            "driver": monitor.driver_version() or "unknown",
            "toolkit": self.compilers().get("nvcc", "none"),
            "include": f"{toolkit()}/include" if toolkit() else "none",
            **self.language_facts(),
        }

    def _gpu(self, number: int) -> driver.Gpu:
        return driver.gpus()[number]


_FACTS = (
    *("processor", "capability", "arch", "multiprocessors", "threads", "registers", "shared", "shared_block", "l2"),
    *("memory", "bandwidth", "float32_rate", "tensor_rate", "driver", "toolkit", "include"),
)


def _unusable_because(gpu: driver.Gpu) -> str:
    """Why one GPU cannot be used; empty if it can."""
    mode = _CLOSED_MODES.get(gpu.attributes.get("compute_mode", 0))
    if mode:
        return (
            f"{gpu.name} is in compute mode {mode}, and a judge needs several processes on it (nvidia-smi -c DEFAULT)"
        )
    if gpu.capability < _OLDEST:
        major, minor = gpu.capability
        return f"{gpu.name} has compute capability {major}.{minor}; 7.0 (Volta) or newer is needed"
    return ""


def _physical_name(number: int) -> str:
    """How CUDA_VISIBLE_DEVICES names one of the GPUs this process sees."""
    visible = [item.strip() for item in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item.strip()]
    if number < len(visible):
        return visible[number]
    # Numbers depend on CUDA_DEVICE_ORDER; with one GPU there is no order.
    return driver.gpus()[number].uuid if len(driver.gpus()) > 1 else str(number)


def _is_strange(pid: int) -> bool:
    """Whether a process of this machine is neither this one nor below it."""
    while pid > 1:
        if pid == os.getpid():
            return False
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            # Numbers of another process namespace mean nothing here.
            return False
    return True


def toolkit() -> str:
    """The CUDA toolkit's folder; empty where there is none."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    compiler = shutil.which("nvcc")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(compiler))) if compiler else ""
    for path in (named, *_TOOLKIT, beside):
        if path and os.path.isdir(os.path.join(path, "include")):
            return path
    return ""


def _tool(name: str) -> str | None:
    """Where a program is: on the PATH, or in the toolkit."""
    home = toolkit()
    return shutil.which(name) or (shutil.which(name, path=f"{home}/bin") if home else None)


def _torch_cuda() -> str | None:
    """The CUDA version torch was built for, empty for none; read from its files, since importing takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r"^cuda: .*= (?:'([\d.]*)'|None)", text, re.MULTILINE)
    return (version[1] or "") if version else None


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
