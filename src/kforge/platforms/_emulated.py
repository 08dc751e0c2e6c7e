"""What platforms have in common whose hardware is not here: programs are verified on the emulator, and never timed."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from pathlib import Path

from kforge.cache_folder import cache_folder
from kforge.emulation import kernel_launch, native_build
from kforge.platforms._emulated_runtime import EmulatedRuntime
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

    stand_in = ""
    """The module in place of the vendor's."""

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
        importlib.import_module(self.stand_in).install()

    def launched(self) -> list[str]:
        return kernel_launch.take_launched()

    def emulator(self) -> EmulatedRuntime:
        # Imports torch, which the command line's fast path does without.
        from kforge.platforms._torch_emulator import TorchEmulator

        return TorchEmulator(self.stand_in, self.hardware().device)


@functools.cache
def _runtime() -> Path:
    """The emulator's runtime: the one this process was given, or one kept for all."""
    given = os.environ.get(native_build.RUNTIME_VARIABLE, "")
    return Path(given) if given else native_build.build_runtime(cache_folder() / "emulation")
