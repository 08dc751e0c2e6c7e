"""Sandbox levels: what a machine without namespaces is, and what is a fault of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kforge.errors import HarnessError
from kforge.worker.sandbox import levels

pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    levels.unavailable_reason.cache_clear()
    yield
    levels.unavailable_reason.cache_clear()


def test_what_the_kernel_refuses_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = "import sys; print('Operation not permitted', file=sys.stderr); sys.exit(3)"
    monkeypatch.setattr(levels, "_PROBE", refusing)
    reason = levels.unavailable_reason("unshare")
    assert reason.startswith("namespaces for each runner are refused: Operation not permitted")
    assert levels.choose("auto") == "process"


def test_a_filter_that_kills_is_a_refusal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSYS)")
    assert "a filter of system calls" in levels.unavailable_reason("unshare")


@pytest.mark.parametrize("fault", ["private.mount_nothing()", "import sys; sys.exit(1)", "import os; os.abort()"])
def test_a_broken_trial_never_passes_for_a_machine_without_namespaces(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "_PROBE", fault)
    with pytest.raises(HarnessError, match="the trial of the sandbox failed"):
        levels.choose("auto")


def test_the_trial_itself_is_sound() -> None:
    """Namespaces, or a refusal: a fault in it would raise."""
    reason = levels.unavailable_reason("unshare")
    assert not reason or reason.startswith("namespaces for each runner are refused: ")
