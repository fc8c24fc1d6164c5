#include <algorithm>
#include <cmath>

#include "proximal/class_block.hpp"
#include "proximal/quantizer.hpp"
#include "proximal/state_updates.hpp"

namespace steelyard {

namespace {

// Refines the steps without changing the represented values.
void refine_steps(ExactState& state, std::span<const std::int32_t> exponents, unsigned n_threads) {
    const std::size_t d = state.n_features;
    std::vector<unsigned> shifts(d);
    for (std::size_t j = 0; j < d; ++j) shifts[j] = static_cast<unsigned>(state.quantizer.exponent[j] - exponents[j]);
    const auto finer = [&](double x, std::size_t j) { return std::ldexp(x, static_cast<int>(shifts[j])); };
    const bool tiny =  // pending rows cannot be stored in such small steps (see kFinestFast)
        std::any_of(exponents.begin(), exponents.end(), [](std::int32_t e) { return e < kFinestFast; });
    // An origin that would exceed 2^53 finer steps is set to zero before the steps change.
    std::vector<Big> back(d);
    bool far = false;
    for (std::size_t j = 0; j < d; ++j)
        if (std::fabs(finer(state.quantizer.origin[j], j)) >= kWhole) {
            back[j] = -Big::of_whole(state.quantizer.origin[j]);
            state.quantizer.origin[j] = 0.0;
            far = true;
        }
    for (auto& slot : state.slots) {
        if (!slot) continue;
        ExactBlock& block = mutable_block(slot);
        const auto too_large = [&](std::size_t i) { return std::fabs(finer(block.rows[i], i % d)) >= kTwoDigits; };
        bool fits = !far && !tiny;
        for (std::size_t i = 0; fits && i < block.rows.size(); ++i) fits = !too_large(i);
        if (!fits) fold_pending(block, d, n_threads);
        for (std::size_t i = 0; i < block.rows.size(); ++i) block.rows[i] = finer(block.rows[i], i % d);
        if (block.sums) {
            auto sums = copy_sums(block, d);
            sums->translate(back);
            sums->refine(shifts, 0);
            block.sums = std::move(sums);
        }
    }
    for (std::size_t j = 0; j < d; ++j) {
        state.quantizer.origin[j] = finer(state.quantizer.origin[j], j);
        state.quantizer.exponent[j] = exponents[j];
    }
}

}  // namespace

void refine_weights(ExactState& state, unsigned shift) {
    if (shift == 0) return;
    const std::vector<unsigned> none(state.n_features, 0);
    for (auto& slot : state.slots) {
        if (!slot) continue;
        ExactBlock& block = mutable_block(slot);
        for (std::int64_t& weight : block.weights) weight <<= shift;
        if (block.sums) {
            auto sums = copy_sums(block, state.n_features);
            sums->refine(none, shift);
            block.sums = std::move(sums);
        }
    }
    for (std::int64_t& weight : state.early.weights) weight <<= shift;
    state.weight_exponent -= static_cast<int>(shift);
}

std::vector<std::int64_t> steps_of(ExactState& state, std::span<const double> weights, std::size_t n) {
    bool fractions = false;
    for (const double w : weights) {
        if (!(std::fabs(w) <= kLargestWeight)) throw BadValues("weights must be finite and at most 2^40");
        fractions |= w != std::floor(w);
    }
    if (fractions && state.weight_exponent == 0) refine_weights(state, kWeightFractionBits);
    if (weights.empty() && state.weight_exponent == 0) return {};
    const double scale = std::ldexp(1.0, -state.weight_exponent);
    std::vector<std::int64_t> steps(n);
    for (std::size_t i = 0; i < n; ++i)
        steps[i] = static_cast<std::int64_t>(std::floor((weights.empty() ? 1.0 : weights[i]) * scale + 0.5));
    return steps;
}

template <class T>
bool refine_for(ExactState& state, Rows<T> rows, std::span<const double> remainder, unsigned n_threads) {
    std::vector<std::int32_t> exponents = state.quantizer.exponent;
    bool changed = false;
    for (std::size_t j = 0; j < state.n_features; ++j) {
        if (state.quantizer.rounds[j] || remainder[j] == 0.0) continue;
        const double origin = std::ldexp(state.quantizer.origin[j], state.quantizer.exponent[j]);
        for (std::size_t i = 0; i < rows.n_rows && !state.quantizer.rounds[j]; ++i) {
            const double x = static_cast<double>(rows.data[i * state.n_features + j]);
            if (x == 0.0 || !std::isfinite(x)) continue;
            const int lowest = std::max(lowest_bit(x), kFinest);
            if (lowest >= exponents[j]) continue;
            const double deviation = x - origin;
            const int wanted = wanted_exponent(deviation != 0.0 && std::isfinite(deviation) ? deviation : x, origin);
            state.quantizer.rounds[j] = lowest < wanted;
            exponents[j] = std::min(exponents[j], std::max(lowest, wanted));
            changed = true;
        }
    }
    if (changed) refine_steps(state, exponents, n_threads);
    return changed;
}

void bring_to(ExactState& state, const Quantizer& quantizer, int weight_exponent, unsigned n_threads) {
    refine_weights(state, static_cast<unsigned>(state.weight_exponent - weight_exponent));
    refine_steps(state, quantizer.exponent, n_threads);
    std::vector<Big> by(state.n_features);
    bool moves = false;
    for (std::size_t j = 0; j < by.size(); ++j) {
        by[j] = Big::of_whole(quantizer.origin[j]) - Big::of_whole(state.quantizer.origin[j]);
        moves |= !by[j].is_zero();
    }
    if (moves)
        for (auto& slot : state.slots) {
            if (!slot) continue;
            ExactBlock& block = mutable_block(slot);
            bool near = true;
            const std::size_t d = state.n_features;
            for (std::size_t i = 0; near && i < block.rows.size(); ++i)
                near = by[i % d].bit_length() < 52 &&
                       std::fabs(block.rows[i] - static_cast<double>(by[i % d].narrow())) <= kTwoDigits;
            if (!near) fold_pending(block, d, n_threads);
            for (std::size_t i = 0; i < block.rows.size(); ++i)
                block.rows[i] -= static_cast<double>(by[i % d].narrow());
            if (block.sums) {
                auto sums = copy_sums(block, d);
                sums->translate(by);
                block.sums = std::move(sums);
            }
        }
    state.quantizer = quantizer;
}

template bool refine_for(ExactState&, Rows<double>, std::span<const double>, unsigned);
template bool refine_for(ExactState&, Rows<float>, std::span<const double>, unsigned);

}  // namespace steelyard
