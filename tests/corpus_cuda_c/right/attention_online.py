# style: one warp per query, head dimension over the lanes, online softmax
# features: attention, __shfl_xor_sync, float2, __expf, 2D grid

import ctypes

import torch
import torch.nn as nn
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = r"""
extern "C" __global__ void attention(const float2* q, const float2* k, const float2* v, float2* out,
                                     int seq, float scale) {
    const int lane = threadIdx.x;
    const long long head = (long long)blockIdx.y * seq * 32;
    const long long mine = head + blockIdx.x * 32 + lane;
    float2 query = q[mine];
    float2 acc = make_float2(0.0f, 0.0f);
    float best = -1e30f, total = 0.0f;
    for (int j = 0; j < seq; ++j) {
        float2 key = k[head + j * 32 + lane];
        float score = query.x * key.x + query.y * key.y;
        for (int offset = 16; offset > 0; offset >>= 1) score += __shfl_xor_sync(0xffffffff, score, offset);
        score *= scale;
        float next = fmaxf(best, score);
        float shrink = __expf(best - next), weight = __expf(score - next);
        float2 value = v[head + j * 32 + lane];
        total = total * shrink + weight;
        acc.x = acc.x * shrink + weight * value.x;
        acc.y = acc.y * shrink + weight * value.y;
        best = next;
    }
    out[mine] = make_float2(acc.x / total, acc.y / total);
}
"""

device = Device(torch.cuda.current_device())
device.set_current()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("attention")


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, seq, dim = q.shape
        out = torch.empty_like(q)
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        pointers = [tensor.data_ptr() for tensor in (q, k, v, out)]
        config = LaunchConfig(grid=(seq, batch * heads), block=32)
        launch(stream, config, kernel, *pointers, ctypes.c_int(seq), ctypes.c_float(dim**-0.5))
        return out


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(2, 3, 21, 64) for _ in range(3)]


def get_init_inputs():
    return []
