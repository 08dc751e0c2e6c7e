"""torch.profiler: operators and their time, on any device torch runs on."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Any

from kforge.profilers._facts import SHARE
from kforge.profilers._format import percent, size, time
from kforge.profilers.base import Profiler, ProfilingContext
from kforge.types import Profile

_SECONDS = 0.12
_LONGEST_NAME, _LONGEST_SHAPES = 60, 60
_ROWS = 12
_WORTH_A_ROW = 0.01
_ALLOCATING = ("aten::empty", "aten::new_empty")
_ODD = re.compile(r"[^\w:.<>-]+")


class TorchProfiler(Profiler):
    name = "torch_profiler"
    what = "torch operators and their time"
    probe_file = "_operators_probe.py"

    def unavailable_reason(self) -> str:
        return "" if importlib.util.find_spec("torch") else "torch is not installed"

    def collect(self, context: ProfilingContext) -> Profile:
        # Kernels that a library launches on a device are no foreign functions of the program's.
        sees_own_code = not (context.platform.notes_launches or context.platform.records_kernels)
        seen = read(context.ask({"seconds": _SECONDS}), sees_own_code)
        return Profile(self.name, metrics(seen), table(seen))


@dataclass(frozen=True)
class OperatorRow:
    """One operator with one set of input shapes, per call of the program."""

    name: str
    shapes: str
    times: float
    self_ns: float


@dataclass(frozen=True)
class OperatorTimes:
    """What the probe reported, per call of the program."""

    calls: float
    wall_ns: float
    native_share: float
    """Of the time, in foreign functions of the program."""
    profiled_ns: float
    """A call's time under the profiler."""
    profiled_native_ns: float
    """Of that, in foreign functions."""
    library_ns: float
    operator_ns: float
    """In operators that the program registered."""
    operator_calls: float
    allocated_bytes: float
    rows: tuple[OperatorRow, ...]
    sees_own_code: bool = True
    """Whether the program's own code runs in foreign functions, so that what is left is Python and allocation."""

    def shares(self) -> tuple[float, float, float]:
        """Shares of a call's time: its own native code, torch's operators, and the rest (Python, allocation)."""
        library = min(1.0, self.library_ns / self.profiled_ns)
        registered = self.operator_ns / self.profiled_ns
        # With the profiler each operator takes longer; without it the two parts come from different calls.
        own = max(self.native_share, self.profiled_native_ns / self.profiled_ns) + registered
        own = min(own, 1.0 - library)
        return own, library, max(0.0, 1.0 - own - library)


def read(reply: dict[str, Any], sees_own_code: bool = True) -> OperatorTimes:
    """The reply as numbers that make sense; ValueError, KeyError or TypeError if they do not."""
    rows = []
    for name, shapes, times, spent in list(reply["operators"])[:_ROWS]:
        clean = _ODD.sub("_", str(name)[:_LONGEST_NAME])
        rows.append(OperatorRow(clean, _shapes(str(shapes)), _number(times), _number(spent)))
    names = ("calls", "wall_ns", "native_share", "profiled_ns", "profiled_native_ns", "library_ns", "operator_ns")
    values = {name: _number(reply[name]) for name in (*names, "operator_calls", "allocated_bytes")}
    if values["wall_ns"] <= 0 or values["profiled_ns"] <= 0:
        raise ValueError("a call takes no time")
    return OperatorTimes(**values, rows=tuple(rows), sees_own_code=sees_own_code)


def metrics(seen: OperatorTimes) -> dict[str, float]:
    own, library, left = seen.shares()
    numbers = {
        "calls": seen.calls,
        "wall_ns": seen.wall_ns,
        "library_share": library,
        **({"custom_share": own, "overhead_share": left} if seen.sees_own_code else {}),
        "operator_calls": seen.operator_calls,
        "allocated_bytes": seen.allocated_bytes,
    }
    for row in seen.rows:
        key = SHARE + row.name
        numbers[key] = numbers.get(key, 0.0) + min(1.0, row.self_ns / seen.profiled_ns)
    return numbers


def table(seen: OperatorTimes) -> str:
    """The times as a person would read them: shares, since a call under a profiler takes longer than a timed one."""
    rows = [row for row in seen.rows if row.self_ns >= _least_share(row) * seen.profiled_ns]
    what = "operator" if seen.operator_calls == 1 else "operators"
    each = f"a call allocates {size(seen.allocated_bytes)} and runs {seen.operator_calls:.3g} torch {what}"
    lines = [_where_time_goes(seen, bool(rows)), each]
    if rows:
        lines.append(f"in {seen.calls:.0f} profiled calls, each operator itself, per call:")
        lines.append(f"{'share':>6} {'time':>8} {'times':>6}  operator, input shapes")
    for row in rows:
        share = percent(min(1.0, row.self_ns / seen.profiled_ns))
        lines.append(f"{share:>6} {time(row.self_ns):>8} {row.times:>6.3g}  {row.name} {row.shapes}".rstrip())
    return "\n".join(lines)


def _where_time_goes(seen: OperatorTimes, rows: bool) -> str:
    own, library, left = seen.shares()
    if not seen.sees_own_code:
        return (
            f"{percent(library)} of the time is in torch's operators; of the rest it cannot be told here what is in "
            "the program's kernels and what in Python, dispatch and allocation"
        )
    if library < _WORTH_A_ROW and not rows:
        return f"{percent(own)} of the time is in its own native code; the rest is allocation and Python"
    return (
        f"{percent(own)} of the time is in the program's own native code, {percent(library)} in torch's operators, "
        f"{percent(left)} in Python, dispatch and allocation"
    )


def _least_share(row: OperatorRow) -> float:
    """The share from which a row is shown: making room for the result is no news."""
    return 5 * _WORTH_A_ROW if row.name.startswith(_ALLOCATING) else _WORTH_A_ROW


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        raise ValueError("a number that is none")
    return float(value)


def _shapes(text: str) -> str:
    kept = "".join(letter for letter in text if letter in "0123456789[], x")
    return kept if len(kept) <= _LONGEST_SHAPES else kept[: _LONGEST_SHAPES - 1] + "…"


PLUGIN = TorchProfiler()
