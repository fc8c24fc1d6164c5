// Products of rows with normals: vectorized over features for one plane, over planes for several planes.
#pragma once

#include "simd/loops_score.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kScoreGroup = 3;

STEELYARD_ALWAYS_INLINE static inline VecD load_doubles(const double* p) { return load(p); }
STEELYARD_ALWAYS_INLINE static inline VecD load_doubles(const float* p) {
    typedef float Half STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES / 2);
    Half half;
    std::memcpy(&half, p, sizeof half);
    return STEELYARD_CONVERT(half, VecD);
}

// Products of rows that have fewer features than a vector has lanes.
template <class T>
static void one_plane_narrow(const T* X, size_t n, size_t d, const double* normal, double* out) {
    for (size_t i = 0; i < n; ++i) {
        double sum = 0.0;
        for (size_t k = 0; k < d; ++k) sum += static_cast<double>(X[i * d + k]) * normal[k];
        out[i] = sum;
    }
}

template <size_t Rows, class T>
STEELYARD_ALWAYS_INLINE static inline void score_rows(const T* X, size_t d, const double* normal, VecD last,
                                                      double* out) {
    VecD sum[Rows] = {};
    for (size_t k = 0; k + kDoubles <= d; k += kDoubles) {
        const VecD w = load(normal + k);
        for (size_t r = 0; r < Rows; ++r) sum[r] += load_doubles(X + r * d + k) * w;
    }
    for (size_t r = 0; r < Rows; ++r) {
        sum[r] += load_doubles(X + r * d + d - kDoubles) * last;
        double total = 0.0;
        for (size_t c = 0; c < kDoubles; ++c) total += sum[r][c];
        out[r] = total;
    }
}

template <class T>
static void one_plane(const T* X, size_t n, size_t d, const double* normal, double* out) {
    if (d < kDoubles) return one_plane_narrow(X, n, d, normal, out);
    // The last vector also contains features of the previous vector, which are multiplied by zero.
    const size_t left = d % kDoubles;
    VecD last = {};
    for (size_t c = kDoubles - left; c < kDoubles; ++c) last[c] = normal[d - kDoubles + c];
    size_t i = 0;
    for (; i + 4 <= n; i += 4) score_rows<4>(X + i * d, d, normal, last, out + i);
    for (; i < n; ++i) score_rows<1>(X + i * d, d, normal, last, out + i);
}

template <size_t Rows, size_t Panels, class T>
STEELYARD_ALWAYS_INLINE static inline void score_tile(const T* X, size_t d, const double* panel, double* out,
                                                      size_t stride) {
    VecD tile[Rows][Panels] = {};
    for (size_t k = 0; k < d; ++k) {
        VecD w[Panels];
        for (size_t v = 0; v < Panels; ++v) w[v] = load(panel + (v * d + k) * kDoubles);
        for (size_t r = 0; r < Rows; ++r) {
            const VecD x = broadcast(static_cast<double>(X[r * d + k]));
            for (size_t v = 0; v < Panels; ++v) tile[r][v] += x * w[v];
        }
    }
    for (size_t r = 0; r < Rows; ++r)
        for (size_t v = 0; v < Panels; ++v) store(out + r * stride + v * kDoubles, tile[r][v]);
}

template <size_t Panels, class T>
static void score_panels(const T* X, size_t n, size_t d, const double* panel, double* out, size_t stride) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) score_tile<8, Panels>(X + i * d, d, panel, out + i * stride, stride);
    for (; i < n; ++i) score_tile<1, Panels>(X + i * d, d, panel, out + i * stride, stride);
}

template <class T>
static void many_planes(const T* X, size_t n, size_t d, const double* panel, size_t panels, double* out,
                        size_t stride) {
    switch (panels) {
        case 1: return score_panels<1>(X, n, d, panel, out, stride);
        case 2: return score_panels<2>(X, n, d, panel, out, stride);
        default: return score_panels<kScoreGroup>(X, n, d, panel, out, stride);
    }
}

static double add_intercepts(double* scores, size_t n_rows, const double* intercepts, size_t n) {
    VecD doubts{};  // sum of x - x, which is NaN if a score is infinite or NaN
    for (const double* end = scores + n_rows * n; scores != end; scores += n)
        for (size_t k = 0; k < n; k += kDoubles) {
            const VecD score = load(scores + k) + load(intercepts + k);
            store(scores + k, score);
            doubts += score - score;
        }
    return lane_sum(doubts);
}

static size_t first_highest(const double* scores, size_t n) {
    VecD highest = load(scores), place = first_places(), best = place;
    for (size_t k = kDoubles; k < n; k += kDoubles) {
        const VecD score = load(scores + k);
        place += static_cast<double>(kDoubles);
        best = score > highest ? place : best;
        highest = larger(score, highest);
    }
    const double top = -lane_least(-highest);
    return static_cast<size_t>(lane_least(highest == top ? best : broadcast(static_cast<double>(n))));
}

constexpr ScoreLoops score_loops{kDoubles,         kScoreGroup,         one_plane<double>,
                                 one_plane<float>, many_planes<double>, many_planes<float>,
                                 add_intercepts,   first_highest};

}  // namespace steelyard::STEELYARD_LEVEL
