"""Programs that are compared with each other are judged on one model of device."""

from __future__ import annotations

from collections.abc import Iterable

from kforge.execution.base import HardwareChoice
from kforge.types import Attempt


def model_of(history: Iterable[Attempt]) -> str:
    """The model of device that attempts were judged on; empty where they tell of none."""
    evidence = (item.verdict.evidence for item in history)
    # A program that did not compile may have met no device at all.
    return next((each.hardware for each in evidence if each is not None and each.hardware), "")


def keep_to_hardware(executor: HardwareChoice, history: Iterable[Attempt]) -> None:
    """What is judged from now on is judged on the model that these attempts were."""
    model = model_of(history)
    if model:
        executor.keep_to_hardware(model)
