"""The throw-away copy of the code a runner may see: its own rooms, platforms, the emulator, and what they need."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kforge.platforms.base import Platform

_FILES = ("errors.py", "jsonable.py", "registry.py", "cache_folder.py")
_FOLDERS = ("platforms", "emulation")
_WORKER_FILES = (
    "__init__.py",
    "wire.py",
    "arena.py",
    "cuda_driver.py",
    "device_memory.py",
    "floating_dtype.py",
    "gradients.py",
    "held_tensors.py",
    "matrix_precision.py",
    "memory_overlap.py",
    "process_files.py",
    "training_step.py",
    "trees.py",
)
_WORKER_FOLDERS = ("protocol", "runner", "sandbox")


def make_stage(platform: Platform) -> Path:
    """A folder that holds `kforge/` with the runner's code only; the caller removes it.

    A platform that is not KForge's own is put beside those that are: wherever it lies, runners do not see that folder.
    """
    package = Path(__file__).resolve().parents[2]
    stage = Path(tempfile.mkdtemp(prefix="kforge-stage-"))
    target = stage / "kforge"
    target.mkdir()
    (target / "__init__.py").write_text('"""The part of KForge that a runner sees."""\n')
    for name in _FILES:
        shutil.copy(package / name, target / name)
    for name in _FOLDERS:
        shutil.copytree(package / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    home = platform.home().resolve()
    if home.parent != package / "platforms":
        ignored = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.egg-info", "tests")
        shutil.copytree(home, target / "platforms" / platform.name, ignore=ignored)
        (target / "platforms" / platform.name / "__init__.py").touch()
    (target / "worker").mkdir()
    for name in _WORKER_FILES:
        shutil.copy(package / "worker" / name, target / "worker" / name)
    for name in _WORKER_FOLDERS:
        shutil.copytree(
            package / "worker" / name, target / "worker" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for path in [stage, *stage.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return stage
