"""A program for a GPU as it is handed to a user: what was verified is on record, and the guard keeps to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.run import guarded_program

pytestmark = pytest.mark.accelerator

UNTIMED = Settings(compile_baseline=False, timing_seconds=0)


@pytest.fixture(scope="module", params=["cuda", "triton"])
def forged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """(the reference's namespace, the guarded class) of a platform's example."""
    from kforge.worker.judge.judge import Judge

    reference, candidate = registry.load("platforms", request.param).example()
    problem = Problem.from_source(reference)
    with Judge(request.param) as judge:
        verdict = judge.evaluate(problem, Candidate(candidate, request.param), UNTIMED)
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    assert verdict.hazards == ()
    assert verdict.domain is not None
    spaces: list[dict[str, Any]] = [{"__name__": "reference"}, {"__name__": "program"}]
    exec(problem.sized_source("gpu"), spaces[0])
    # Triton reads the lines of its kernels from their file.
    path = tmp_path_factory.mktemp("guarded") / "program.py"
    path.write_text(guarded_program.add_guard(candidate, "example", verdict.domain))
    exec(compile(path.read_text(), str(path), "exec"), spaces[1])
    return spaces[0], spaces[1]["ModelNew"]


@pytest.fixture
def parts(forged: tuple[Any, Any]) -> tuple[Any, Any, torch.Tensor]:
    """(reference module, guarded module with its weights, an input), all on the device."""
    namespace, kind = forged
    arguments = namespace["get_init_inputs"]()
    original, module = namespace["Model"](*arguments).cuda(), kind(*arguments).cuda()
    module.load_state_dict(original.state_dict())
    return original, module, namespace["get_inputs"]()[0].cuda()


def test_it_runs_as_it_was_verified(parts: Any) -> None:
    original, module, x = parts
    with torch.no_grad():
        torch.testing.assert_close(module(x), original(x))
        torch.testing.assert_close(module(x.t().contiguous().t()), original(x))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            beside = module(x)
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(beside, original(x))


def test_a_compiled_model_gives_the_same_result(parts: Any) -> None:
    original, module, x = parts
    model = torch.nn.Sequential(torch.nn.ReLU(), module, torch.nn.ReLU())
    with torch.no_grad():
        want = torch.relu(original(torch.relu(x)))
        compiled = torch.compile(model)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), want)


def test_a_graph_of_launches_can_be_captured(parts: Any) -> None:
    original, module, x = parts
    with torch.no_grad():
        module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = module(x)
        x.normal_()
        graph.replay()
        torch.testing.assert_close(captured, original(x))


def test_what_was_not_verified_is_refused(parts: Any) -> None:
    _, module, x = parts
    with pytest.raises(RuntimeError, match="it has no gradient"):
        module(x).sum().backward()
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"argument 1 must be .* on cuda, and is .* on cpu"):
            module(x.cpu())
        with pytest.raises(RuntimeError, match="no tracer can see into"):
            torch.jit.trace(module, x)
        with pytest.raises(ValueError, match="the module's scale must be float32"):
            module.bfloat16()(x)
        with pytest.raises(ValueError, match=r"the module's scale must be .* on cuda:0, and is .* on cpu"):
            module.float().cpu()(x)
