// Running sums and products. Several rows at once: the additions of one row wait for each other, those of eight do not.
template <typename T, typename Sum, bool product>
void scan(const T* from, T* to, int64_t outer, int64_t length, int64_t inner) {
    constexpr int64_t group = 8;
    const int64_t rows = outer * inner, groups = (rows + group - 1) / group;
    #pragma omp parallel for
    for (int64_t g = 0; g < groups; ++g) {
        const int64_t count = std::min(group, rows - g * group);
        int64_t start[group];
        Sum sum[group];
        for (int64_t i = 0; i < group; ++i) {
            const int64_t row = g * group + std::min(i, count - 1);
            start[i] = row / inner * length * inner + row % inner;
            sum[i] = product ? Sum(1) : Sum(0);
        }
        for (int64_t p = 0; p < length; ++p) {
            #pragma GCC unroll 8
            for (int64_t i = 0; i < group; ++i) {
                const int64_t place = start[i] + p * inner;
                const Sum value = static_cast<Sum>(from[place]);
                sum[i] = product ? sum[i] * value : sum[i] + value;
                to[place] = static_cast<T>(sum[i]);
            }
        }
    }
}
