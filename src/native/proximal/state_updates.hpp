// Non-atomic updates of a state that is not yet published: refining steps, adding and removing rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "proximal/sufficient_statistics.hpp"

namespace steelyard {

// -- finer quantization steps; stored values do not change (requantization.cpp) ------------------------

void refine_weights(ExactState& state, unsigned shift);
// Returns the weights in units of the weight step. If a weight is not an integer, the weight step is refined first.
// The result is empty if all weights and the weight step are 1.
std::vector<std::int64_t> steps_of(ExactState& state, std::span<const double> weights, std::size_t n);
// Refines the steps of features of which no value has been rounded, so that the rows are represented exactly.
// Returns whether a step changed.
template <class T>
bool refine_for(ExactState& state, Rows<T> rows, std::span<const double> remainder, unsigned n_threads);
// Converts a state to another quantizer, whose steps must be equal or finer.
void bring_to(ExactState& state, const Quantizer& quantizer, int weight_exponent, unsigned n_threads);

// -- adding and removing rows (dense_rows.cpp) --------------------------------------------------------

void make_slots(ExactState& state, std::span<const std::int32_t> slots);
// Returns the row numbers of each slot, in ascending order.
std::map<std::int32_t, std::vector<std::uint32_t>> by_slot(std::span<const std::int32_t> slots,
                                                           std::span<const std::int64_t> weights);
// Fixes the quantizer and quantizes the rows that are stored as raw values.
void freeze_with(ExactState& state, const Quantizer& quantizer, unsigned n_threads);
template <class T>
void add_quantized(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                   std::span<const std::int64_t> weights, unsigned n_threads);
// Stores rows as raw values until there are kQuantizerRows rows; then the quantizer is fitted.
template <class T>
void add_unquantized(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                     std::span<const std::int64_t> weights, bool sparse, unsigned n_threads);
template <class T>
Removal remove_from(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                    std::span<const std::int64_t> weights, unsigned n_threads);
// Checks that each class has at least the weight to be removed.
Removal check_enough(const ExactState& state, std::span<const std::int32_t> slots,
                     std::span<const std::int64_t> weights);
inline Removal never_learned(std::int32_t slot) { return {Refusal::never_learned, slot, 0.0, 0.0}; }

}  // namespace steelyard
