"""Programs for Metal as models write them: every right one gives torch's numbers, every planted bug is caught."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import corpus_reading

torch = pytest.importorskip("torch")

from kforge.emulation import metal  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault  # noqa: E402

pytestmark = pytest.mark.toolchain

RIGHT = corpus_reading.entries("msl", "right")
WRONG = corpus_reading.entries("msl", "wrong")
CLOSE = {torch.float16: 2e-2, torch.bfloat16: 2e-2}
"""How near numbers of a type must be to torch's; others to 2e-4."""


@pytest.fixture(scope="module")
def programs(request: pytest.FixtureRequest) -> Iterator[Callable[[corpus_reading.Entry], Any]]:
    """The module of an entry, built for both modes. The compiler runs ahead of the tests, on every core."""
    here = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    wanted = {item.callspec.params["entry"].path: item.callspec.params["entry"] for item in here}
    metal.set_checked(True)
    with metal.installed(), ThreadPoolExecutor(os.cpu_count()) as builders:
        built: dict[Path, Future[Any]] = {path: builders.submit(_program, entry) for path, entry in wanted.items()}
        yield lambda entry: built[entry.path].result()
    metal.set_checked(False)


def _program(entry: corpus_reading.Entry) -> Any:
    spec = importlib.util.spec_from_file_location(f"corpus_msl_{entry.name}", entry.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with metal.surroundings():
        spec.loader.exec_module(module)
    for library in vars(module).values():
        if isinstance(library, metal.ShaderLibrary):
            for checked in (True, False) if entry.is_right else (True,):
                library._build(checked)
    return module


def outcome(module: Any, checked: bool) -> tuple[list[Any], list[Any]]:
    """What a program computes, and what torch does."""
    torch.manual_seed(0)
    reference = module.Model(*module.get_init_inputs()).eval()
    torch.manual_seed(0)
    program = module.ModelNew(*module.get_init_inputs()).eval()
    program.load_state_dict(reference.state_dict())
    torch.manual_seed(1)
    inputs = module.get_inputs()
    given = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    metal.set_checked(checked)
    try:
        with torch.no_grad():
            return _flat(program(*given)), _flat(reference(*inputs))
    finally:
        metal.set_checked(True)


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def same(got: list[Any], wanted: list[Any]) -> bool:
    def close(mine: Any, its: Any) -> bool:
        within = CLOSE.get(its.dtype, 2e-4)
        alike = mine.shape == its.shape and mine.dtype == its.dtype
        return bool(alike and torch.allclose(mine.float(), its.float(), rtol=within, atol=within))

    return len(got) == len(wanted) and all(map(close, got, wanted))


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])
@pytest.mark.parametrize("entry", RIGHT, ids=lambda entry: entry.name)
def test_right_programs_give_torchs_numbers(entry: corpus_reading.Entry, checked: bool, programs: Any) -> None:
    got, wanted = outcome(programs(entry), checked)

    assert same(got, wanted)


@pytest.mark.parametrize("entry", WRONG, ids=lambda entry: entry.name)
def test_planted_bugs_are_caught(entry: corpus_reading.Entry, programs: Any) -> None:
    said = numbers = ""
    try:
        got, wanted = outcome(programs(entry), checked=True)
        numbers = "the same" if same(got, wanted) else "others"
    except (KernelFault, SyntaxError) as error:
        said = str(error)

    assert (said or numbers) != "the same"
    assert entry.caught in (("checked", "either") if said else ("mismatch", "either")), said
    assert entry.caught != "checked" or entry.faulty_line in said


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(RIGHT) >= 40
    assert len(WRONG) >= 15
