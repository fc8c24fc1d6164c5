#include "proximal/scores.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

#include "common/threads.hpp"
#include "proximal/packed_planes.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kScoreTaskRows = 2048;  // rows per task of a thread
constexpr std::size_t kScoreBlockRows = 128;  // rows per block, so that the scores of a block stay in the L1 cache

double add_intercept(double* scores, std::size_t n_rows, const double* intercept, std::size_t) {
    double doubt = 0.0;
    for (std::size_t i = 0; i < n_rows; ++i) {
        scores[i] += *intercept;
        doubt += scores[i] - scores[i];
    }
    return doubt;
}

// Calls use(i, scores of row i) for every row; returns false if a score is not finite.
template <class T, class Use>
bool for_each_row(Rows<T> rows, const Planes& planes, unsigned n_threads, Use&& use) {
    const std::size_t n_planes = planes.intercepts.size(), d = rows.n_features;
    const PackedPlanes packed(planes.normals, n_planes, d);
    const double work = static_cast<double>(rows.n_rows) * static_cast<double>(d * n_planes);
    // Padding planes have such low intercepts that they never have the highest score.
    AlignedVector<double> intercepts(packed.stride(), std::numeric_limits<double>::lowest());
    std::copy(planes.intercepts.begin(), planes.intercepts.end(), intercepts.begin());
    const auto add_intercepts = n_planes == 1 ? add_intercept : loops().score.add_intercepts;
    std::atomic<bool> finite{true};
    parallel_for((rows.n_rows + kScoreTaskRows - 1) / kScoreTaskRows, work < 2e6 ? 1 : n_threads,
                 [&](std::size_t task) {
                     const AlignedBuffer<double> scores = aligned_buffer<double>(kScoreBlockRows * packed.stride());
                     const std::size_t end = std::min(rows.n_rows, (task + 1) * kScoreTaskRows);
                     double doubt = 0.0;  // becomes NaN if any score of the block is not finite
                     for (std::size_t begin = task * kScoreTaskRows; begin < end; begin += kScoreBlockRows) {
                         const Rows<T> block{rows.data + begin * d, std::min(kScoreBlockRows, end - begin), d};
                         packed.products(block, scores.get());
                         doubt += add_intercepts(scores.get(), block.n_rows, intercepts.data(), packed.stride());
                         for (std::size_t i = 0; i < block.n_rows; ++i)
                             use(begin + i, scores.get() + i * packed.stride());
                     }
                     if (doubt != 0.0) finite.store(false, std::memory_order_relaxed);
                 });
    return finite.load();
}

}  // namespace

template <class T>
bool linear_scores(Rows<T> rows, const Planes& planes, double* scores, unsigned n_threads) {
    const std::size_t n_planes = planes.intercepts.size();
    return for_each_row(rows, planes, n_threads,
                        [&](std::size_t i, const double* row) { std::copy_n(row, n_planes, scores + i * n_planes); });
}

template <class T>
bool linear_labels(Rows<T> rows, const Planes& planes, std::span<const std::uint64_t> labels_of, std::uint64_t* labels,
                   unsigned n_threads) {
    const std::size_t n_planes = planes.intercepts.size(), width = loops().score.width;
    const std::size_t n_scores = (n_planes + width - 1) / width * width;
    const auto first_highest = loops().score.first_highest;
    return for_each_row(rows, planes, n_threads, [&](std::size_t i, const double* row) {
        // With a score that is not finite, a padding plane may win, but for_each_row() then returns false.
        labels[i] = labels_of[n_planes == 1 ? row[0] > 0.0 : std::min(first_highest(row, n_scores), n_planes - 1)];
    });
}

template bool linear_scores(Rows<double>, const Planes&, double*, unsigned);
template bool linear_scores(Rows<float>, const Planes&, double*, unsigned);
template bool linear_labels(Rows<double>, const Planes&, std::span<const std::uint64_t>, std::uint64_t*, unsigned);
template bool linear_labels(Rows<float>, const Planes&, std::span<const std::uint64_t>, std::uint64_t*, unsigned);

}  // namespace steelyard
