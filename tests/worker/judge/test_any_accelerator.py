"""An accelerator that the judge has never heard of: memory of its own, a torch device of another type, and no more."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import kforge.worker
from kforge import Candidate, Outcome, Settings, registry
from kforge.platforms.base import Platform
from kforge.worker.arena import Arena
from kforge.worker.judge import integrity
from kforge.worker.judge.device import Device
from kforge.worker.judge.judge import Judge
from kforge.worker.judge.lane import Lane
from kforge.worker.judge.library_kernels import mark_library_kernels
from kforge.worker.judge.timed_inputs import TimedInputs
from kforge.worker.protocol.calls import RecordCall, RecordedCall, ReleaseMemory, WatchedCall
from kforge.worker.runner import serve
from kforge.worker.runner.fault_record import FaultRecord
from kforge.worker.runner.loaded_program import LoadedProgram

GIB = 1 << 30
OWN_TYPES = ["xpu", "privateuseone"]


class Accelerator(Platform):
    name = "acme"
    device_class = "gpu"

    def __init__(self, device: str) -> None:
        self.device = device

    def device_name(self, number: int) -> str:
        return f"{self.device}:{number}"

    def memory_bytes(self, number: int = 0) -> int:
        return 64 * GIB


@pytest.fixture(params=OWN_TYPES)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """torch's module for the type of device, as a vendor registers one; what is called is written down."""
    noted: list[Any] = [request.param]

    def function(name: str, answer: Any = None) -> Any:
        def call(*arguments: Any) -> Any:
            noted.append((name, *arguments))
            return answer

        return call

    answers = {"mem_get_info": (3 * GIB, 64 * GIB), "memory_reserved": 2 * GIB, "memory_allocated": GIB}
    names = ("synchronize", "set_device", "empty_cache", *answers)
    module = SimpleNamespace(**{name: function(name, answers.get(name)) for name in names})
    monkeypatch.setattr(torch, request.param, module, raising=False)
    return noted


@pytest.mark.cpu
def test_the_judge_uses_its_device_by_torchs_functions_for_that_type(calls: list[Any]) -> None:
    kind = calls.pop()
    device = Device(Accelerator(kind), 1)
    assert device.has_own_memory
    assert not device.supports_ipc
    assert isinstance(device.arena(4096), Arena), "tensors travel through the host's memory"
    device.synchronize()
    assert calls == [("synchronize", f"{kind}:1")]
    assert device.free_bytes() == 4 * GIB
    calls.clear()
    device.give_back(GIB // 2)
    assert calls == [], "little is wanted"
    device.give_back(2 * GIB)
    assert calls == [("mem_get_info", f"{kind}:1"), ("empty_cache",)]
    calls.clear()
    with device.as_default():
        assert torch.get_default_device() == torch.device(f"{kind}:1")
    assert calls == [("set_device", f"{kind}:1")]


@pytest.mark.cpu
def test_what_torch_lacks_for_a_device_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "privateuseone", None, raising=False)
    device = Device(Accelerator("privateuseone"))
    device.synchronize()
    device.give_back(32 * GIB)
    assert device.free_bytes() == device.memory_bytes
    with device.as_default():
        pass


@pytest.mark.cpu
@pytest.mark.parametrize("kind", OWN_TYPES)
def test_its_calls_are_timed_in_its_runners(kind: str) -> None:
    made: list[Any] = []
    inputs = TimedInputs.__new__(TimedInputs)
    inputs.__dict__["_cases"] = SimpleNamespace(device=Device(Accelerator(kind)), outputs=[], shares_memory=False)
    inputs.__dict__["sets"] = lambda: made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lane, "__init__", lambda self, runner, sets, *rest: made.append(sets))
        assert type(inputs.lane(SimpleNamespace(), 1.0)) is Lane  # type: ignore[arg-type]


@pytest.mark.toolchain
@pytest.mark.quiet
def test_a_candidate_is_judged_and_timed_by_way_of_the_hosts_memory(
    scale_relu: Any, honest: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor, taken for a device that nobody can map: no function of CUDA's is called."""
    monkeypatch.setattr(Device, "has_own_memory", property(lambda self: True))
    for name in ("synchronize", "current_stream", "mem_get_info", "empty_cache", "set_device", "Stream", "Event"):
        monkeypatch.delattr(torch.cuda, name)
    with Judge("cpu") as judge:
        verdict = judge.evaluate(scale_relu, honest, Settings(compile_baseline=False, timing_seconds=0.1))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.timing is not None
    assert verdict.custom_share
    assert verdict.evidence is not None
    assert "inputs and outputs went through the host" in " ".join(verdict.evidence.unchecked)


@pytest.fixture
def runner(calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    platform = Accelerator(calls.pop())
    monkeypatch.setattr(registry, "load", lambda kind, name: platform)
    program = LoadedProgram("acme", str(tmp_path))
    program.seed = lambda seed: None
    return serve._Runner(program, FaultRecord())


@pytest.mark.cpu
def test_a_runner_gives_memory_back_and_waits_as_torch_does_for_that_device(runner: Any, calls: list[Any]) -> None:
    runner.answer(ReleaseMemory(), [])
    runner._program.synchronize()
    assert calls == [("empty_cache",), ("synchronize",)]


@pytest.mark.cpu
def test_a_runner_records_operators_where_no_profiler_names_kernels(runner: Any) -> None:
    runner._program.model = lambda x: x + 1
    runner._inputs.sets = [[torch.ones(8)]]
    recorded = runner.answer(RecordCall(set=0, seed=1), [])
    assert [operator.name for operator in recorded.operators] == ["aten.add"]
    assert recorded.kernels == []


@pytest.mark.pure
def test_a_library_that_launches_a_programs_kernels_does_not_take_them_over() -> None:
    watched, recorded = WatchedCall(True, ["gelu"], ""), RecordedCall([], 0, None, [], 0)
    observed = integrity.read_observation(watched, recorded, ("/usr/lib/libacme.so",), noted=True)
    assert observed.native == ("gelu",)
    assert mark_library_kernels(observed, ("/usr/lib/libacme.so",), ()).native == ("gelu",)


@pytest.mark.pure
def test_no_decision_depends_on_the_name_of_cuda() -> None:
    """What is CUDA's own is reached where the platform says so; a vendor's device needs no change here."""
    root = Path(kforge.worker.__file__).parent
    asking = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if _asks_for_cuda(node)
    ]
    assert not asking


def _asks_for_cuda(node: ast.AST) -> bool:
    """Whether something is compared with a text that begins with "cuda", or asked whether it begins with one."""
    if isinstance(node, ast.Compare):
        told = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
        told = list(node.args)
    elif isinstance(node, ast.MatchValue):
        told = [node.value]
    else:
        return False
    leaves = [leaf for part in told for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)]
    return any(isinstance(leaf.value, str) and leaf.value.startswith("cuda") for leaf in leaves)
