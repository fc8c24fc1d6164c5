// Changes of a whole state that nobody else sees yet: its steps become finer, rows come in and leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "proximal/exact_sums.hpp"

namespace steelyard {

// -- finer steps: what has been learned stays the same (exact_refinement.cpp) -------------------------

void refine_weights(ExactState& state, unsigned shift);
// Weights in the state's steps, which become finer if a weight is not whole. Empty: all are 1 and so is a step.
std::vector<std::int64_t> steps_of(ExactState& state, std::span<const double> weights, std::size_t n);
// Gives features that do not round the quanta that these rows need, row after row; whether anything changed.
template <class T>
bool refine_for(ExactState& state, Rows<T> rows, std::span<const double> remainder, unsigned n_threads);
// Brings a settled state to a grid whose quanta are not coarser than its own.
void bring_to(ExactState& state, const ExactGrid& grid, int weight_exponent, unsigned n_threads);

// -- rows (exact_rows.cpp) ----------------------------------------------------------------------------

void make_slots(ExactState& state, std::span<const std::int32_t> slots);
// Rows of each slot, in order.
std::map<std::int32_t, std::vector<std::uint32_t>> by_slot(std::span<const std::int32_t> slots,
                                                           std::span<const std::int64_t> weights);
// Fixes the grid and brings the early rows to it.
void settle_by(ExactState& state, const ExactGrid& grid, unsigned n_threads);
template <class T>
void add_settled(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                 std::span<const std::int64_t> weights, unsigned n_threads);
// Rows that come before there is a grid wait as they are; with enough of them there is one.
template <class T>
void add_unsettled(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                   std::span<const std::int64_t> weights, bool sparse, unsigned n_threads);
template <class T>
Removal remove_from(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                    std::span<const std::int64_t> weights, unsigned n_threads);
// Compares what is to leave with what is here, class by class.
Removal check_enough(const ExactState& state, std::span<const std::int32_t> slots,
                     std::span<const std::int64_t> weights);
inline Removal never_learned(std::int32_t slot) { return {Refusal::never_learned, slot, 0.0, 0.0}; }

}  // namespace steelyard
