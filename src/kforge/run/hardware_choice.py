"""Programs that are compared with each other are judged on one model of device."""

from __future__ import annotations

from collections.abc import Iterable

from kforge.execution.base import Executor, HardwareChoice
from kforge.types import Attempt


def keep_to_hardware(executor: Executor, history: Iterable[Attempt]) -> bool:
    """What is judged from now on is judged on the model that these attempts were: whether they tell of one."""
    evidence = (item.verdict.evidence for item in history)
    # A program that did not compile may have met no device at all.
    model = next((each.hardware for each in evidence if each is not None and each.hardware), "")
    if isinstance(executor, HardwareChoice) and model:
        executor.keep_to_hardware(model)
    return bool(model)
