#include "steelyard/gram.hpp"

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "steelyard/simd.hpp"

namespace steelyard {

namespace {

// Rows of one block: a panel of 8 doubles then takes 24 KiB, which stays in the first-level cache while
// the panels of a column group stay in the second.
constexpr std::size_t kBlockRows = 384;
constexpr std::size_t kBandPanels = 32;
constexpr std::size_t kPanelPadding = 8;  // keeps panels from falling on the same cache sets

// A run of rows that share a class and a sign; what one packed block is cut from.
struct Run {
    std::size_t begin, end;  // positions in the sorted order
    double sign;
    double* gram;
};

// Row numbers sorted by class and, within a class, positive weights first; order is kept otherwise.
struct SortedRows {
    std::vector<std::uint32_t> order;
    std::vector<double> scale;  // sqrt|weight| in sorted order; empty when all weights are 1
    std::vector<Run> runs;
};

SortedRows sort_rows(std::span<const std::int32_t> codes, std::span<const double> weights,
                     std::span<double* const> grams) {
    const std::size_t n = codes.size(), n_classes = grams.size();
    const auto slot = [&](std::size_t i) {
        return 2 * static_cast<std::size_t>(codes[i]) + (!weights.empty() && weights[i] < 0.0);
    };
    std::vector<std::size_t> starts(2 * n_classes + 1, 0);
    std::size_t n_used = 0;
    for (std::size_t i = 0; i < n; ++i)
        if (codes[i] >= 0) ++starts[slot(i) + 1], ++n_used;
    for (std::size_t s = 0; s < 2 * n_classes; ++s) starts[s + 1] += starts[s];

    SortedRows sorted;
    for (std::size_t s = 0; s < 2 * n_classes; ++s)
        if (starts[s] < starts[s + 1])
            sorted.runs.push_back({starts[s], starts[s + 1], s % 2 ? -1.0 : 1.0, grams[s / 2]});
    sorted.order.resize(n_used);
    for (std::size_t i = 0; i < n; ++i)
        if (codes[i] >= 0) sorted.order[starts[slot(i)]++] = static_cast<std::uint32_t>(i);
    if (!weights.empty()) {
        sorted.scale.resize(n_used);
        for (std::size_t k = 0; k < n_used; ++k) sorted.scale[k] = std::sqrt(std::fabs(weights[sorted.order[k]]));
    }
    return sorted;
}

void pack(const GramLoops& loops, Rows<double> rows, const std::uint32_t* index, const double* origin,
          const double* scale, PackedBlock block) {
    loops.pack_f64(rows.data, rows.n_features, index, origin, scale, block);
}
void pack(const GramLoops& loops, Rows<float> rows, const std::uint32_t* index, const double* origin,
          const double* scale, PackedBlock block) {
    loops.pack_f32(rows.data, rows.n_features, index, origin, scale, block);
}

// A thread pays when its share is worth far more than starting it, and than the packing that every thread repeats.
unsigned useful_threads(unsigned wanted, std::size_t n_rows, std::size_t size) {
    const double work = 0.5 * static_cast<double>(n_rows) * static_cast<double>(size * size);
    const auto most = static_cast<unsigned>(std::min({work / 4e6, static_cast<double>(size) / 64.0, 64.0}));
    return std::max(1u, std::min(wanted, most));
}

// Whose columns a group are. Work falls from the first group to the last, so turns go back and forth.
unsigned owner(std::size_t group, unsigned threads) {
    const std::size_t turn = group / threads, place = group % threads;
    return static_cast<unsigned>(turn % 2 ? threads - 1 - place : place);
}

}  // namespace

double largest_magnitude(std::span<const double> values) {
    return loops().gram.largest_f64(values.data(), values.size());
}
double largest_magnitude(std::span<const float> values) {
    return loops().gram.largest_f32(values.data(), values.size());
}

template <class T>
void add_grams(Rows<T> rows, std::span<const std::int32_t> codes, std::span<const double> weights,
               std::span<const double> origin, std::span<double* const> grams, unsigned n_threads) {
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t size = rows.n_features + 1;
    const std::size_t n_panels = (size + loops.width - 1) / loops.width;
    const std::size_t n_bands = (n_panels + kBandPanels - 1) / kBandPanels;
    const SortedRows sorted = sort_rows(codes, weights, grams);

    const std::size_t panel_stride = std::min(kBlockRows, rows.n_rows) * loops.width + kPanelPadding;
    const unsigned threads = useful_threads(n_threads, rows.n_rows, size);
    const AlignedBuffer<double> buffers = aligned_buffer<double>(threads * n_panels * panel_stride);

    // Every thread sums the columns of its own groups and packs all rows for itself: packing is little beside the
    // sums, and threads that share nothing never wait for each other. Each entry of a matrix is summed by one
    // thread, block after block, so the rounding does not depend on the number of threads.
    const auto work = [&](unsigned thread) noexcept {
        double* packed = buffers.get() + thread * n_panels * panel_stride;
        for (const Run& run : sorted.runs)
            for (std::size_t begin = run.begin; begin < run.end; begin += kBlockRows) {
                const PackedBlock block{packed, std::min(kBlockRows, run.end - begin), panel_stride};
                pack(loops, rows, sorted.order.data() + begin, origin.data(),
                     sorted.scale.empty() ? nullptr : sorted.scale.data() + begin, block);
                // Row panels come in bands that stay in the second-level cache while the column groups pass by.
                for (std::size_t band = 0; band < n_bands; ++band) {
                    const PanelRange band_rows{band * kBandPanels, std::min(n_panels, (band + 1) * kBandPanels)};
                    for (std::size_t group = 0; group * loops.group < band_rows.end; ++group)
                        if (owner(group, threads) == thread)
                            loops.sum_outer(block, group * loops.group, band_rows, run.sign, run.gram, size);
                }
            }
    };
    std::vector<std::jthread> helpers;
    helpers.reserve(threads - 1);
    for (unsigned t = 1; t < threads; ++t) helpers.emplace_back(work, t);
    work(0);
}

template void add_grams(Rows<double>, std::span<const std::int32_t>, std::span<const double>, std::span<const double>,
                        std::span<double* const>, unsigned);
template void add_grams(Rows<float>, std::span<const std::int32_t>, std::span<const double>, std::span<const double>,
                        std::span<double* const>, unsigned);

template <class Index>
void add_gram_sparse(std::span<const double> values, std::span<const Index> columns, std::span<const Index> row_starts,
                     std::span<const std::int32_t> codes, std::span<const double> weights, std::int32_t code,
                     std::size_t n_features, double* gram) {
    const std::size_t size = n_features + 1;
    double* last_row = gram + n_features * size;
    for (std::size_t i = 0; i < codes.size(); ++i) {
        if (codes[i] != code) continue;
        const double weight = weights.empty() ? 1.0 : weights[i];
        const auto begin = static_cast<std::size_t>(row_starts[i]), end = static_cast<std::size_t>(row_starts[i + 1]);
        for (std::size_t a = begin; a < end; ++a) {
            const double left = weight * values[a];
            double* row = gram + static_cast<std::size_t>(columns[a]) * size;
            for (std::size_t b = begin; b <= a; ++b) row[columns[b]] += left * values[b];
            last_row[columns[a]] -= left;
        }
        last_row[n_features] += weight;
    }
}

template void add_gram_sparse(std::span<const double>, std::span<const std::int32_t>, std::span<const std::int32_t>,
                              std::span<const std::int32_t>, std::span<const double>, std::int32_t, std::size_t,
                              double*);
template void add_gram_sparse(std::span<const double>, std::span<const std::int64_t>, std::span<const std::int64_t>,
                              std::span<const std::int32_t>, std::span<const double>, std::int32_t, std::size_t,
                              double*);

}  // namespace steelyard
