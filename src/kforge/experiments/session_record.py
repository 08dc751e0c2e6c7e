"""What a session leaves on record: the machine, the versions, the commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path

from kforge.errors import KForgeError
from kforge.problems.checkout import commits_of
from kforge.spec.judging_platform import judging_platform
from kforge.types import Experiment, Session

_PACKAGES = ("kforge-kernels", "torch", "triton", "pydantic-ai-slim")


def new_session(experiment: Experiment, command: str) -> Session:
    """A session of the experiment, here and now."""
    return Session(time.time(), command, _machine(experiment), _versions(), commits_of([Path(__file__).parents[1]]))


def _machine(experiment: Experiment) -> dict[str, str]:
    """This machine, and the devices that judge, wherever they are."""
    machine = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count() or "unknown"),
    }
    for name in experiment.platforms:
        try:
            facts = judging_platform(name, experiment.executor).facts()
        except KForgeError:
            continue
        device = facts.get("device") or facts.get("processor")
        if device and device != "unknown":
            machine[f"device of {name}"] = device
    return machine


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "kforge-kernels": "source tree"}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
