// Statistics of one class: pending rows, sums of products, and the functions that add and remove rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proximal/quantizer.hpp"
#include "proximal/sufficient_statistics.hpp"
#include "simd/simd.hpp"

namespace steelyard {

// Returns the maximum number of pending rows for d features.
inline std::size_t capacity(std::size_t d) { return std::max<std::size_t>(64, (d + 1) / 2); }

// Quantizes one row.
inline void count_row(const double* x, std::size_t d, Steps steps, double* out) {
    loops().gram.count_f64(x, d, steps, out);
}
inline void count_row(const float* x, std::size_t d, Steps steps, double* out) {
    loops().gram.count_f32(x, d, steps, out);
}

// Copy-on-write: returns a block that may be modified, which is a copy if the original is shared.
ExactBlock& mutable_block(std::shared_ptr<ExactBlock>& block);
std::shared_ptr<Triangle> copy_sums(const ExactBlock& block, std::size_t d);

// Adds the pending rows of a block to `sums`, or (second version) to the sums of the block itself.
void fold_pending(Triangle& sums, const ExactBlock& block, std::size_t d, unsigned n_threads);
void fold_pending(ExactBlock& block, std::size_t d, unsigned n_threads);
void form_sums(std::shared_ptr<ExactBlock>& slot, std::size_t d, unsigned n_threads);

// Returns whether n more rows of a class may stay pending. If not, the caller adds them to the sums immediately.
bool may_stay_pending(const ExactBlock* block, std::size_t n, std::size_t d);
// Appends rows to the pending rows.
template <class T>
void append_pending(ExactBlock& block, Rows<T> rows, std::span<const std::uint32_t> index,
                    std::span<const std::int64_t> weights, Steps steps);
// Adds rows of one class, either to the pending rows or to the sums.
template <class T>
void place(ExactBlock& block, Rows<T> rows, const std::vector<std::uint32_t>& index,
           std::span<const std::int64_t> weights, const StepTables& tables, const Quantizer& quantizer,
           const ScanResult& found, unsigned n_threads);
// Adds a row with values above kTwoDigits, which the loops over two digits cannot add.
template <class T>
void add_beyond(Triangle& sums, Rows<T> rows, std::uint32_t row, const StepTables& tables, const Quantizer& quantizer);
// Adds or subtracts another block with the same quantizer.
void merge_block(std::shared_ptr<ExactBlock>& mine, const ExactBlock& theirs, int sign, std::size_t d,
                 unsigned n_threads);

// Subtracts a weight from the stored rows equal to `row`, newest row first.
// Returns the part of the weight that could not be subtracted.
std::int64_t cancel(const std::vector<double>& rows, std::vector<std::int64_t>& weights, const double* row,
                    std::size_t d, std::int64_t weight, const std::vector<std::int32_t>* slots, std::int32_t slot,
                    std::span<const std::uint8_t> mixed = {});
void drop_zero_weights(std::vector<double>& rows, std::vector<std::int64_t>& weights, std::vector<std::int32_t>* slots,
                       std::size_t d);

Big count_of(const ExactBlock& block);
// Completes a removal and resets an empty slot. Returns false if no set of rows can have the remaining sums.
bool finish_removal(std::shared_ptr<ExactBlock>& slot, std::size_t d, const Quantizer& quantizer, unsigned n_threads);

}  // namespace steelyard
