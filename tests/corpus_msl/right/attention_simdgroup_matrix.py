# style: scores and output by simdgroup matrices, softmax between them in threadgroup memory
# features: simdgroup_multiply, simdgroup_load with transpose, simdgroup_barrier, attention, 8 queries a SIMD-group

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

#define HEAD 16
#define MAX_KEYS 64

// q, k, v: [heads, seq, HEAD], seq a multiple of 8 and at most MAX_KEYS
kernel void attention_tiles(device const float* q [[buffer(0)]],
                            device const float* k [[buffer(1)]],
                            device const float* v [[buffer(2)]],
                            device float* o [[buffer(3)]],
                            constant uint& seq [[buffer(4)]],
                            constant float& scale [[buffer(5)]],
                            uint2 tile [[threadgroup_position_in_grid]],
                            ushort lane [[thread_index_in_simdgroup]])
{
    threadgroup float scores[8 * MAX_KEYS];

    device const float* qh = q + (tile.y * seq + tile.x * 8) * HEAD;
    device const float* kh = k + tile.y * seq * HEAD;
    device const float* vh = v + tile.y * seq * HEAD;
    device float* oh = o + (tile.y * seq + tile.x * 8) * HEAD;

    simdgroup_float8x8 q0, q1;
    simdgroup_load(q0, qh, HEAD);
    simdgroup_load(q1, qh + 8, HEAD);

    for (uint j = 0; j < seq; j += 8) {
        simdgroup_float8x8 kt, s;
        simdgroup_load(kt, kh + j * HEAD, HEAD, 0, true);
        simdgroup_multiply(s, q0, kt);
        simdgroup_load(kt, kh + j * HEAD + 8, HEAD, 0, true);
        simdgroup_multiply_accumulate(s, q1, kt, s);
        simdgroup_store(s, scores + j, MAX_KEYS);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);

    // four lanes share a row
    const ushort row = lane / 4;
    threadgroup float* r = scores + row * MAX_KEYS;
    float m = -INFINITY;
    for (uint j = lane % 4; j < seq; j += 4) m = max(m, r[j] * scale);
    m = max(m, simd_shuffle_xor(m, 1));
    m = max(m, simd_shuffle_xor(m, 2));
    float total = 0.0f;
    for (uint j = lane % 4; j < seq; j += 4) {
        r[j] = exp(r[j] * scale - m);
        total += r[j];
    }
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    for (uint j = lane % 4; j < seq; j += 4) r[j] /= total;
    simdgroup_barrier(mem_flags::mem_threadgroup);

    for (uint d = 0; d < HEAD; d += 8) {
        simdgroup_float8x8 acc = make_filled_simdgroup_matrix<float, 8>(0.0f);
        for (uint j = 0; j < seq; j += 8) {
            simdgroup_float8x8 p, vv;
            simdgroup_load(p, scores + j, MAX_KEYS);
            simdgroup_load(vv, vh + j * HEAD + d, HEAD);
            simdgroup_multiply_accumulate(acc, p, vv, acc);
        }
        simdgroup_store(acc, oh + d, HEAD);
    }
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        heads, seq, dim = q.shape
        out = torch.empty_like(q)
        library.attention_tiles(q, k, v, out, seq, dim**-0.5, threads=(seq // 8 * 32, heads), group_size=(32, 1))
        return out


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(5, 56, 16) for _ in range(3)]


def get_init_inputs():
    return []
