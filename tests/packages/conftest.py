"""What tests of packages share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kforge
from packages import shipped

_numbers = itertools.count()


@pytest.fixture
def make(judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """From a problem and a program in plain torch to an imported package."""
    monkeypatch.setenv("KFORGE_PACKAGE_CACHE", str(tmp_path / "cache"))

    def make(problem: Any, program: str, **options: Any) -> Any:
        problem = kforge.Problem.from_source(problem, "1_Thing") if isinstance(problem, str) else problem
        result = shipped.forged(judge, problem, program, tmp_path, shipped.ANY, **options)
        return shipped.load(shipped.export(result, f"forms_{next(_numbers)}", tmp_path, op="thing"))

    return make
