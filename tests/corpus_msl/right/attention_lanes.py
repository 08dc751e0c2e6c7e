# style: one SIMD-group per query, the head dimension spread over the lanes
# features: online softmax attention, simd_sum, float2 accumulator, grouped heads

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

struct Sizes { long q_heads; long kv_heads; long q_len; long kv_len; };

kernel void gqa_decode(const device float2* q [[buffer(0)]],
                       const device float2* k [[buffer(1)]],
                       const device float2* v [[buffer(2)]],
                       device float2* o [[buffer(3)]],
                       constant Sizes& sizes [[buffer(4)]],
                       constant float& scale [[buffer(5)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       ushort lane [[thread_index_in_simdgroup]])
{
    // head dim 64 = 32 lanes x 2
    const long head = tg.y, batch = tg.z, i = tg.x;
    const long kv_head = head / (sizes.q_heads / sizes.kv_heads);
    const long qo = ((batch * sizes.q_heads + head) * sizes.q_len + i) * 32 + lane;
    const device float2* kp = k + (batch * sizes.kv_heads + kv_head) * sizes.kv_len * 32 + lane;
    const device float2* vp = v + (batch * sizes.kv_heads + kv_head) * sizes.kv_len * 32 + lane;

    const float2 qv = q[qo] * scale;
    float2 acc = float2(0);
    float running_max = -INFINITY, running_sum = 0;

    for (long j = 0; j < sizes.kv_len; ++j) {
        const float score = simd_sum(dot(qv, kp[j * 32]));
        const float new_max = fmax(running_max, score);
        const float factor = fast::exp(running_max - new_max);
        const float e = fast::exp(score - new_max);
        running_max = new_max;
        running_sum = running_sum * factor + e;
        acc = acc * factor + e * vp[j * 32];
    }
    o[qo] = acc / running_sum;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, q_heads, q_len, _ = q.shape
        kv_heads, kv_len = k.shape[1], k.shape[2]
        out = torch.empty_like(q)
        library.gqa_decode(
            q,
            k,
            v,
            out,
            [q_heads, kv_heads, q_len, kv_len],
            0.125,
            threads=(q_len * 32, q_heads, batch),
            group_size=(32, 1, 1),
        )
        return out


class Model(nn.Module):
    def forward(self, q, k, v):
        repeat = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(repeat, dim=1)
        v = v.repeat_interleave(repeat, dim=1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(2, 4, 7, 64), torch.randn(2, 2, 33, 64), torch.randn(2, 2, 33, 64)]


def get_init_inputs():
    return []
