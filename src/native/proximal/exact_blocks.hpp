// One class: rows that wait, sums of those that do no longer, and how rows come in and leave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proximal/exact_sums.hpp"
#include "proximal/quantizer.hpp"
#include "simd/simd.hpp"

namespace steelyard {

// How many rows of d features wait at most.
inline std::size_t capacity(std::size_t d) { return std::max<std::size_t>(64, (d + 1) / 2); }

// One row as whole numbers.
inline void count_row(const double* x, std::size_t d, Steps steps, double* out) {
    loops().gram.count_f64(x, d, steps, out);
}
inline void count_row(const float* x, std::size_t d, Steps steps, double* out) {
    loops().gram.count_f32(x, d, steps, out);
}

// A block that may be changed: a copy where others hold it too.
ExactBlock& own(std::shared_ptr<ExactBlock>& block);
std::shared_ptr<Triangle> own_sums(const ExactBlock& block, std::size_t d);

// Adds what waits in a block to some sums, or to its own.
void fold_waiting(Triangle& sums, const ExactBlock& block, std::size_t d, unsigned n_threads);
void fold_waiting(ExactBlock& block, std::size_t d, unsigned n_threads);
void make_ready(std::shared_ptr<ExactBlock>& slot, std::size_t d, unsigned n_threads);

// Whether n more rows of a class, of which there may be nothing yet, wait rather than being summed at once.
bool may_wait(const ExactBlock* block, std::size_t n, std::size_t d);
// Lets rows wait.
template <class T>
void wait(ExactBlock& block, Rows<T> rows, std::span<const std::uint32_t> index, std::span<const std::int64_t> weights,
          Steps steps);
// Puts rows of one class where they belong: among the waiting ones, or into the sums at once.
template <class T>
void place(ExactBlock& block, Rows<T> rows, const std::vector<std::uint32_t>& index,
           std::span<const std::int64_t> weights, const StepTables& tables, const ExactGrid& grid, const Found& found,
           unsigned n_threads);
// Adds a row whose values are beyond the reach of digits.
template <class T>
void add_beyond(Triangle& sums, Rows<T> rows, std::uint32_t row, const StepTables& tables, const ExactGrid& grid);
// Adds a block that is on the same grid.
void join(std::shared_ptr<ExactBlock>& mine, const ExactBlock& theirs, int sign, std::size_t d, unsigned n_threads);

// Takes weight off equal rows, from the newest back; what found no partner is left.
std::int64_t cancel(const std::vector<double>& rows, std::vector<std::int64_t>& weights, const double* row,
                    std::size_t d, std::int64_t weight, const std::vector<std::int32_t>* slots, std::int32_t slot,
                    std::span<const std::uint8_t> mixed = {});
void drop_weightless(std::vector<double>& rows, std::vector<std::int64_t>& weights, std::vector<std::int32_t>* slots,
                     std::size_t d);

Big count_of(const ExactBlock& block);
// A class that lost rows: refused if they were never here, gone if none is left.
bool settle_loss(std::shared_ptr<ExactBlock>& slot, std::size_t d, const ExactGrid& grid, unsigned n_threads);

}  // namespace steelyard
