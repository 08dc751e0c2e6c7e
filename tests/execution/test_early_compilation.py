"""Programs for CUDA that are compiled before their jobs travel: NVRTC is real, and no GPU is needed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cluster"))

from cluster_processes import PATIENCE, ClusterProcesses

import kforge
import nvrtc
from kforge.execution import early_compilation as early
from kforge.execution.base import ReportAwaited
from kforge.execution.bundle import BundleExecutor
from kforge.execution.early_compilation import EarlyCompilation, split_option, with_option
from kforge.execution.executor_names import folder_of, parse_executor
from kforge.execution.nvrtc_availability import unavailable_reason
from kforge.models.scripted import Scripted
from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.platforms.cuda.platform import Cuda
from kforge.run.context import RunEnvironment
from kforge.run.model_pool import ModelAccess
from kforge.types import Candidate, Job, Outcome, Problem, Prompt, Report
from kforge.worker.bundle_folder import EMULATED, BundleFolder

EXAMPLE = (Path(early.__file__).parents[1] / "platforms/cuda/example/candidate.py").read_text()
KERNEL = EXAMPLE.partition('r"""')[2].partition('"""')[0]
BROKEN_LINE = ("y[i] = v;", "y[i] = v")
BROKEN = EXAMPLE.replace(*BROKEN_LINE)
PROBLEM = Problem("sample", "class Model: ...")
FACTS = {"processor": "NVIDIA H200", "capability": "9.0", "multiprocessors": "132", "nvrtc": nvrtc_version()}
IN_CONSTRUCTOR = f'''
import torch
import torch.nn as nn
from cuda.core import Device, Program, ProgramOptions

SOURCE = r"""{KERNEL}"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        options = ProgramOptions(std="c++17", arch=f"sm_{{Device().arch}}")
        self.kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("leaky_relu_scale")
