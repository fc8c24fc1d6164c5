// The hot loops of the online kernel learners: everything that is done once a sample and once a support vector.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// Keys are written in groups of so many.
constexpr std::size_t kKeyPadding = 16;

// Which of the opposite support vectors a sample is to be set apart from. The arrays can be read, and `losses`
// written, up to the next multiple of 8.
struct ViolatorQuery {
    const double* scores;        // g_i, unscaled
    const double* similarities;  // k(x, s_i)
    std::size_t n;
    double base, slope;     // loss_i = base + slope * g_i
    std::size_t most;       // how many may be taken
    double* losses;         // out: loss of each of the n, also where it is not positive
    std::int64_t* keys;     // room for n, rounded up to a multiple of kKeyPadding
    std::uint32_t* chosen;  // out: positions taken, ascending; room for n
};

struct OnlineLoops {
    // out[j] = values[index[j]]
    void (*gather)(const double* values, const std::uint32_t* index, double* out, std::size_t n);
    // Takes every i with loss_i > 0, or, if those are more than `most`, the `most` of them with the largest
    // similarity; of equals the lower positions. Returns how many.
    std::size_t (*violators)(const ViolatorQuery& query);
    // target[j] += sum over r of factors[r] * rows[r][j]. Numbers up to the next multiple of 8 are added as well.
    void (*add_rows)(const double* const* rows, const double* factors, std::size_t n_rows, double* target,
                     std::size_t n);
    // sum of a[i] * b[i] and of c[i] * d[i]. Numbers up to the next multiple of 8 are counted as well: zeros in a, c.
    double (*dot_sides)(const double* a, const double* b, std::size_t n, const double* c, const double* d,
                        std::size_t m);
    // to[j * ld + c] = from[c * ld + j] for c < 8 and j < n, a multiple of 8.
    void (*transpose)(const double* from, double* to, std::size_t ld, std::size_t n);
    // The position of the largest value, the first of equals; n > 0.
    std::size_t (*argmax)(const double* values, std::size_t n);
};

}  // namespace steelyard
