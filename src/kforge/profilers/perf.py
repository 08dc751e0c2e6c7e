"""Linux perf: hardware counters of a process."""

from __future__ import annotations

import shutil
import subprocess
import sys

from kforge.profilers.face import Profiler


class Perf(Profiler):
    name = "perf"
    what = "hardware counters on Linux"

    def absent_because(self) -> str:
        if sys.platform != "linux":
            return "needs Linux"
        if shutil.which("perf") is None:
            return "perf is not installed (Debian and Ubuntu: apt-get install linux-perf)"
        done = subprocess.run(
            ["perf", "stat", "-e", "instructions", "true"], capture_output=True, text=True, check=False
        )
        if done.returncode or "<not supported>" in done.stderr:
            return "this machine gives no hardware counters (sysctl kernel.perf_event_paranoid, or a virtual machine)"
        return ""


PLUGIN = Perf()
