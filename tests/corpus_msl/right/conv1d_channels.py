# style: direct convolution, loops over input channels and taps
# features: conv1d, 2D dispatch, list of integers as an array, bounds by comparison

import torch
import torch.nn as nn

SOURCE = r"""
#include <metal_stdlib>
using namespace metal;

kernel void conv1d(device const float* x [[buffer(0)]],
                   device const float* w [[buffer(1)]],
                   device const float* b [[buffer(2)]],
                   device float* y [[buffer(3)]],
                   constant long* p [[buffer(4)]],
                   uint2 gid [[thread_position_in_grid]])
{
    const int C_in = int(p[0]), C_out = int(p[1]), L_in = int(p[2]), L_out = int(p[3]);
    const int taps = int(p[4]), stride = int(p[5]), pad = int(p[6]);

    const int t = int(gid.x);
    const int o = int(gid.y) % C_out;
    const int n = int(gid.y) / C_out;
    if (t >= L_out) return;

    float acc = b[o];
    for (int c = 0; c < C_in; ++c) {
        for (int k = 0; k < taps; ++k) {
            int pos = t * stride + k - pad;
            if (pos < 0 || pos >= L_in) continue;
            acc += x[(n * C_in + c) * L_in + pos] * w[(o * C_in + c) * taps + k];
        }
    }
    y[(n * C_out + o) * L_out + t] = acc;
}
"""

library = torch.mps.compile_shader(SOURCE)


class ModelNew(nn.Module):
    def __init__(self, c_in, c_out, taps):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, taps, stride=2, padding=2)

    def forward(self, x):
        x = x.contiguous()
        n, c_in, length = x.shape
        c_out, _, taps = self.conv.weight.shape
        out_length = (length + 2 * 2 - taps) // 2 + 1
        y = torch.empty(n, c_out, out_length, device="mps")
        parameters = [c_in, c_out, length, out_length, taps, 2, 2]
        library.conv1d(
            x, self.conv.weight, self.conv.bias, y, parameters, threads=(out_length, n * c_out), group_size=(32, 4)
        )
        return y


class Model(nn.Module):
    def __init__(self, c_in, c_out, taps):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, taps, stride=2, padding=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(3, 6, 101)]


def get_init_inputs():
    return [6, 9, 5]
