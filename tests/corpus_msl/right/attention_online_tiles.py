# style: flash attention, one query per thread, keys and values in threadgroup tiles
# features: online softmax attention, private accumulator array, threadgroup tiles, causal mask

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

#define HEAD_DIM 32
#define BLOCK_Q 64
#define BLOCK_K 32

kernel void flash_attention(
    device const float* Q [[buffer(0)]],
    device const float* K [[buffer(1)]],
    device const float* V [[buffer(2)]],
    device float* O       [[buffer(3)]],
    constant uint& seq    [[buffer(4)]],
    constant float& scale [[buffer(5)]],
    uint2 tgpos [[threadgroup_position_in_grid]],
    uint tid    [[thread_index_in_threadgroup]])
{
    threadgroup float Ks[BLOCK_K][HEAD_DIM];
    threadgroup float Vs[BLOCK_K][HEAD_DIM];

    const uint head = tgpos.y;
    const uint qi = tgpos.x * BLOCK_Q + tid;
    const uint base = head * seq * HEAD_DIM;

    float q[HEAD_DIM];
    float acc[HEAD_DIM];
    for (uint d = 0; d < HEAD_DIM; ++d) {
        q[d] = qi < seq ? Q[base + qi * HEAD_DIM + d] * scale : 0.0f;
        acc[d] = 0.0f;
    }

    float m = -INFINITY;
    float l = 0.0f;

    for (uint k0 = 0; k0 < seq; k0 += BLOCK_K) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = tid; i < BLOCK_K * HEAD_DIM; i += BLOCK_Q) {
            const uint r = i / HEAD_DIM;
            const uint d = i % HEAD_DIM;
            const bool valid = k0 + r < seq;
            Ks[r][d] = valid ? K[base + (k0 + r) * HEAD_DIM + d] : 0.0f;
            Vs[r][d] = valid ? V[base + (k0 + r) * HEAD_DIM + d] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);

        for (uint j = 0; j < BLOCK_K; ++j) {
            const uint kj = k0 + j;
            if (kj >= seq || kj > qi) break;
            float s = 0.0f;
            for (uint d = 0; d < HEAD_DIM; ++d) s += q[d] * Ks[j][d];

            const float m_new = max(m, s);
            const float correction = exp(m - m_new);
            const float p = exp(s - m_new);
            l = l * correction + p;
            for (uint d = 0; d < HEAD_DIM; ++d) acc[d] = acc[d] * correction + p * Vs[j][d];
            m = m_new;
        }
    }

    if (qi < seq) {
        const float inv = 1.0f / l;
        for (uint d = 0; d < HEAD_DIM; ++d) O[base + qi * HEAD_DIM + d] = acc[d] * inv;
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, seq, dim = q.shape
        out = torch.empty_like(q)
        blocks = (seq + 63) // 64
        library.flash_attention(q, k, v, out, seq, dim**-0.5, threads=(blocks * 64, batch * heads), group_size=(64, 1))
        return out


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 3, 75, 32) for _ in range(3)]


def get_init_inputs():
    return []
