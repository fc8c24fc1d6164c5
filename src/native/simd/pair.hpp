// Loops of SMO steps: each loop visits every sample once, without branches.
#pragma once

#include "simd/loops_pair.hpp"
#include "solver.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr float kPairTiny = 1e-7f;  // smallest curvature assumed, relative to the diagonal

STEELYARD_ALWAYS_INLINE static inline HalfVecF load_half(const float* p) {
    HalfVecF v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

static size_t pair_step(const PairSamples& s, double move, const float* up, const float* down) {
    const VecD width = broadcast(static_cast<double>(kDoubles));
    VecD least = broadcast(kInfinity), least_at = broadcast(static_cast<double>(s.n)), place = first_places();
    size_t i = 0;
    for (; i + kDoubles <= s.n; i += kDoubles, place += width) {
        const VecD e = load(s.e + i) + move * (widened(up + i) - widened(down + i));
        store(s.e + i, e);
        const VecD open = e + load(s.grown + i);
        const MaskD lower = open < least;
        least = lower ? open : least;
        least_at = lower ? place : least_at;
    }
    double best = kInfinity;
    size_t at = s.n;
    for (size_t lane = 0; lane < kDoubles; ++lane)
        if (least[lane] < best) best = least[lane], at = static_cast<size_t>(least_at[lane]);
    for (; i < s.n; ++i) {
        s.e[i] += move * (static_cast<double>(up[i]) - static_cast<double>(down[i]));
        if (s.e[i] + s.grown[i] < best) best = s.e[i] + s.grown[i], at = i;
    }
    return at;
}

typedef std::int32_t HalfMaskF STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES / 2);

// Gains are computed in single precision, which is sufficient for comparing them and three times as fast.
static Partner pair_partner(const PairSamples& s, size_t up, const float* up_row) {
    const double lowest = s.e[up];
    const float own = s.diagonal[up], least_curvature = kPairTiny * (own > 0.0f ? own : 1.0f);
    const VecD none = broadcast(0.0);
    const HalfVecF zero = {}, tiny = least_curvature - zero, width = static_cast<float>(kDoubles) - zero;
    HalfVecF best = zero, best_at = static_cast<float>(s.n) - zero, largest = zero, place;
    for (size_t lane = 0; lane < kDoubles; ++lane) place[lane] = static_cast<float>(lane);
    size_t i = 0;
    for (; i + kDoubles <= s.n; i += kDoubles, place += width) {
        const VecD wide = load(s.e + i) - lowest - load(s.fallen + i);
        const HalfVecF difference = STEELYARD_CONVERT(wide > none ? wide : none, HalfVecF);
        largest = difference > largest ? difference : largest;
        const HalfVecF raw = own + load_half(s.diagonal + i) - 2.0f * load_half(up_row + i);
        const HalfVecF gain = difference * difference / (raw > tiny ? raw : tiny);
        const HalfMaskF higher = gain > best;
        best = higher ? gain : best;
        best_at = higher ? place : best_at;
    }
    float gain = 0.0f, widest = 0.0f;
    size_t at = s.n;
    for (size_t lane = 0; lane < kDoubles; ++lane) {
        if (best[lane] > gain) gain = best[lane], at = static_cast<size_t>(best_at[lane]);
        if (largest[lane] > widest) widest = largest[lane];
    }
    for (; i < s.n; ++i) {
        const float difference = static_cast<float>(s.e[i] - lowest - s.fallen[i]);
        if (!(difference > 0.0f)) continue;
        if (difference > widest) widest = difference;
        const float raw = own + s.diagonal[i] - 2.0f * up_row[i];
        const float own_gain = difference * difference / (raw > least_curvature ? raw : least_curvature);
        if (own_gain > gain) gain = own_gain, at = i;
    }
    return {at, static_cast<double>(widest)};
}

static void pair_pick(const double* row, const std::int32_t* places, double own, const double* factor, float* out,
                      size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(own * factor[i] * row[places[i]]);
}

constexpr PairLoops pair_loops{pair_step, pair_partner, pair_pick};

}  // namespace steelyard::STEELYARD_LEVEL
