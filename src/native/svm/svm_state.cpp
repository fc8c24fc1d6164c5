#include "svm/svm_state.hpp"

#include <cmath>

#include "common/numbers.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {}  // namespace

double violation_of(const SvmState& state, std::size_t i, double e) {
    const double g = e + state.bias;
    if (g < 0.0) return state.z[i] < state.upper[i] ? -g : 0.0;
    return state.z[i] > state.lower[i] ? g : 0.0;
}

double worst_violation(const SvmState& state) {
    return loops().solver.worst(state.e.data(), state.bias, state.z.data(), state.lower.data(), state.upper.data(),
                                state.z.size());
}

double imbalance_of(const SvmState& state) {
    const auto [sum, size] = loops().solver.sums(state.z.data(), state.z.size());
    return size > 0.0 ? std::abs(sum) / size : 0.0;
}

bool is_between_bounds(const SvmState& state, std::size_t i) {
    const double gap = kAtBound * (state.upper[i] - state.lower[i]);
    return state.z[i] > state.lower[i] + gap && state.z[i] < state.upper[i] - gap;
}

BiasInterval apparent_interval(const SvmState& state) {
    BiasInterval found{-kInfinity, kInfinity, 0, 0};
    for (std::size_t i = 0; i < state.z.size(); ++i) {
        const double bias = -state.e[i];
        if (state.z[i] < state.upper[i] && bias > found.low) found.low = bias, found.low_sample = i;
        if (state.z[i] > state.lower[i] && bias < found.high) found.high = bias, found.high_sample = i;
    }
    return found;
}

}  // namespace steelyard
