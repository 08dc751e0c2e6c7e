# style: geometry style, one point per thread
# features: packed_float3, dot, rsqrt, swizzles

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void normalize_points(device const packed_float3* points [[buffer(0)]],
                             device packed_float3* out [[buffer(1)]],
                             constant float& eps [[buffer(2)]],
                             uint i [[thread_position_in_grid]]) {
    float3 p = float3(points[i]);
    float inv = rsqrt(max(dot(p, p), eps));
    float3 q = p * inv;
    // swap x and z on the way out
    out[i] = packed_float3(q.zyx);
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, points):
        points = points.contiguous()
        out = torch.empty_like(points)
        library.normalize_points(points, out, 1e-12, threads=points.shape[0], group_size=128)
        return out


class Model(nn.Module):
    def forward(self, points):
        scale = torch.rsqrt((points * points).sum(-1, keepdim=True).clamp_min(1e-12))
        return (points * scale).flip(-1)


def get_inputs():
    return [torch.randn(1501, 3)]


def get_init_inputs():
    return []
