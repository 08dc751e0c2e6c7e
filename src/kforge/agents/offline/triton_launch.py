"""How a lifted Triton kernel is launched: block sizes, warps and stages by rule, and the grid they lead to."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.agents.offline.recipe import Unliftable
from kforge.agents.offline.triton_kernel import TritonKernel

_LARGEST = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024, "R0_BLOCK": 65536, "R1_BLOCK": 32768}
"""What Inductor's masks are made for: it leaves one out where every power of two up to this divides the dimension."""
_WIDEST_Y_GRID = 65535
_MANY = 1 << 20
"""Elements from which on there is work for every multiprocessor, whatever the block."""


@dataclass(frozen=True)
class Tuning:
    """Departures from the rule."""

    block: int = 0
    """Blocks twice as large (1), half as large (-1)."""
    warps: int = 0
    """Twice as many warps (1), half as many (-1)."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is called."""

    grid: tuple[int, ...]
    blocks: dict[str, int]
    warps: int
    stages: int = 0
    """How far loads run ahead in a template's loop; 0: as the compiler does it."""

    @property
    def arguments(self) -> str:
        """The arguments in a call's brackets."""
        parts = [f"{name}={size}" for name, size in self.blocks.items()]
        parts.append(f"num_warps={self.warps}")
        parts += [f"num_stages={self.stages}"] if self.stages else []
        return ", ".join(parts)


def launch_of(kernel: TritonKernel, fixed_grid: tuple[int, ...], tuning: Tuning) -> Launch:
    """The launch of a kernel; `fixed_grid` is what the generated code gives where Inductor chose the grid."""
    if kernel.kind == "template":
        warps, stages = kernel.launch
        return Launch(_trim(fixed_grid), {}, warps, stages)
    rule = {"pointwise": _pointwise, "reduction": _reduction, "persistent_reduction": _persistent_reduction}.get(
        kernel.kind
    )
    if rule is None:
        raise Unliftable(f"the graph has a kernel of the kind {kernel.kind}")
    blocks, warps = rule(kernel, tuning)
    unknown = set(kernel.blocks) - set(blocks)
    if unknown:
        raise Unliftable(f"a kernel leaves {', '.join(sorted(unknown))} to its launch")
    blocks = {name: _fit(kernel, name, blocks[name]) for name in kernel.blocks}
    warps = max(1, min(16, warps << tuning.warps if tuning.warps >= 0 else warps >> -tuning.warps))
    return Launch(grid_of(kernel, blocks), blocks, warps)


def grid_of(kernel: TritonKernel, blocks: dict[str, int]) -> tuple[int, ...]:
    """As many programs as cover every dimension, laid out as the kernel reads its program ids."""
    x, y, z = (_programs(kernel, name, blocks) for name in ("x", "y", "z"))
    if kernel.grid == "Grid1D":
        return (x,)
    if kernel.grid == "Grid2D":
        return (x, y)
    if kernel.grid == "Grid3D":
        return (x, y, z)
    if kernel.grid == "Grid2DWithYZOverflow":
        layers = -(-y // _WIDEST_Y_GRID)
        return _trim((x, -(-y // layers), layers), 2)
    raise Unliftable(f"a kernel's grid is a {kernel.grid}")


def _programs(kernel: TritonKernel, dimension: str, blocks: dict[str, int]) -> int:
    return -(-kernel.numels.get(dimension, 1) // blocks.get(f"{dimension.upper()}BLOCK", 1))


def _trim(grid: tuple[int, ...], least: int = 1) -> tuple[int, ...]:
    while len(grid) > least and grid[-1] == 1:
        grid = grid[:-1]
    return grid


def _fit(kernel: TritonKernel, name: str, size: int) -> int:
    """The block, no larger than its dimension needs, and dividing it where the kernel has no mask for it."""
    length = kernel.numels[name.removesuffix("BLOCK").lower()]
    size = max(1, min(size, _LARGEST[name], _power_of_two(length)))
    while name in kernel.unmasked and length % size:
        size //= 2
    return size


def _pointwise(kernel: TritonKernel, tuning: Tuning) -> tuple[dict[str, int], int]:
    total = 1
    for length in kernel.numels.values():
        total *= length
    budget = _shift(1024 if total >= _MANY else 256, tuning.block)
    if len(kernel.numels) == 1:
        return {"XBLOCK": budget}, max(1, min(8, budget // 256))
    # A tile: square, unless a side is shorter than that.
    names = [name for name in ("x", "y", "z") if name in kernel.numels]
    side = 1 << ((budget.bit_length() - 1) // len(names))
    sizes = {name: min(side, _power_of_two(kernel.numels[name])) for name in names}
    for name in names:
        others = 1
        for other in names:
            others *= sizes[other] if other != name else 1
        sizes[name] = max(sizes[name], min(budget // others, _power_of_two(kernel.numels[name])))
    return {f"{name.upper()}BLOCK": size for name, size in sizes.items()}, max(1, min(8, budget // 256))


def _reduction(kernel: TritonKernel, tuning: Tuning) -> tuple[dict[str, int], int]:
    """Rows one by one where they are long and lie together; else several at a time, so that reads are wide."""
    reduced = {name: length for name, length in kernel.numels.items() if name.startswith("r")}
    rows = kernel.numels.get("x", 1)
    long = 1
    for length in reduced.values():
        long *= length
    budget = _shift(2048, tuning.block)
    if kernel.reduction == "INNER" or rows == 1:
        depth = min(_power_of_two(long), budget)
        width = min(_power_of_two(rows), max(1, budget // 4 // depth))
    else:
        width = min(64, _power_of_two(rows))
        depth = min(_power_of_two(long), max(8, budget // 2 // width))
    blocks = {"XBLOCK": width, "YBLOCK": 1}
    names = sorted(reduced)
    if len(names) == 2:
        inner = min(depth, _power_of_two(reduced[names[1]]))
        return {**blocks, "R1_BLOCK": inner, "R0_BLOCK": max(1, depth // inner)}, _warps(width * depth, 512)
    return {**blocks, "R0_BLOCK": depth}, _warps(width * depth, 512)


def _persistent_reduction(kernel: TritonKernel, tuning: Tuning) -> tuple[dict[str, int], int]:
    """Whole rows in registers: short ones several at a time, long ones spread over more warps."""
    long = 1
    for name, length in kernel.numels.items():
        long *= _power_of_two(length) if name.startswith("r") else 1
    budget = _shift(1024, tuning.block)
    width = max(1, min(64, budget // long))
    if kernel.reduction not in ("INNER", ""):
        width = max(width, min(32, 8192 // long, _power_of_two(kernel.numels.get("x", 1))))
    per_warp = 256 if long * width <= 2048 else 512
    return {"XBLOCK": width, "YBLOCK": 1}, _warps(width * long, per_warp)


def _warps(elements: int, per_warp: int) -> int:
    return max(1, min(16, elements // per_warp))


def _shift(size: int, by: int) -> int:
    return size << by if by >= 0 else size >> -by


def _power_of_two(length: int) -> int:
    return 1 << max(0, length - 1).bit_length()
