"""What the same thing is called on different platforms: for a reader who has a program for one and writes another.

A row is one concept, by platform. A platform that has no word for it is left out of the row; platforms that are not in
the table at all are mapped to nothing.
"""

from __future__ import annotations

from typing import NamedTuple

CONCEPTS: tuple[dict[str, str], ...] = (
    {
        "cuda": 'kernel, `extern "C" __global__ void`, built by NVRTC or `load_inline`',
        "triton": "kernel, a function under `@triton.jit`",
        "metal": "kernel, `kernel void`, built by `torch.mps.compile_shader`",
        "opencl": "kernel, `__kernel void`, built by `pyopencl.Program`",
        "cpu": 'function, `extern "C" void`, built by g++ and loaded by `ctypes`',
    },
    {
        "cuda": "grid, sized in blocks",
        "triton": "grid, sized in programs: `kernel[grid](...)`",
        "metal": "dispatch, sized in threads: `library.kernel(..., threads=..., group_size=...)`",
        "opencl": "NDRange, sized in work-items: global size, then local size",
        "cpu": "outer loop, `#pragma omp parallel for`",
    },
    {
        "cuda": "block, `blockIdx`, `blockDim`",
        "triton": "program, `tl.program_id(axis)`",
        "metal": "threadgroup, `[[threadgroup_position_in_grid]]`, `[[threads_per_threadgroup]]`",
        "opencl": "work-group, `get_group_id(axis)`, `get_local_size(axis)`",
        "cpu": "iteration of the outer loop: a tile that one core handles alone",
    },
    {
        "cuda": "thread, `threadIdx`",
        "triton": "element of a block of values: no code is written for a single one",
        "metal": "thread, `[[thread_position_in_threadgroup]]`",
        "opencl": "work-item, `get_local_id(axis)`",
        "cpu": "iteration of the inner loop: one lane of a vector",
    },
    {
        "cuda": "`blockIdx.x * blockDim.x + threadIdx.x`",
        "triton": "`tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`",
        "metal": "`[[thread_position_in_grid]]`",
        "opencl": "`get_global_id(0)`",
        "cpu": "the loop's variable",
    },
    {
        "cuda": "warp, 32 threads",
        "triton": "warp, left to the compiler: `num_warps`",
        "metal": "SIMD-group, 32 threads",
        "opencl": "sub-group, where the device has them; its size differs between devices",
        "cpu": "vector register, `#pragma omp simd`; 4 to 16 floats",
    },
    {
        "cuda": "`__shfl_down_sync`, `__shfl_xor_sync`, `__shfl_sync`",
        "triton": "`tl.sum`, `tl.max`, `tl.reduce` along an axis",
        "metal": "`simd_shuffle_down`, `simd_shuffle_xor`, `simd_broadcast`; `simd_sum`, `simd_max`",
        "opencl": "`sub_group_reduce_add`, `sub_group_broadcast`; without sub-groups, local memory",
        "cpu": "`#pragma omp simd reduction(+:sum)`",
    },
    {
        "cuda": "shared memory, `__shared__`",
        "triton": "none to declare: a block's values are placed by the compiler",
        "metal": "threadgroup memory, `threadgroup`; 32 KB at most",
        "opencl": "local memory, `__local`",
        "cpu": "small array on the stack, which stays in the core's own cache",
    },
    {
        "cuda": "`__syncthreads()`",
        "triton": "none to write",
        "metal": "`threadgroup_barrier(mem_flags::mem_threadgroup)`",
        "opencl": "`barrier(CLK_LOCAL_MEM_FENCE)`",
        "cpu": "none within a tile; the end of the parallel loop waits for all",
    },
    {
        "cuda": "`__syncwarp()`",
        "metal": "`simdgroup_barrier(mem_flags::mem_threadgroup)`",
        "opencl": "`sub_group_barrier(CLK_LOCAL_MEM_FENCE)`, where the device has sub-groups",
    },
    {
        "cuda": "global memory, `float*`",
        "triton": "pointers, `tl.load` and `tl.store` with a mask",
        "metal": "device memory, `device float*`",
        "opencl": "global memory, `__global float*`",
        "cpu": "memory, `float*`",
    },
    {
        "cuda": "`__constant__`, or an argument by value",
        "triton": "argument; `tl.constexpr` where it is fixed",
        "metal": "`constant` address space: `constant float&`",
        "opencl": "`__constant`, or an argument by value",
        "cpu": "argument by value",
    },
    {
        "cuda": "`float4`, 16 bytes a load",
        "triton": "wide loads, left to the compiler",
        "metal": "`float4`, through `device const float4*`",
        "opencl": "`float4`, `vload4`",
        "cpu": "vectors, left to the compiler in a simple inner loop",
    },
    {
        "cuda": "`atomicAdd(&x, value)`",
        "triton": "`tl.atomic_add(pointer, value)`",
        "metal": "`atomic_fetch_add_explicit(&x, value, memory_order_relaxed)` on `atomic_int`, `atomic_float`",
        "opencl": "`atomic_add(&x, value)` for integers; for floats a loop over `atomic_cmpxchg`",
        "cpu": "`#pragma omp atomic`, or a sum for each thread",
    },
    {
        "cuda": "tensor cores, `wmma`, `mma.sync`",
        "triton": "`tl.dot`",
        "metal": "`simdgroup_matrix`, 8 x 8, `simdgroup_multiply_accumulate`",
        "opencl": "none in the language: tiles in local memory",
        "cpu": "none: tiles in the cache, or the library",
    },
    {
        "cuda": "`expf`, `rsqrtf`, `fmaxf`, `tanhf`",
        "triton": "`tl.exp`, `tl.rsqrt`, `tl.maximum`, `libdevice.tanh`",
        "metal": "`exp`, `rsqrt`, `max`, `precise::tanh`",
        "opencl": "`exp`, `rsqrt`, `fmax`, `tanh`",
        "cpu": "`expf`, `1.0f / sqrtf`, `fmaxf`, `tanhf`",
    },
    {
        "cuda": "`double`",
        "triton": "`tl.float64`",
        "metal": "none: sum in `float`, in pairs or with compensation",
        "opencl": "`double`, where the device has fp64",
        "cpu": "`double`",
    },
)


class ConceptPair(NamedTuple):
    """One concept on two platforms."""

    there: str
    here: str


def between(there: str, here: str) -> tuple[ConceptPair, ...]:
    """What is called otherwise on platform `here` than on platform `there`; empty for a platform not in the table."""
    both = [row for row in CONCEPTS if there in row and here in row]
    return tuple(ConceptPair(row[there], row[here]) for row in both if row[there] != row[here])
