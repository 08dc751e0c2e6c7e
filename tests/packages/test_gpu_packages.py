"""Packages on a GPU: streams, graphs of launches, compiled models, and servers without a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.packages.built_files import with_built
from kforge.packages.description import Winner
from kforge.packages.package_files import package_files, write_package
from packages import shipped

pytestmark = pytest.mark.accelerator

UNTIMED = Settings(compile_baseline=False, timing_seconds=0)


@pytest.fixture(scope="module", params=["cuda", "triton"])
def winner(request: pytest.FixtureRequest) -> Winner:
    """A platform's example, judged."""
    from kforge.worker.judge.judge import Judge

    reference, source = registry.load("platforms", request.param).example()
    problem, program = Problem.from_source(reference, "scale"), Candidate(source, request.param)
    with Judge(request.param) as judge:
        verdict = judge.evaluate(problem, program, UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    return Winner(problem, program, request.param, verdict, "a test")


@pytest.fixture(scope="module")
def name(winner: Winner) -> str:
    return f"fast_{winner.platform}_scale"


@pytest.fixture(scope="module")
def folder(winner: Winner, name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("packages") / name
    write_package(package_files(winner, name), to)
    return to


@pytest.fixture
def package(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    monkeypatch.setenv("KFORGE_PACKAGE_CACHE", str(tmp_path_factory.getbasetemp() / "compiled"))
    loaded = shipped.load(folder)
    loaded._package.program.counts.reset()
    return loaded


@pytest.fixture
def model(package: Any) -> Any:
    """(A model whose module calls the program, the original module, an input)."""
    file = package._package.program.references["reference.py"]
    original = file.construct().cuda().requires_grad_(False)
    copied = file.construct().cuda().requires_grad_(False)
    copied.load_state_dict(original.state_dict())
    changed = torch.nn.Sequential(copied)
    assert package.apply(changed) == ["0"]
    return changed, original, file.inputs()[0].cuda()


def test_its_own_tests_pass(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder), "KFORGE_PACKAGE_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_runs_on_the_current_stream_and_in_several_threads(package: Any, model: Any) -> None:
    changed, original, x = model
    want, faults = original(x), []

    def use() -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(side):
            for _ in range(5):
                y = changed(x)
        side.synchronize()
        if not torch.allclose(y, want):
            faults.append(float((y - want).abs().max()))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert package.stats() == {"program": 20, "reference": 0, "reasons": {}}


def test_a_graph_of_launches_holds_the_program_after_warming_up(package: Any, model: Any) -> None:
    changed, original, x = model
    package.warmup(model=changed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = changed(x)
    assert package.stats()["reference"] == 0
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(captured, original(x))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_a_graph_of_launches_holds_the_reference_where_nothing_was_called_before(package: Any, model: Any) -> None:
    changed, original, x = model
    original(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = changed(x)
    assert "a CUDA graph is being captured" in " ".join(package.stats()["reasons"])
    x.normal_()
    graph.replay()
    torch.testing.assert_close(captured, original(x))
    torch.testing.assert_close(changed(x), original(x))


# torch's own manager of graphs captures an empty one.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model_calls_the_program(package: Any, model: Any, mode: str) -> None:
    changed, original, x = model
    compiled = torch.compile(torch.nn.Sequential(torch.nn.ReLU(), changed), fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn_like(x)
            torch.testing.assert_close(compiled(x), original(torch.relu(x)))
    assert package.stats()["program"] > 0
    assert package.stats()["reference"] == 0


def test_gradients_are_those_of_the_reference(package: Any, model: Any) -> None:
    changed, original, x = model
    gradients = []
    for module in (changed, original):
        own = x.clone().requires_grad_()
        module(own).square().sum().backward()
        gradients.append(own.grad)
    torch.testing.assert_close(*gradients)


_USE = """
import {name} as package, torch
{before}
x = package._package.program.references["reference.py"].inputs()[0].cuda()
module = package._package.program.references["reference.py"].construct().cuda().requires_grad_(False)
want = module(x)
package.apply(module, strict=True)
torch.testing.assert_close(module(x), want)
print(package.stats())
"""
_NO_NVRTC = """
import cuda.core
class Program:
    def __init__(self, *arguments, **options):
        raise RuntimeError("there is no NVRTC here")
cuda.core.Program = Program
"""


def test_a_server_without_a_compiler_uses_what_was_carried(
    winner: Winner, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    major, minor = torch.cuda.get_device_capability()
    asked = ("sm_80",) if winner.platform == "cuda" else ()
    files, notes = with_built(package_files(winner, name), name, f"{name}/", asked)
    assert not notes
    write_package(files, tmp_path / name)
    carried = sorted(path for path in files if f"{name}/built/" in path)
    if winner.platform == "cuda":
        endings = {".".join(Path(path).name.split(".")[1:]) for path in carried}
        assert {"sm_80.cubin", f"sm_{major}{minor}.cubin", f"sm_{major}{minor}.ptx"} <= endings
    else:
        assert any(path.endswith(".cubin") for path in carried)
        assert not any(path.endswith((".ttir", ".ptx")) for path in carried)
    (tmp_path / "bin").mkdir()
    place = {
        **{key: value for key, value in os.environ.items() if key not in ("CC", "CXX")},
        "PATH": str(tmp_path / "bin"),  # no compiler is found
        "PYTHONPATH": str(tmp_path / name),
        "KFORGE_PACKAGE_CACHE": str(tmp_path / "cache"),
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TRITON_STORE_BINARY_ONLY": "0",
    }
    text = _USE.format(name=name, before=_NO_NVRTC if winner.platform == "cuda" else "")
    done = subprocess.run([sys.executable, "-c", text], env=place, capture_output=True, text=True, timeout=300)
    assert "'program': 1, 'reference': 0" in done.stdout, done.stdout + done.stderr
    if winner.platform == "triton":
        # Nothing was compiled beside what was carried.
        assert not list((tmp_path / "triton").rglob("*.ttir"))


def test_ptx_of_an_older_gpu_runs_where_nothing_else_does(winner: Winner, name: str, tmp_path: Path) -> None:
    if winner.platform != "cuda":
        pytest.skip("Triton's cache holds code for one GPU alone")
    files, _ = with_built(package_files(winner, name), name, f"{name}/")
    left = {path: data for path, data in files.items() if ".cubin" not in path}
    write_package(left, tmp_path / name)
    # As for a GPU that nothing was built for: only the PTX is listed.
    path = tmp_path / name / name / "verified.json"
    verified = json.loads(path.read_text())
    verified["built"] = [item for item in verified["built"] if ".ptx" in item["name"]]
    path.write_text(json.dumps(verified))
    place = {**os.environ, "PYTHONPATH": str(tmp_path / name), "KFORGE_PACKAGE_CACHE": str(tmp_path / "cache")}
    text = _USE.format(name=name, before=_NO_NVRTC)
    done = subprocess.run([sys.executable, "-c", text], env=place, capture_output=True, text=True, timeout=300)
    assert "'program': 1, 'reference': 0" in done.stdout, done.stdout + done.stderr
    assert "the driver makes its code" in done.stderr


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_several_gpus_have_a_program_each(package: Any, model: Any) -> None:
    changed, original, x = model
    for number in (1, 0, 1):
        y = changed.to(f"cuda:{number}")(x.to(f"cuda:{number}"))
        torch.testing.assert_close(y, original(x).to(y.device))
    assert package.stats() == {"program": 3, "reference": 0, "reasons": {}}
