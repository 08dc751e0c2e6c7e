"""torch.profiler: operators and their time, on any device torch runs on."""

from __future__ import annotations

import importlib.util

from kforge.profilers.face import Profiler


class TorchProfiler(Profiler):
    name = "torch_profiler"
    what = "torch operators and their time"

    def absent_because(self) -> str:
        return "" if importlib.util.find_spec("torch") else "torch is not installed"


PLUGIN = TorchProfiler()
