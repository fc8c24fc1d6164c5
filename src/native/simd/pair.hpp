// Loops of pairwise steps: every sample is looked at once in each, without a branch.
#pragma once

#include "solver.hpp"
#include "steelyard/loops_pair.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr double kPairTiny = 1e-12;  // of the diagonal: the least curvature

// The first vector of places, 0, 1, 2, ...
[[gnu::always_inline]] static inline VecD first_places() {
    VecD places;
    for (size_t lane = 0; lane < kDoubles; ++lane) places[lane] = static_cast<double>(lane);
    return places;
}

static size_t pair_step(const PairSamples& s, double move, const float* up, const float* down) {
    const VecD width = broadcast(static_cast<double>(kDoubles));
    VecD least = broadcast(__builtin_inf()), least_at = broadcast(static_cast<double>(s.n)), place = first_places();
    size_t i = 0;
    for (; i + kDoubles <= s.n; i += kDoubles, place += width) {
        const VecD e = load(s.e + i) + move * (widened(up + i) - widened(down + i));
        store(s.e + i, e);
        const VecD open = e + load(s.grown + i);
        const MaskD lower = open < least;
        least = lower ? open : least;
        least_at = lower ? place : least_at;
    }
    double best = __builtin_inf();
    size_t at = s.n;
    for (size_t lane = 0; lane < kDoubles; ++lane)
        if (least[lane] < best) best = least[lane], at = static_cast<size_t>(least_at[lane]);
    for (; i < s.n; ++i) {
        s.e[i] += move * (static_cast<double>(up[i]) - static_cast<double>(down[i]));
        if (s.e[i] + s.grown[i] < best) best = s.e[i] + s.grown[i], at = i;
    }
    return at;
}

static Partner pair_partner(const PairSamples& s, size_t up, const float* up_row) {
    const double lowest = s.e[up], own = s.diagonal[up];
    const double tiny_scalar = kPairTiny * (own > 0.0 ? own : 1.0);
    const VecD width = broadcast(static_cast<double>(kDoubles)), none = broadcast(0.0), tiny = broadcast(tiny_scalar);
    VecD best = none, best_at = broadcast(static_cast<double>(s.n)), largest = none, place = first_places();
    size_t i = 0;
    for (; i + kDoubles <= s.n; i += kDoubles, place += width) {
        const VecD signed_difference = load(s.e + i) - lowest - load(s.fallen + i);
        const VecD difference = signed_difference > none ? signed_difference : none;
        largest = difference > largest ? difference : largest;
        const VecD raw = own + load(s.diagonal + i) - 2.0 * widened(up_row + i);
        const VecD gain = difference * difference / (raw > tiny ? raw : tiny);
        const MaskD higher = gain > best;
        best = higher ? gain : best;
        best_at = higher ? place : best_at;
    }
    double gain = 0.0;
    Partner found{s.n, 0.0};
    for (size_t lane = 0; lane < kDoubles; ++lane) {
        if (best[lane] > gain) gain = best[lane], found.at = static_cast<size_t>(best_at[lane]);
        if (largest[lane] > found.difference) found.difference = largest[lane];
    }
    for (; i < s.n; ++i) {
        const double difference = s.e[i] - lowest - s.fallen[i];
        if (!(difference > 0.0)) continue;
        if (difference > found.difference) found.difference = difference;
        const double raw = own + s.diagonal[i] - 2.0 * static_cast<double>(up_row[i]);
        const double own_gain = difference * difference / (raw > tiny_scalar ? raw : tiny_scalar);
        if (own_gain > gain) gain = own_gain, found.at = i;
    }
    return found;
}

static void pair_pick(const double* row, const std::int32_t* places, double own, const double* factor, float* out,
                      size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(own * factor[i] * row[places[i]]);
}

constexpr PairLoops pair_loops{pair_step, pair_partner, pair_pick};

}  // namespace steelyard::STEELYARD_LEVEL
