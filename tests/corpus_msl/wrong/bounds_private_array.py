# style: top values kept in a private array, one index too far
# features: private array, insertion
# bug: out-of-bounds
# caught: checked
# line: best[j + 1] = best[j];

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void top4_sum(device const float* x [[buffer(0)]],
                     device float* out [[buffer(1)]],
                     constant int& cols [[buffer(2)]],
                     uint row [[thread_position_in_grid]])
{
    float best[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (int c = 0; c < cols; ++c) {
        float v = x[int(row) * cols + c];
        int place = 4;
        while (place > 0 && v > best[place - 1]) --place;
        if (place < 4) {
            for (int j = 3; j >= place; --j) {
                best[j + 1] = best[j];
            }
            best[place] = v;
        }
    }
    out[row] = best[0] + best[1] + best[2] + best[3];
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device="mps")
        library.top4_sum(x, out, cols, threads=rows, group_size=32)
        return out


class Model(nn.Module):
    def forward(self, x):
        return x.topk(4, dim=1).values.sum(1)


def get_inputs():
    return [torch.randn(70, 40)]


def get_init_inputs():
    return []
