# style: attention in three launches, scores kept in a scratch tensor
# features: attention, multiple kernels, 3D dispatch, simd reductions, float scale argument

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

// scores[b, i, j] = scale * dot(q[b, i], k[b, j])
kernel void qk(device const float* q [[buffer(0)]],
               device const float* k [[buffer(1)]],
               device float* scores [[buffer(2)]],
               constant uint& seq [[buffer(3)]],
               constant uint& dim [[buffer(4)]],
               constant float& scale [[buffer(5)]],
               uint3 gid [[thread_position_in_grid]])
{
    if (gid.x >= seq || gid.y >= seq) return;
    device const float* qi = q + (gid.z * seq + gid.y) * dim;
    device const float* kj = k + (gid.z * seq + gid.x) * dim;
    float acc = 0.0f;
    for (uint d = 0; d < dim; d++) acc += qi[d] * kj[d];
    scores[(gid.z * seq + gid.y) * seq + gid.x] = acc * scale;
}

// in place, one SIMD-group per row
kernel void softmax_inplace(device float* scores [[buffer(0)]],
                            constant uint& seq [[buffer(1)]],
                            uint row [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]])
{
    device float* s = scores + row * seq;
    float m = -INFINITY;
    for (uint j = lane; j < seq; j += 32) m = max(m, s[j]);
    m = simd_max(m);
    float total = 0.0f;
    for (uint j = lane; j < seq; j += 32) {
        float e = exp(s[j] - m);
        s[j] = e;
        total += e;
    }
    total = simd_sum(total);
    for (uint j = lane; j < seq; j += 32) s[j] /= total;
}

kernel void pv(device const float* p [[buffer(0)]],
               device const float* v [[buffer(1)]],
               device float* out [[buffer(2)]],
               constant uint& seq [[buffer(3)]],
               constant uint& dim [[buffer(4)]],
               uint3 gid [[thread_position_in_grid]])
{
    if (gid.x >= dim || gid.y >= seq) return;
    device const float* pi = p + (gid.z * seq + gid.y) * seq;
    device const float* vb = v + gid.z * seq * dim + gid.x;
    float acc = 0.0f;
    for (uint j = 0; j < seq; j++) acc += pi[j] * vb[j * dim];
    out[(gid.z * seq + gid.y) * dim + gid.x] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, seq, dim = q.shape
        scores = torch.empty(batch, seq, seq, device=q.device)
        out = torch.empty_like(q)
        library.qk(q, k, scores, seq, dim, dim**-0.5, threads=(seq, seq, batch), group_size=(16, 16, 1))
        library.softmax_inplace(scores, seq, threads=batch * seq * 32, group_size=32)
        library.pv(scores, v, out, seq, dim, threads=(dim, seq, batch), group_size=(32, 8, 1))
        return out


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(3, 41, 24) for _ in range(3)]


def get_init_inputs():
    return []
