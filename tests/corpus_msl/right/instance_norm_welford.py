# style: Welford's running moments, merged across lanes with shuffles
# features: instance norm, Welford, simd_shuffle_down, simd_broadcast, threads_per_simdgroup

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

struct Moments {
    float mean;
    float m2;
    float count;
};

Moments merge(Moments a, Moments b) {
    float n = a.count + b.count;
    if (n == 0.0f) return a;
    float delta = b.mean - a.mean;
    Moments r;
    r.mean = a.mean + delta * (b.count / n);
    r.m2 = a.m2 + b.m2 + delta * delta * (a.count * b.count / n);
    r.count = n;
    return r;
}

kernel void instance_norm(device const float* x [[buffer(0)]],
                          device float* y [[buffer(1)]],
                          constant uint& spatial [[buffer(2)]],
                          constant float& eps [[buffer(3)]],
                          uint plane [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint width [[threads_per_simdgroup]])
{
    device const float* src = x + plane * spatial;
    device float* dst = y + plane * spatial;

    Moments m = {0.0f, 0.0f, 0.0f};
    for (uint i = lane; i < spatial; i += width) {
        float v = src[i];
        m.count += 1.0f;
        float delta = v - m.mean;
        m.mean += delta / m.count;
        m.m2 += delta * (v - m.mean);
    }

    for (ushort step = ushort(width / 2); step > 0; step /= 2) {
        Moments other;
        other.mean = simd_shuffle_down(m.mean, step);
        other.m2 = simd_shuffle_down(m.m2, step);
        other.count = simd_shuffle_down(m.count, step);
        if (lane < step) {
            m = merge(m, other);
        }
    }
    float mean = simd_broadcast(m.mean, 0);
    float var = simd_broadcast(m.m2, 0) / float(spatial);
    float inv = rsqrt(var + eps);

    for (uint i = lane; i < spatial; i += width) {
        dst[i] = (src[i] - mean) * inv;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = torch.empty_like(x)
        library.instance_norm(x, y, h * w, 1e-5, threads=n * c * 32, group_size=32)
        return y


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.instance_norm(x, eps=1e-5)


def get_inputs():
    return [torch.randn(3, 7, 12, 17) + 3]


def get_init_inputs():
    return []
