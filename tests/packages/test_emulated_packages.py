"""A program that ran on an emulator alone: it is exported, says so, and is used nowhere but on its own hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kforge import Candidate, Outcome, Problem, Settings, registry
from kforge.packages.description import Winner
from kforge.packages.package_files import package_files, write_package
from packages import shipped

pytestmark = [pytest.mark.toolchain, pytest.mark.xdist_group("emulated")]


@pytest.fixture(scope="module", params=["cuda", "metal"])
def exported(request: pytest.FixtureRequest, judges: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    platform = registry.load("platforms", request.param)
    if not platform.emulated:
        pytest.skip(f"platform {request.param} has its hardware here")
    reference, source = platform.example()
    problem = Problem.from_source(reference.replace("ROWS = 32768", "ROWS = 16"), "scale")
    program = Candidate(source, request.param)
    verdict = judges[request.param].evaluate(problem, program, Settings(seeds=2))
    assert verdict.outcome is Outcome.CORRECT, verdict.detail
    name = f"emulated_{request.param}"
    folder: Path = tmp_path_factory.mktemp("packages") / name
    write_package(package_files(Winner(problem, program, request.param, verdict, "a test"), name), folder)
    return folder


def test_it_claims_no_speed(exported: Path) -> None:
    readme = (exported / "README.md").read_text()
    assert "It ran on an emulator, not on the hardware it is for: there is no time and no speedup." in readme
    assert "x eager" not in readme
    assert "It ran on an emulator" in shipped.load(exported).about()


def test_without_its_hardware_the_reference_answers(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = shipped.load(exported)
    package._package.program.counts.reset()
    reference = package._package.program.references["reference.py"]
    module, x = reference.construct().requires_grad_(False), reference.inputs()[0]
    operator = getattr(package, package._package.verified["op"])
    with pytest.warns(package.FallbackWarning, match="the tensors are on cpu, not on"):
        torch.testing.assert_close(operator(x, *module.parameters()), module(x))
    with pytest.raises(package.NotVerified):
        operator(x, *module.parameters(), strict=True)
    assert package.stats()["program"] == 0


def test_it_is_judged_again_in_emulation(exported: Path, kforge_here: Any) -> None:
    done = kforge_here("verify", exported, "--no-tests")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "emulat" in done.stdout + done.stderr
