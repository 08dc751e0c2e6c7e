"""What the judge, the runner and the prompts ask of a platform. Everything but `name` has a default."""

from __future__ import annotations

import os
import re
import string
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kforge.platforms import _torch_backend
from kforge.platforms._emulated_runtime import EmulatedRuntime

_clock = time.perf_counter_ns
_launched: list[str] = []
"""Kernels that a runner's program launched."""


class Stopwatch:
    """Times one call. Made in a runner before any program is imported, so that what it uses is torch's own."""

    ahead_ns = 0
    """How long the device is kept from starting, so that the processor can launch a whole call; the judge says."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize

    def time(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """What the call returned, and the nanoseconds until everything it started was done."""
        began = _clock()
        output = call()
        self._synchronize()
        return output, _clock() - began

    def restore(self) -> None:
        """After a call that was not timed: leave the device as the next one expects it."""


@dataclass(frozen=True)
class Dialect:
    """How a text that is written for a platform is known, so that a reader is told what it is. Patterns are of `re`."""

    language: str = ""
    """What a fence around its kernels is called."""
    marks: str = ""
    """A pattern for what only programs for this platform say; empty for one that none is known by."""
    shared_marks: str = ""
    """A pattern for what its programs say and others' may, too: it counts where no platform's `marks` are found."""
    suffixes: tuple[str, ...] = ()
    """Endings of files that hold its kernels, as in `.cu`."""

    def __post_init__(self) -> None:
        for pattern in (self.marks, self.shared_marks):
            re.compile(pattern)


class Platform:
    """Facts and device behaviour of one target. Subclass it in `platforms/<name>/platform.py`."""

    name = ""
    """The folder's name."""
    device_class = "cpu"
    """Which of a problem's sizes apply: cpu, gpu or emulator."""
    device = "cpu"
    """The torch device type candidates and reference run on."""
    can_time = True
    """Whether a time measured here means anything."""
    emulated = False
    """Whether programs run on an emulator: what is right there may still be refused by the real thing's compiler."""
    profilers: tuple[str, ...] = ()
    """What looks at a correct program where nobody says otherwise."""
    baselines: tuple[str, ...] = ("eager", "compile")
    """Ways of running the reference that are timed here."""
    dialect: Dialect = Dialect()
    """How a text that is written for it is known."""
    terms: Mapping[str, str] = MappingProxyType({})
    """Concept -> what it is called here, for who has a program for one platform and writes another. The usual concepts
    are in `agents/concepts.py`."""
    warm_imports: tuple[str, ...] = ()
    """Modules that programs are likely to import: loaded once, before runners are forked."""
    supports_ipc = False
    """Whether processes can map each other's memory of the device, by CUDA's driver; else it goes through the host."""
    records_kernels = False
    """Whether torch's profiler names every kernel that a call runs on the device, with its time, by CUPTI."""
    notes_launches = False
    """Whether a program's own kernels are what `launched` names, and not the native code its process has loaded."""
    builds_apart = False
    """Whether compilers may work while the device is timed: they use other processors than the device's."""
    address_space_limited = True
    """Whether a process's address space can be bounded: drivers of accelerators reserve far more than they use."""
    flushes_cache = False
    """Whether each timed call finds the device's caches cold."""
    sanitizers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, command before the program): tools that end with status 86 where they found a fault.

    In the command, `{home}` is a folder that the tool may write to, `{python}` the interpreter, and `{package}` the
    folder of KForge's code that a runner sees. A file `uninstrumented` that the tool leaves in `{home}` says that there
    was nothing it could look at.
    """

    def hardware(self) -> Platform:
        """The platform where its hardware is; programs are written for that, wherever they are verified."""
        return self

    def unavailable_reason(self) -> str:
        """Why this platform cannot be used here, with the cure; empty if it can."""
        return ""

    def devices(self) -> tuple[int, ...]:
        """Numbers of the devices there are; each is timed by one judge at a time."""
        return (0,)

    def device_name(self, number: int) -> str:
        """What the judge's own torch calls a device. A runner sees only its own, under the platform's `device`."""
        return self.device

    def identity(self, number: int) -> str:
        """A name for a device that no other on this machine has."""
        return self.device_name(number)

    def busy_because(self, number: int) -> str:
        """What else uses the device, so that times would not be true; empty if nothing does."""
        return ""

    def slowed_because(self, number: int) -> str:
        """What holds the device's clocks down now, beside its own work; empty if nothing does."""
        return ""

    def facts(self, number: int = 0) -> dict[str, str]:
        """The machine, in words: these fill the guide's placeholders and go into the evidence."""
        return {}

    def compilers(self) -> dict[str, str]:
        """Compiler name -> version line, for those that exist here."""
        return {}

    def folders(self) -> tuple[str, ...]:
        """Folders a runner must see, read-only, to build and run a candidate."""
        return ()

    def device_files(self) -> tuple[str, ...]:
        """Device nodes a runner needs."""
        return ()

    def environment(self, number: int = 0) -> dict[str, str]:
        """Variables a runner needs beside the bare ones; PATH is added to."""
        return {}

    def memory_bytes(self, number: int = 0) -> int:
        """Memory of the device that inputs and outputs live in."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def free_bytes(self, number: int = 0) -> int:
        """Memory of the device that no process holds; all of it where that cannot be told."""
        free = _torch_backend.free_bytes(self.device_name(number))
        return self.memory_bytes(number) if free is None else free

    def cached_bytes(self, number: int = 0) -> int:
        """Memory of the device that this process holds and only keeps for later."""
        return _torch_backend.cached_bytes(self.device_name(number))

    def held_bytes(self, number: int, pid: int) -> int:
        """Device memory that a process of this machine holds; 0 where that cannot be told."""
        return 0

    def enter_judge(self, number: int) -> None:
        """Called in the judge before anything runs on the device; PluginAbsent where its torch cannot use it."""

    def select_device(self, number: int) -> None:
        """In the judge: make a device the current one of the calling thread."""
        _torch_backend.select(self.device_name(number))

    def synchronize_device(self, number: int) -> None:
        """In the judge: wait until everything that it launched on a device has finished."""
        _torch_backend.synchronize(self.device_name(number))

    def enter_runner(self) -> None:
        """Called in a runner before any program is imported."""

    def launched(self) -> list[str]:
        """Names of the kernels that were launched since this was last asked, where `notes_launches`."""
        taken = _launched.copy()
        _launched.clear()
        return taken

    @staticmethod
    def noting(launch: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """A function that launches kernels, which from now on notes what it launches; `name` reads its arguments."""

        def noted(*arguments: Any, **options: Any) -> Any:
            _launched.append(name(*arguments, **options))
            return launch(*arguments, **options)

        return noted

    def emulator(self) -> EmulatedRuntime | None:
        """What runs programs in a runner where the device is emulated; None where it is real."""
        return None

    def synchronize(self) -> None:
        """In a runner: wait until everything launched on the device has finished."""
        _torch_backend.synchronize(self.device)

    def empty_cache(self) -> None:
        """Give memory of the device that this process only keeps for later back to it."""
        _torch_backend.empty_cache(self.device)

    def profiled_range(self) -> AbstractContextManager[Any]:
        """What the one call happens inside that a profiler in front of the whole process is to look at."""
        return nullcontext()

    def stopwatch(self) -> Stopwatch:
        """How a call is timed here."""
        return Stopwatch(self.synchronize)

    def peak_bytes(self) -> int:
        """Memory of the current device that this process, a runner or the judge, gained at most since this was last
        asked; 0 where the host's is all there is.
        """
        return 0

    def allocated_bytes(self) -> int | None:
        """In a runner: device memory that tensors hold now; None where the host's is all there is, or nobody counts."""
        return _torch_backend.allocated_bytes(self.device)

    def conditions(self, number: int = 0) -> dict[str, str]:
        """Clocks, temperature and power of an accelerator, as far as they can be read."""
        return {}

    def guide(self) -> str:
        """What a prompt says of this platform, filled in from the machine."""
        text = (self.home() / "guide.md").read_text(encoding="utf-8")
        return string.Template(text).safe_substitute(self.facts())

    def example(self, *kinds: str) -> tuple[str, str]:
        """The single-shot pair: a reference module and the same module on this platform.

        Of the first of these kinds that there is one of; a platform needs no other than the usual one. `half` is in
        float16 or bfloat16.
        """
        folder = self.home() / "example"
        prefixes = [f"{kind}_" for kind in kinds if (folder / f"{kind}_candidate.py").exists()]
        prefix = prefixes[0] if prefixes else ""
        return (
            (folder / f"{prefix}reference.py").read_text(encoding="utf-8"),
            (folder / f"{prefix}candidate.py").read_text(encoding="utf-8"),
        )

    def backward_example(self) -> tuple[str, str] | None:
        """The same pair for a module with its gradients, in files named backward_...; None where there is none."""
        folder = self.home() / "example"
        pair = [folder / "backward_reference.py", folder / "backward_candidate.py"]
        if not all(path.is_file() for path in pair):
            return None
        return pair[0].read_text(encoding="utf-8"), pair[1].read_text(encoding="utf-8")

    def home(self) -> Path:
        """Its folder: everything a runner needs of it is in there."""
        return Path(str(sys.modules[type(self).__module__].__file__)).parent