'''
AFTER_IMPORTS = "\ndevice = Device("


@pytest.fixture(scope="module")
def compilation() -> Iterator[EarlyCompilation]:
    """One for all: what it keeps ready takes seconds to start."""
    reason = unavailable_reason()
    if reason:
        pytest.skip(f"programs for cuda cannot be compiled here: {reason}")
    compilation = EarlyCompilation()
    yield compilation
    asyncio.run(compilation.close())


def job(source: str) -> Job:
    return Job("0.1", PROBLEM, Candidate(source, "cuda"))


def compiled(compilation: EarlyCompilation, source: str, *facts: dict[str, str]) -> Report | None:
    return asyncio.run(compilation.report(job(source), facts or (FACTS,), lambda _: None))


def with_line(line: str, source: str = BROKEN) -> str:
    """The program with a line of its own before it compiles."""
    return source.replace(AFTER_IMPORTS, f"\n{line}{AFTER_IMPORTS}", 1)


# -- what is surely refused


@pytest.mark.sandbox
class TestRefused:
    def test_the_words_are_the_compilers(self, compilation: EarlyCompilation) -> None:
        report = compiled(compilation, BROKEN)
        assert report is not None
        assert report.verdict.outcome is Outcome.COMPILATION_FAILURE
        says = nvrtc.refusal(KERNEL.replace(*BROKEN_LINE)).partition(": ")[2].replace("kernel.cu", "default_program")
        first = says.splitlines()[0]
        assert 'error: expected a ";"' in first
        assert report.verdict.detail.splitlines()[:2] == ["the compiler refused the kernel:", first]

    def test_the_evidence_says_where_and_that_no_device_was_used(self, compilation: EarlyCompilation) -> None:
        report = compiled(compilation, BROKEN)
        assert report is not None
        verdict = report.verdict
        evidence = verdict.evidence
        assert evidence is not None
        assert verdict.notes == (
            f"compiled on the controller, by NVRTC {FACTS['nvrtc']} for sm_90; no device was used",
        )
        assert evidence.device["used"] == "no device"
        assert evidence.device["compiled_for"].startswith("sm_90, NVIDIA H200")
        assert evidence.versions["nvrtc"] == FACTS["nvrtc"]
        # Whoever compares programs of one model of device does not count it among them.
        assert evidence.hardware == ""
        assert (report.job, report.candidate, report.platform) == ("0.1", job(BROKEN).candidate.id, "cuda")

    @pytest.mark.parametrize(
        "source",
        [
            BROKEN.replace("Device(torch.cuda.current_device())", "Device()"),
            with_line("torch.cuda.set_device(0); assert torch.cuda.get_device_capability() >= (8, 0)"),
            with_line("sms = torch.cuda.get_device_properties(0).multi_processor_count; assert sms == 132"),
            BROKEN.replace('arch=f"sm_{device.arch}"', 'arch="sm_90a"'),
            BROKEN.replace(', arch=f"sm_{device.arch}"', ""),
            BROKEN.replace("Program(SOURCE", "Program('#include <math.h>\\n' + SOURCE"),
            with_line("from cuda.bindings import driver, runtime"),
            BROKEN.replace(
                "kernel = Program(SOURCE",
                "kernel = Program('extern \"C\" __global__ void f() {}', 'c++').compile('cubin').get_kernel('f')\n"
                "kernel = Program(SOURCE",
            ),
        ],
        ids=[
            *("no number", "capability", "multiprocessors", "own architecture", "usual architecture"),
            *("host header", "imports the driver", "second kernel"),
        ],
    )
    def test_what_is_known_of_the_device_is_no_doubt(self, compilation: EarlyCompilation, source: str) -> None:
        report = compiled(compilation, source)
        assert report is not None
        assert "error: " in report.verdict.detail

    def test_what_is_compiled_by_the_constructor(self, compilation: EarlyCompilation) -> None:
        source = IN_CONSTRUCTOR.replace(*BROKEN_LINE)
        report = compiled(compilation, source)
        assert report is not None
        assert 'error: expected a ";"' in report.verdict.detail
        with_argument = source.replace("def __init__(self", "def __init__(self, columns")
        assert compiled(compilation, with_argument) is None
        problem = replace(PROBLEM, source="columns = 8\nclass Model: ...\ndef get_init_inputs():\n    return [columns]")
        asked = replace(job(with_argument), problem=problem)
        assert asyncio.run(compilation.report(asked, (FACTS,), lambda _: None)) is not None

    def test_programs_that_speak_to_nvrtc_themselves(self, compilation: EarlyCompilation) -> None:
        source = """
import torch.nn as nn
from cuda.bindings import nvrtc
text = b'extern "C" __global__ void f(float* x) { x[0] = y; }'
_, program = nvrtc.nvrtcCreateProgram(text, b"mine.cu", 0, [], [])
(status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    raise RuntimeError(log.decode())
class ModelNew(nn.Module): ...
"""
        report = compiled(compilation, source)
        assert report is not None
        assert 'mine.cu(1): error: identifier "y" is undefined' in report.verdict.detail

    def test_it_sees_neither_keys_nor_files(
        self, compilation: EarlyCompilation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text("hidden words")
        monkeypatch.setenv("OPENAI_API_KEY", "hidden key")
        tell = f"""
import os
words = os.environ.get("OPENAI_API_KEY", "no key")
words += " and a file" if os.path.exists({str(tmp_path)!r}) else " no file"
"""
        fresh = EarlyCompilation()
        report = compiled(
            fresh, with_line(tell).replace("Program(SOURCE", 'Program("#error " + words + "\\n" + SOURCE')
        )
        asyncio.run(fresh.close())
        assert report is not None
        assert "no key no file" in report.verdict.detail


# -- what the device has to say


DOUBTFUL = {
    "good": EXAMPLE,
    "good constructor": IN_CONSTRUCTOR,
    "first call": BROKEN.replace("kernel = Program", "kernel = lambda: Program"),
    "no compiler": "import torch.nn as nn\nclass ModelNew(nn.Module): ...",
    "not python": BROKEN + "\n)",
    "no module": BROKEN.replace("ModelNew", "Other"),
    "refused text": with_line("import sys; sys._getframe()"),
    "another error": with_line("raise RuntimeError('kernel.cu(1): error: of its own')", EXAMPLE),
    "own words": BROKEN.replace("kernel = Program", "try: kernel = Program").replace(
        '.get_kernel("leaky_relu_scale")',
        '.get_kernel("leaky_relu_scale")\nexcept Exception: raise RuntimeError("mine.cu(1): error: mine") from None',
    ),
    "a property": with_line("threads = device_threads = Device().properties.max_threads_per_block"),
    "a caught property": with_line(
        "try: threads = torch.cuda.get_device_properties(0).total_memory\nexcept Exception: threads = 1"
    ),
    "memory": with_line("x = torch.zeros(1, device='cuda')"),
    "memory, caught": with_line("try: x = torch.zeros(1, device='cuda')\nexcept Exception: x = None"),
    "a variable": with_line("import os; home = os.environ.get('CUDA_HOME')"),
    "a folder": with_line("import os; there = os.path.isdir('/opt/cuda/include')"),
    "a package": with_line("try:\n    import no_such_package\nexcept ImportError:\n    pass"),
    "a process": with_line("import subprocess; subprocess.run(['true'])"),
    "torch's version": with_line("assert torch.version.cuda is None or True"),
    "a kernel that is not there": BROKEN.replace(
        "kernel = Program(SOURCE",
        "try: Program('__global__ void f() {}', 'c++').compile('cubin').get_kernel('g')\nexcept Exception: pass\n"
        "kernel = Program(SOURCE",
    ),
    "headers of the other machine": BROKEN.replace('r"""\nextern', 'r"""\n#include <cuda_fp16.h>\nextern').replace(
        'std="c++17"', 'std="c++17", include_path=["/usr/local/cuda/include"]'
    ),
    "no such architecture": EXAMPLE.replace('arch=f"sm_{device.arch}"', 'arch="sm_10"'),
    "recovered": BROKEN.replace("kernel = Program", "try: kernel = Program").replace(
        '.get_kernel("leaky_relu_scale")', '.get_kernel("leaky_relu_scale")\nexcept Exception: kernel = None'
    ),
    "a question after an error": BROKEN.replace("kernel = Program", "try: kernel = Program").replace(
        '.get_kernel("leaky_relu_scale")',
        '.get_kernel("leaky_relu_scale")\nexcept Exception: kernel = Device().properties.max_threads_per_block',
    ),
    "an error in its handling": BROKEN.replace("kernel = Program", "try: kernel = Program").replace(
        '.get_kernel("leaky_relu_scale")', '.get_kernel("leaky_relu_scale")\nexcept Exception: raise ValueError("mine")'
    ),
    "a class of the device's": with_line("try: isinstance(1, torch.cuda.Stream)\nexcept Exception: pass"),
    "a crash": with_line("import os; os.abort()"),
    "an end": with_line("import os; os._exit(0)"),
    "a foreign file": with_line("try: open('/root/x')\nexcept OSError: pass"),
    "an extension": with_line("from torch.utils.cpp_extension import load_inline"),
}


@pytest.mark.sandbox
class TestNotSure:
    @pytest.mark.parametrize("source", DOUBTFUL.values(), ids=DOUBTFUL.keys())
    def test_it_travels(self, compilation: EarlyCompilation, source: str) -> None:
        assert source not in (BROKEN,)
        assert compiled(compilation, source) is None

    @pytest.mark.parametrize(
        "facts",
        [
            {},
            {**FACTS, "nvrtc": "unknown"},
            {**FACTS, "nvrtc": "12.9"},
            {**FACTS, "nvrtc": FACTS["nvrtc"] + "9"},
            {**FACTS, "capability": "unknown"},
            {**FACTS, EMULATED: "yes"},
        ],
        ids=["nothing known", "no compiler", "older generation", "later compiler", "no capability", "emulated"],
    )
    def test_a_device_whose_compiler_is_another(self, compilation: EarlyCompilation, facts: dict[str, str]) -> None:
        assert compiled(compilation, BROKEN, facts) is None
        assert compiled(compilation, BROKEN, FACTS, facts) is None

    def test_devices_that_differ(self, compilation: EarlyCompilation) -> None:
        assert compiled(compilation, BROKEN, FACTS, {**FACTS, "capability": "8.0"}) is None
        assert compiled(compilation, BROKEN, FACTS, dict(FACTS)) is not None

    def test_it_does_not_wait_for_long(self, compilation: EarlyCompilation, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled(compilation, EXAMPLE)
        monkeypatch.setattr("kforge.worker.judge.early_compiler._SECONDS", 1.5)
        began = time.monotonic()
        assert compiled(compilation, with_line("while True: pass")) is None
        assert time.monotonic() - began < 30, "half of what it may take at most"

    def test_the_loop_goes_on_and_closing_ends_it(self, compilation: EarlyCompilation) -> None:
        async def work() -> tuple[int, float]:
            own = EarlyCompilation()
            await own.report(job(EXAMPLE), (FACTS,), lambda _: None)
            waiting = asyncio.create_task(own.report(job(with_line("while True: pass")), (FACTS,), lambda _: None))
            turns = 0
            for _ in range(20):
                await asyncio.sleep(0.05)
                turns += not waiting.done()
            began = time.monotonic()
            await own.close()
            assert await asyncio.wait_for(waiting, 10) is None
            return turns, time.monotonic() - began

        turns, seconds = asyncio.run(work())
        assert turns == 20
        assert seconds < 30, "the program never ends by itself"


# -- executors


def bundle(folder: BundleFolder, early_one: EarlyCompilation | None, source: str) -> Report | None:
    """The report at once, or None where a job was left."""
    try:
        return asyncio.run(BundleExecutor(folder.path, early_one).run(job(source), lambda _: None))
    except ReportAwaited:
        return None


@pytest.mark.sandbox
class TestBundle:
    def test_only_what_compiles_is_left_there(self, compilation: EarlyCompilation, tmp_path: Path) -> None:
        folder = BundleFolder(tmp_path / "bundle")
        folder.set_facts({"cuda": FACTS})
        report = bundle(folder, compilation, BROKEN)
        assert report is not None
        assert report.verdict.outcome is Outcome.COMPILATION_FAILURE
        assert folder.waiting_count() == 0
        assert bundle(folder, compilation, EXAMPLE) is None
        assert folder.waiting_count() == 1

    def test_a_job_that_was_left_there_stays_the_devices(self, compilation: EarlyCompilation, tmp_path: Path) -> None:
        folder = BundleFolder(tmp_path / "bundle")
        folder.set_facts({"cuda": FACTS})
        assert bundle(folder, None, BROKEN) is None
        assert bundle(folder, compilation, BROKEN) is None

    def test_a_machine_that_nobody_described(self, compilation: EarlyCompilation, tmp_path: Path) -> None:
        assert bundle(BundleFolder(tmp_path / "bundle"), compilation, BROKEN) is None


@pytest.mark.sandbox
def test_a_run_repairs_what_does_not_compile_before_it_waits(
    compilation: EarlyCompilation, tmp_path: Path, scale_relu: Problem
) -> None:
    folder = BundleFolder(tmp_path / "bundle")
    folder.set_facts({"cuda": FACTS})
    replies = [f"```python\n{source}\n```" for source in (BROKEN, EXAMPLE)]
    prompts = []

    def write(prompt: Prompt) -> str:
        prompts.append(prompt.text)
        return replies[len(prompts) - 1]

    environment = RunEnvironment(tmp_path / "store", ModelAccess(models={"scripted": Scripted(write)}))
    result = kforge.forge(scale_relu, "cuda", "scripted", environment, executor=f"bundle:{folder.path}", iterations=3)
    assert result.waiting
    assert [attempt.verdict.outcome for attempt in result.history] == [Outcome.COMPILATION_FAILURE]
    assert 'error: expected a ";"' in prompts[1]
    assert folder.waiting_count() == 1


@pytest.mark.cpu
def test_without_the_compiler_programs_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(early, "unavailable_reason", lambda: "NVRTC cannot be loaded")
    folder = BundleFolder(tmp_path / "bundle")
    folder.set_facts({"cuda": {**FACTS, "nvrtc": "13.0"}})
    assert bundle(folder, EarlyCompilation(), BROKEN) is None
    assert folder.waiting_count() == 1


@pytest.mark.sandbox
@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="the extra cluster is not installed")
def test_a_cluster_is_sent_what_compiles(compilation: EarlyCompilation, tmp_path: Path) -> None:
    from kforge.cluster.address import parse_address
    from kforge.cluster.executor import ClusterExecutor

    log = tmp_path / "log"

    async def drive(early_one: EarlyCompilation | None, *sources: str) -> list[Any]:
        executor = ClusterExecutor(parse_address(cluster.url), "cuda", early_one)
        try:
            asked = (executor.run(replace(job(source), id=str(n)), lambda _: None) for n, source in enumerate(sources))
            return await asyncio.wait_for(asyncio.gather(*asked), PATIENCE)
        finally:
            await executor.close()

    with ClusterProcesses() as cluster:
        cluster.add_worker(
            *("--platform", "cuda", "--model", "NVIDIA H200", "--log", str(log), "--facts", json.dumps(FACTS))
        )
        own = EarlyCompilation()
        bad, good = asyncio.run(drive(own, BROKEN, EXAMPLE))
        assert bad.verdict.outcome is Outcome.COMPILATION_FAILURE
        assert good.verdict.outcome is Outcome.CORRECT
        assert [line.split()[1] for line in log.read_text().splitlines()] == [job(EXAMPLE).candidate.id]
        (sent,) = asyncio.run(drive(None, BROKEN))
        # The null worker finds every program correct: it was asked.
        assert sent.verdict.outcome is Outcome.CORRECT


# -- the option


@pytest.mark.pure
class TestOption:
    @pytest.mark.parametrize(
        ("argument", "place", "off"),
        [
            ("carried", "carried", False),
            ("carried?compile=device", "carried", True),
            ("odd?name", "odd?name", False),
            ("tcp://head:1?insecure", "tcp://head:1?insecure", False),
            ("tcp://head:1?insecure&compile=device", "tcp://head:1?insecure", True),
            ("tcp://head:1?compile=device&insecure", "tcp://head:1?insecure", True),
            ("?compile=device", "", True),
            ("", "", False),
        ],
    )
    def test_it_is_taken_from_the_argument(self, argument: str, place: str, off: bool) -> None:
        assert split_option(argument) == (place, off)
        assert split_option(with_option(place, off)) == (place, off)

    def test_names_keep_it(self, tmp_path: Path) -> None:
        whole = parse_executor(f"bundle:{tmp_path}?compile=device").whole
        assert whole == f"bundle:{tmp_path}?compile=device"
        assert folder_of(whole) == tmp_path
        assert parse_executor("dask:tcp://localhost:1?compile=device").whole == "dask:tcp://localhost:1?compile=device"

    @pytest.mark.parametrize(
        ("name", "platform", "on"),
        [("bundle:x", "cuda", True), ("bundle:x?compile=device", "cuda", False), ("bundle:x", "cpu", False)],
    )
    def test_who_compiles(self, name: str, platform: str, on: bool) -> None:
        plugin, argument = parse_executor(name)
        executor: Any = plugin.open(argument, platform)
        assert (executor._early is not None) is on


@pytest.mark.cpu
def test_the_doctor_says_whether_it_is_there() -> None:
    from kforge.cli import doctor

    state = doctor.examine()["compilers"]["nvrtc"]
    assert state["absent"] == unavailable_reason()
    assert "before they go to a bundle or a cluster" in state["detail"]


@pytest.mark.pure
def test_a_gpu_says_which_compiler_is_there() -> None:
    assert Cuda().language_facts() == {"nvrtc": nvrtc_version() or "unknown"}
