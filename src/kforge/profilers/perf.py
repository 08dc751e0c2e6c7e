"""Linux perf: hardware counters of a process, read from outside the sandbox."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

from kforge.profilers.base import NothingSeen, Profiler, ProfilingContext
from kforge.types import Profile

_ATTACH_SECONDS = 0.1
_SECONDS = 0.2
_PATIENCE = 10.0


class Perf(Profiler):
    name = "perf"
    what = "hardware counters on Linux"
    probe_file = "_calls_probe.py"
    events: tuple[str, ...] = ("instructions", "cycles", "cache-references", "cache-misses", "branch-misses")

    def unavailable_reason(self) -> str:
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

    def collect(self, context: ProfilingContext) -> Profile:
        # The first calls start the program's threads: perf follows those it finds, and their children.
        context.ask({"seconds": 0.0})
        command = ["perf", "stat", "-x", ",", "-e", ",".join(self.events), "-p", str(context.process_id)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                time.sleep(_ATTACH_SECONDS)
                calls = int(context.ask({"seconds": _SECONDS})["calls"])
                process.send_signal(signal.SIGINT)
                _, output = process.communicate(timeout=_PATIENCE)
            finally:
                process.kill()
        counts = read(output)
        if not counts or calls < 1:
            raise NothingSeen(f"perf counted nothing: {output.strip()[:200]}")
        return self._profile(counts, calls)

    def _profile(self, counts: dict[str, float], calls: int) -> Profile:
        metrics = {name.replace("-", "_"): count / calls for name, count in counts.items()}
        lines = [
            f"per call, over {calls} calls:",
            *(f"{count / calls:>16,.0f} {name}" for name, count in counts.items()),
        ]
        if counts.get("cycles") and "instructions" in counts:
            metrics["instructions_per_cycle"] = counts["instructions"] / counts["cycles"]
            lines.append(f"{metrics['instructions_per_cycle']:>16.2f} instructions per cycle")
        return Profile(self.name, metrics, "\n".join(lines))


def read(output: str) -> dict[str, float]:
    """Event -> count, from perf's comma-separated lines; what was not counted is left out."""
    counts = {}
    for line in output.splitlines():
        fields = line.split(",")
        if len(fields) > 2:
            try:
                counts[fields[2].partition(":")[0]] = float(fields[0])
            except ValueError:
                # "<not counted>", "<not supported>".
                continue
    return counts


PLUGIN = Perf()
