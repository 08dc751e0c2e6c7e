# style: early decision for a whole row by a vote
# features: simd_any, simd_all, isfinite, boolean accumulation, divergent branch

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void scrub_rows(device const float* x [[buffer(0)]],
                       device float* y [[buffer(1)]],
                       constant uint& rows [[buffer(2)]],
                       constant uint& cols [[buffer(3)]],
                       uint gid [[thread_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]])
{
    uint row = gid / 32;
    if (row >= rows) return;

    bool bad = false;
    bool small = true;
    for (uint c = lane; c < cols; c += 32) {
        float v = x[row * cols + c];
        bad = bad || !isfinite(v);
        small = small && fabs(v) < 2.0f;
    }

    if (simd_any(bad)) {
        // a row with a bad value becomes zero
        for (uint c = lane; c < cols; c += 32) y[row * cols + c] = 0.0f;
    } else if (simd_all(small)) {
        for (uint c = lane; c < cols; c += 32) y[row * cols + c] = x[row * cols + c];
    } else {
        for (uint c = lane; c < cols; c += 32) y[row * cols + c] = x[row * cols + c] * 0.5f;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        library.scrub_rows(x, y, rows, cols, threads=(rows * 32 + 127) // 128 * 128, group_size=128)
        return y


class Model(nn.Module):
    def forward(self, x):
        small = (x.abs() < 2).all(1, keepdim=True)
        scaled = torch.where(small, x, x * 0.5)
        return torch.where(torch.isfinite(x).all(1, keepdim=True), scaled, torch.zeros_like(x))


def get_inputs():
    x = torch.randn(30, 45)
    x[::3] = x[::3].clamp(-1.5, 1.5)
    x[1::6, 7] = float("inf")
    return [x]


def get_init_inputs():
    return []
