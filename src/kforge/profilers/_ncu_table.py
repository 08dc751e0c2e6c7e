"""ncu's raw table of counters, read and cut down to what is used: hundreds of columns in, some forty numbers out.

A row is a launch, and the second line gives the units. Launches of one kernel are taken together, weighed by time.
Every share is between 0 and 1.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass

from kforge.profilers._kernel_names import short_name

STALL = "stall/"
"""Metrics whose name carries a reason: the share of the time warps wait for it."""
_STALLED = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
_RUNNING = "selected"
"""The "stall" of a warp that does not wait."""
_MOST_LAUNCHES, _MOST_STALLS = 256, 3
_SECTOR_BYTES = 32
_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_SIZES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
_UNITS = _TIMES | _SIZES
"""Factors to nanoseconds and bytes; everything else is taken as it is."""

Row = dict[str, float]


@dataclass(frozen=True)
class NcuKernel:
    """One kernel, all its launches together."""

    name: str
    launches: int
    numbers: Row
    """time_ns and dram_bytes are sums over the launches, the others means weighed by time."""

    @property
    def time_ns(self) -> float:
        return self.numbers.get("time_ns", 0.0)


def kernels(text: str) -> list[NcuKernel]:
    """The kernels of a table, the costliest first; ValueError if there is no table."""
    together: dict[str, list[Row]] = {}
    for name, row in _launches(text):
        together.setdefault(short_name(name), []).append(_numbers(row))
    merged = [NcuKernel(name, len(rows), _merge(rows)) for name, rows in together.items()]
    return sorted(merged, key=lambda kernel: (-kernel.time_ns, kernel.name))


def _launches(text: str) -> list[tuple[str, Row]]:
    """(Kernel's name, counter -> number) for each launch, in base units."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise ValueError("no table of counters")
    rows = csv.reader(line for line in lines[start:] if line.startswith('"'))
    head = next(rows)
    units = next(rows, [])
    where = head.index("Kernel Name")
    scales = [_UNITS.get(unit.partition("/")[0], 1.0) for unit in units]
    launches: list[tuple[str, Row]] = []
    for row in rows:
        if len(row) != len(head) or len(units) != len(head) or len(launches) >= _MOST_LAUNCHES:
            break
        read = ((name, _number(value), scale) for name, value, scale in zip(head, row, scales, strict=True))
        launches.append((row[where], {name: value * scale for name, value, scale in read if value is not None}))
    return launches


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _merge(rows: list[Row]) -> Row:
    total = sum(row.get("time_ns", 0.0) for row in rows)
    merged: Row = {}
    for name in dict.fromkeys(key for row in rows for key in row):
        if name in ("time_ns", "dram_bytes"):
            merged[name] = sum(row.get(name, 0.0) for row in rows)
        elif name.startswith(STALL):
            merged[name] = sum(row.get(name, 0.0) * row.get("time_ns", 0.0) for row in rows) / max(total, 1.0)
        else:
            having = [row for row in rows if name in row]
            weight = sum(row.get("time_ns", 0.0) for row in having)
            merged[name] = (
                sum(row[name] * row.get("time_ns", 0.0) for row in having) / weight if weight else having[0][name]
            )
    return merged


# -- one launch --------------------------------------------------------------------------------------------------------


_PLAIN = {
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block_allocated",
    "block_size": "launch__block_size",
    "grid_size": "launch__grid_size",
    "waves": "launch__waves_per_multiprocessor",
    "blocks_by_registers": "launch__occupancy_limit_registers",
    "blocks_by_shared": "launch__occupancy_limit_shared_mem",
    "blocks_by_warps": "launch__occupancy_limit_warps",
    "blocks_by_barriers": "launch__occupancy_limit_barriers",
    "blocks_by_blocks": "launch__occupancy_limit_blocks",
    "threads_active": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
}
_PERCENT = {
    "sm_share": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_share": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_share": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_share": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1_share": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "shared_share": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "issue_share": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_limit": "sm__maximum_warps_per_active_cycle_pct",
    "fma_share": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "alu_share": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "xu_share": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "lsu_share": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "fp64_share": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "half_share": "sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_active",
    "l1_hits": "l1tex__t_sector_hit_rate.pct",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "atomic_unit_share": "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "atomic_hottest_share": "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
}
_TENSOR = (
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
"""Columns, of which the first that is there counts: the later ones include instructions that only borrow the tensor
cores' path.
"""
_L1 = "l1tex__t_{what}_pipe_lsu_mem_{space}_op_{how}.sum"
_TIME, _READ, _WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
_USED_BYTES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{how}.ratio"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"

COUNTERS = (
    *(_TIME, _READ, _WRITTEN, *_PLAIN.values(), *_PERCENT.values(), *_TENSOR),
    *(
        _L1.format(what=what, space=space, how=how)
        for what in ("sectors", "requests")
        for space in ("global", "local")
        for how in ("ld", "st", "atom", "red")
    ),
    *(_USED_BYTES.format(how=how) for how in ("ld", "st")),
    *(_CONFLICTS, _WAVEFRONTS, _LOAD_WAVEFRONTS),
    f"regex:{_STALLED[0]}.*{_STALLED[1].removesuffix('.ratio')}",
)
"""All that is read of a table, as the tool is asked for it; what a device does not have is left out of the table."""


def _numbers(row: Row) -> Row:
    """What is used of one launch; what the table lacks is left out."""
    numbers: Row = {}
    numbers["time_ns"] = row.get(_TIME, 0.0)
    numbers["dram_bytes"] = row.get(_READ, 0.0) + row.get(_WRITTEN, 0.0)
    numbers |= {name: row[column] for name, column in _PLAIN.items() if column in row}
    numbers |= {name: min(1.0, row[column] / 100) for name, column in _PERCENT.items() if column in row}
    tensor = next((row[column] for column in _TENSOR if column in row), None)
    if tensor is not None:
        numbers["tensor_share"] = min(1.0, tensor / 100)
    for part in (_global_memory, _shared_memory, _stalls):
        numbers |= part(row)
    return numbers


def _global_memory(row: Row) -> Row:
    """How global and local memory are used, as the first-level cache sees it."""

    def sectors(space: str, *how: str) -> float:
        return sum(row.get(_L1.format(what="sectors", space=space, how=each), 0.0) for each in how)

    def requests(space: str, *how: str) -> float:
        return sum(row.get(_L1.format(what="requests", space=space, how=each), 0.0) for each in how)

    numbers: Row = {}
    reached, spilled = sectors("global", "ld", "st"), sectors("local", "ld", "st")
    if reached + spilled > 0:
        numbers["local_share"] = spilled / (reached + spilled)
    for name, how in (("load", "ld"), ("store", "st")):
        request_count, got = requests("global", how), sectors("global", how)
        if request_count > 0:
            numbers[f"{name}_sectors"] = got / request_count
            numbers[f"{name}_weight"] = got / (reached + spilled) if reached + spilled else 0.0
            numbers[f"{name}_use"] = _use(row, how, got / request_count)
    atomics = requests("global", "atom", "red")
    every = atomics + requests("global", "ld", "st")
    if every > 0:
        numbers["atomic_share"] = atomics / every
    return numbers


def _use(row: Row, how: str, sectors_each: float) -> float:
    """The share of the bytes of each 32-byte sector that a warp asks for; at worst a guess from the sectors alone."""
    used = row.get(_USED_BYTES.format(how=how), 0.0)
    if used > 0:
        return min(1.0, used / _SECTOR_BYTES)
    # A warp's widest orderly access is 16 bytes a thread: 16 sectors.
    return min(1.0, 16 / sectors_each) if sectors_each else 1.0


def _shared_memory(row: Row) -> Row:
    conflicts = row.get(_CONFLICTS, 0.0)
    wavefronts = row.get(_WAVEFRONTS, 0.0)
    if wavefronts <= 0:
        return {}
    loads = row.get(_LOAD_WAVEFRONTS, 0.0)
    request_count = row.get(_L1.format(what="requests", space="global", how="ld"), 0.0)
    numbers = {"conflict_share": min(1.0, conflicts / wavefronts)}
    if request_count > 0:
        numbers["shared_loads_each"] = max(0.0, loads - conflicts) / request_count
    return numbers


def _stalls(row: Row) -> Row:
    """The reasons warps wait for, as shares of all waiting: the largest."""
    before, after = _STALLED
    waits = {
        name.removeprefix(before).removesuffix(after): value
        for name, value in row.items()
        if name.startswith(before) and name.endswith(after)
    }
    waits.pop(_RUNNING, None)
    total = math.fsum(waits.values())
    top = sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:_MOST_STALLS]
    return {STALL + name: value / total for name, value in top if total > 0 and value / total >= 0.05}
