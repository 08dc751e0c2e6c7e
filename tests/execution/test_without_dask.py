"""Where the extra cluster is not installed: everything else works, and what needs it says so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import pytest

from kforge.execution.factory import open_executor

pytestmark = pytest.mark.cpu
KForge = Callable[..., subprocess.CompletedProcess[str]]


def test_without_dask_the_others_work_and_this_one_says_what_to_install(
    kforge_here: KForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "distributed" else find(name, *rest)
    )
    for words in (
        ("forge", "bundled:level1/1", "--executor", "dask"),
        ("worker", "--scheduler", "tcp://127.0.0.1:1"),
        ("cluster", "tcp://127.0.0.1:1"),
        ("cluster", "start", "tcp://127.0.0.1:1"),
    ):
        done = kforge_here(*words)
        assert done.returncode == 2
        assert "pip install 'kforge-kernels[cluster]'" in done.stderr
    assert open_executor("local", "cpu") is not None


def test_naming_the_executor_loads_neither_dask_nor_torch() -> None:
    script = "import sys; from kforge.execution.executor_names import whole_name; print(whole_name('dask:tls://head'))"
    script += "; import kforge.cluster.tasks; print([n for n in ('distributed', 'dask', 'torch') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["dask:tls://head:8786", "[]"]
