// Convolution as a matrix product: each image is unrolled into columns, then multiplied by the filters.
struct Convolution {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in_size[3], out_size[3], kernel[3], step[3], padding[3], dilation[3];
    int64_t in_batch, in_channel, in_space[3];
    int64_t out_batch, out_channel, out_point;
    int64_t weight_out, weight_in, weight_space[3];
};

// Row r of `columns` is what filter tap r sees at every output point.
template <typename S>
void unroll(const S* image, S* columns, const Convolution& s) {
    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
    const int64_t points = s.out_size[0] * s.out_size[1] * s.out_size[2];
    #pragma omp parallel for
    for (int64_t r = 0; r < s.in_channels * taps; ++r) {
        const int64_t channel = r / taps, tap = r % taps;
        const int64_t at[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
        S* row = columns + r * points;
        for (int64_t z = 0; z < s.out_size[0]; ++z) {
            const int64_t iz = z * s.step[0] - s.padding[0] + at[0] * s.dilation[0];
            for (int64_t y = 0; y < s.out_size[1]; ++y) {
                const int64_t iy = y * s.step[1] - s.padding[1] + at[1] * s.dilation[1];
                const bool inside = iz >= 0 && iz < s.in_size[0] && iy >= 0 && iy < s.in_size[1];
                const S* line = image + channel * s.in_channel + iz * s.in_space[0] + iy * s.in_space[1];
                for (int64_t x = 0; x < s.out_size[2]; ++x) {
                    const int64_t ix = x * s.step[2] - s.padding[2] + at[2] * s.dilation[2];
                    *row++ = inside && ix >= 0 && ix < s.in_size[2] ? line[ix * s.in_space[2]] : S(0);
                }
            }
        }
    }
}

template <typename T, typename S>
void convolve(const S* x, const S* weight, const S* bias, S* y, const Convolution& s) {
    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
    const int64_t points = s.out_size[0] * s.out_size[1] * s.out_size[2];
    const int64_t depth = s.in_channels * taps;
    static thread_local std::unique_ptr<S[]> memory;
    static thread_local int64_t room = 0;
    const int64_t needed = depth * points + s.groups * s.out_channels * depth;
    if (room < needed) {
        memory.reset(new S[needed]);
        room = needed;
    }
    S* columns = memory.get();
    S* filters = columns + depth * points;
    for (int64_t o = 0; o < s.groups * s.out_channels; ++o) {
        for (int64_t r = 0; r < depth; ++r) {
            const int64_t tap = r % taps;
            filters[o * depth + r] = weight[o * s.weight_out + r / taps * s.weight_in +
                                            tap / (s.kernel[1] * s.kernel[2]) * s.weight_space[0] +
                                            tap / s.kernel[2] % s.kernel[1] * s.weight_space[1] +
                                            tap % s.kernel[2] * s.weight_space[2]];
        }
    }
    for (int64_t n = 0; n < s.batch; ++n) {
        for (int64_t g = 0; g < s.groups; ++g) {
            unroll(x + n * s.in_batch + g * s.in_channels * s.in_channel, columns, s);
            const int64_t first = g * s.out_channels;
            gemm<T, S>(filters + first * depth, {depth, 1}, columns, {points, 1}, bias ? bias + first : nullptr, {1, 0},
                    y + n * s.out_batch + first * s.out_channel, {s.out_channel, s.out_point},
                    s.out_channels, points, depth);
        }
    }
}
