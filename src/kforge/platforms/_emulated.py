"""What platforms have in common whose hardware is not here: programs are verified on the emulator, and never timed."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kforge.cache_folder import cache_folder
from kforge.emulation import kernel_launch, native_build
from kforge.platforms.base import Platform

_TOOLS = ("g++", "clang++", "ld", "as", "addr2line")


class Emulated(Platform):
    emulated = True
    can_time = False
    device = "cpu"
    device_class = "emulator"
    baselines = ("eager",)
    address_space_limited = False
    notes_launches = True

    emulator = ""
    """The module that stands in for the vendor's."""

    def unavailable_reason(self) -> str:
        try:
            native_build.compiler()
        except native_build.NoCompiler as error:
            return f"its hardware is not here, and for its emulator there is {error}"
        return ""

    def compilers(self) -> dict[str, str]:
        return {"emulator": "KForge's own"}

    def folders(self) -> tuple[str, ...]:
        paths = [os.path.realpath(path) for path in map(shutil.which, _TOOLS) if path]
        homes = {os.path.dirname(os.path.dirname(path)) for path in paths if not path.startswith("/usr/")} - {"/"}
        return (str(_runtime().parent), *sorted(homes))

    def environment(self, number: int = 0) -> dict[str, str]:
        return {native_build.RUNTIME_VARIABLE: str(_runtime())}

    def enter_runner(self) -> None:
        self._module().install()

    def launched(self) -> list[str]:
        return kernel_launch.take_launched()

    def surroundings(self) -> AbstractContextManager[Any]:
        return self._module().surroundings()  # type: ignore[no-any-return]

    def bring(self, tensors: list[Any]) -> None:
        """These are on the emulated device from now on."""
        self._part("storage_marks").mark_on_device(tensors)

    def where(self, tensor: Any) -> str:
        """The device a tensor is on."""
        return f"{self.hardware().device}:0" if self._part("storage_marks").is_on_device(tensor) else str(tensor.device)

    def set_checked(self, yes: bool) -> None:
        self._module().set_checked(yes)

    def unchecked_launches(self) -> int:
        """Launches that were not looked at closely since `set_checked`."""
        return int(self._part("launch_trace").unchecked_launches())

    def follow(self, tensors: list[Any]) -> None:
        """A call begins that works on these."""
        self._part("launch_trace").begin_dataflow_trace(tensors)

    def followed(self, tensors: list[Any]) -> str:
        """It gave these: why the program's kernels have no part in them; empty if they have."""
        return str(self._part("launch_trace").end_dataflow_trace(tensors))

    def _module(self) -> Any:
        """Imports torch, which the command line's fast path does without."""
        return importlib.import_module(self.emulator)

    def _part(self, name: str) -> Any:
        return importlib.import_module(f"kforge.emulation.{name}")


@functools.cache
def _runtime() -> Path:
    """The emulator's runtime: the one this process was given, or one kept for all."""
    given = os.environ.get(native_build.RUNTIME_VARIABLE, "")
    return Path(given) if given else native_build.build_runtime(cache_folder() / "emulation")
