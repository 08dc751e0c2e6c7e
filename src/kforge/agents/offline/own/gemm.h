// Matrix product. Blocks of A and B are packed into panels as wide as the register tile; threads share blocks of C.
#include <ATen/cpu/vec/vec.h>

template <typename T>
T* scratch(int which, int64_t count) {
    // Kept between calls: fresh pages cost more than the packing.
    static thread_local std::unique_ptr<T[]> memory[2];
    static thread_local int64_t room[2] = {0, 0};
    if (room[which] < count) {
        memory[which].reset(new T[count]);
        room[which] = count;
    }
    return memory[which].get();
}

struct Strides {
    int64_t row, column;
};

template <typename T>
struct Tile {
    using Vec = at::vec::Vectorized<T>;
    static constexpr int64_t width = Vec::size();
    static constexpr int64_t rows = width * sizeof(T) >= 64 ? 12 : 6;
    static constexpr int64_t columns = 2 * width;

    // One tile of C: the sum over `depth` of a column of A times a row of B, both packed.
    static inline void multiply(const T* a, const T* b, int64_t depth, T* out, bool add) {
        Vec sum[rows][2];
        #pragma GCC unroll 16
        for (int64_t i = 0; i < rows; ++i) {
            sum[i][0] = add ? Vec::loadu(out + i * columns) : Vec(T(0));
            sum[i][1] = add ? Vec::loadu(out + i * columns + width) : Vec(T(0));
        }
        for (int64_t p = 0; p < depth; ++p) {
            const Vec left = Vec::loadu(b + p * columns);
            const Vec right = Vec::loadu(b + p * columns + width);
            #pragma GCC unroll 16
            for (int64_t i = 0; i < rows; ++i) {
                const Vec value(a[p * rows + i]);
                sum[i][0] = at::vec::fmadd(value, left, sum[i][0]);
                sum[i][1] = at::vec::fmadd(value, right, sum[i][1]);
            }
        }
        #pragma GCC unroll 16
        for (int64_t i = 0; i < rows; ++i) {
            sum[i][0].store(out + i * columns);
            sum[i][1].store(out + i * columns + width);
        }
    }
};

// Packs `count` lanes (rows of A, or columns of B) into panels of `panel` lanes; what is missing is zero.
template <typename T, typename S>
inline void pack(const S* from, int64_t lane, int64_t step, int64_t count, int64_t depth, int64_t panel, T* to) {
    for (int64_t p = 0; p < depth; ++p) {
        if (lane == 1) {
            for (int64_t i = 0; i < count; ++i) {
                to[i] = static_cast<T>(from[i]);
            }
        } else {
            for (int64_t i = 0; i < count; ++i) {
                to[i] = static_cast<T>(from[i * lane]);
            }
        }
        for (int64_t i = count; i < panel; ++i) {
            to[i] = T(0);
        }
        from += step;
        to += panel;
    }
}

// C[m, n] = A[m, k] B[k, n], plus a bias with strides of its own; `bias` may be null. S is how numbers are stored, T how
// they are computed with.
template <typename T, typename S>
void gemm(const S* a, Strides sa, const S* b, Strides sb, const S* bias, Strides sbias, S* c, Strides sc,
          int64_t m, int64_t n, int64_t k) {
    using Unit = Tile<T>;
    const int64_t high = (m + Unit::rows - 1) / Unit::rows, wide = (n + Unit::columns - 1) / Unit::columns;
    T* packed_a = scratch<T>(0, high * Unit::rows * k);
    T* packed_b = scratch<T>(1, wide * Unit::columns * k);
    // A panel of B, this deep, stays in the first-level cache; the parts are of even depth.
    constexpr int64_t most = 256, tall = 8;
    const int64_t parts = std::max<int64_t>(1, (k + most - 1) / most), deep = std::max<int64_t>(1, (k + parts - 1) / parts);
    const int64_t blocks = (high + tall - 1) / tall;
    #pragma omp parallel
    {
        #pragma omp for nowait
        for (int64_t i = 0; i < high; ++i) {
            const int64_t count = std::min(Unit::rows, m - i * Unit::rows);
            pack(a + i * Unit::rows * sa.row, sa.row, sa.column, count, k, Unit::rows, packed_a + i * Unit::rows * k);
        }
        #pragma omp for
        for (int64_t j = 0; j < wide; ++j) {
            const int64_t count = std::min(Unit::columns, n - j * Unit::columns);
            pack(b + j * Unit::columns * sb.column, sb.column, sb.row, count, k, Unit::columns,
                 packed_b + j * Unit::columns * k);
        }
        alignas(64) T out[tall][Unit::rows * Unit::columns];
        #pragma omp for collapse(2)
        for (int64_t block = 0; block < blocks; ++block) {
            for (int64_t j = 0; j < wide; ++j) {
                const int64_t first = block * tall, last = std::min(high, first + tall);
                for (int64_t p = 0; p < k || p == 0; p += deep) {
                    const int64_t depth = std::min(deep, k - p);
                    const T* panel = packed_b + (j * k + p) * Unit::columns;
                    for (int64_t i = first; i < last; ++i) {
                        Unit::multiply(packed_a + (i * k + p) * Unit::rows, panel, depth, out[i - first], p > 0);
                    }
                }
                for (int64_t i = first; i < last; ++i) {
                    const int64_t rows = std::min(Unit::rows, m - i * Unit::rows);
                    const int64_t columns = std::min(Unit::columns, n - j * Unit::columns);
                    for (int64_t r = 0; r < rows; ++r) {
                        const int64_t y = i * Unit::rows + r, x = j * Unit::columns;
                        const T* row = out[i - first] + r * Unit::columns;
                        S* target = c + y * sc.row + x * sc.column;
                        const S* shift = bias ? bias + y * sbias.row + x * sbias.column : nullptr;
                        for (int64_t q = 0; q < columns; ++q) {
                            const T extra = shift ? static_cast<T>(shift[q * sbias.column]) : T(0);
                            target[q * sc.column] = static_cast<S>(row[q] + extra);
                        }
                    }
                }
            }
        }
    }
}
