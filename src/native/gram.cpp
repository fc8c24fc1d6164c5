#include "steelyard/gram.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "steelyard/simd.hpp"
#include "steelyard/threads.hpp"

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

double largest_of(const GramLoops& loops, std::span<const double> values) {
    return loops.largest_f64(values.data(), values.size());
}
double largest_of(const GramLoops& loops, std::span<const float> values) {
    return loops.largest_f32(values.data(), values.size());
}

// A block of packed rows: rows of one run, summed together.
struct Block {
    const Run* run;
    std::size_t begin, rows;
};

std::vector<Block> cut(const std::vector<Run>& runs) {
    std::vector<Block> blocks;
    for (const Run& run : runs)
        for (std::size_t begin = run.begin; begin < run.end; begin += kBlockRows)
            blocks.push_back({&run, begin, std::min(kBlockRows, run.end - begin)});
    return blocks;
}

// What a thread does at a time: the columns of one group, for the rows of one band.
struct Task {
    std::size_t first_panel;
    PanelRange rows;
};

// Band by band: the row panels of a band stay in the second-level cache while the column groups pass by.
std::vector<Task> tiles(std::size_t n_panels, std::size_t group) {
    std::vector<Task> tasks;
    for (std::size_t begin = 0; begin < n_panels; begin += kBandPanels) {
        const PanelRange band{begin, std::min(n_panels, begin + kBandPanels)};
        for (std::size_t first = 0; first < band.end; first += group) tasks.push_back({first, band});
    }
    return tasks;
}

// A thread pays when its share of a block is worth far more than meeting the others once a block.
unsigned useful_threads(unsigned wanted, std::size_t n_rows, std::size_t n_blocks, std::size_t size) {
    const double products = 0.5 * static_cast<double>(n_rows) * static_cast<double>(size * size);
    const double share = products / static_cast<double>(std::max<std::size_t>(n_blocks, 1));
    const double most = std::min({products / 4e6, share / 1e6, 64.0});
    return std::max(1u, std::min(wanted, static_cast<unsigned>(most)));
}

}  // namespace

template <class T>
double largest_magnitude(std::span<const T> values, unsigned n_threads) {
    constexpr std::size_t kTaskValues = 1 << 17;
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t n_tasks = (values.size() + kTaskValues - 1) / kTaskValues;
    std::vector<double> largest(n_tasks);
    parallel_for(n_tasks, n_tasks < 8 ? 1 : n_threads, [&](std::size_t task) {
        const std::size_t begin = task * kTaskValues;
        largest[task] = largest_of(loops, values.subspan(begin, std::min(kTaskValues, values.size() - begin)));
    });
    double top = 0.0;
    for (double value : largest)
        if (!(value <= top)) top = std::isnan(top) ? top : value;  // nothing comes after NaN
    return top;
}

template double largest_magnitude(std::span<const double>, unsigned);
template double largest_magnitude(std::span<const float>, unsigned);

template <class T>
void add_grams(Rows<T> rows, std::span<const std::int32_t> codes, std::span<const double> weights,
               std::span<const double> origin, std::span<double* const> grams, unsigned n_threads) {
    const GramLoops& loops = steelyard::loops().gram;
    const std::size_t size = rows.n_features + 1;
    const std::size_t n_panels = (size + loops.width - 1) / loops.width;
    const std::vector<Task> tasks = tiles(n_panels, loops.group);
    const SortedRows sorted = sort_rows(codes, weights, grams);
    const std::vector<Block> blocks = cut(sorted.runs);
    const std::size_t panel_stride = std::min(kBlockRows, rows.n_rows) * loops.width + kPanelPadding;
    const unsigned n_useful = useful_threads(n_threads, rows.n_rows, blocks.size(), size);
    const std::size_t n_rooms = n_useful > 1 ? 2 : 1;
    const AlignedBuffer<double> rooms = aligned_buffer<double>(n_rooms * n_panels * panel_stride);
    std::vector<std::atomic<std::size_t>> next_task(blocks.size());

    const auto pack_rows = [&](const Block& block, double* room, std::size_t begin, std::size_t end) {
        const std::size_t first = block.begin + begin;
        pack(loops, rows, sorted.order.data() + first, origin.data(),
             sorted.scale.empty() ? nullptr : sorted.scale.data() + first,
             {room + begin * loops.width, end - begin, panel_stride});
    };
    // The threads pack a block together, meet, and take its tasks one by one. While one still sums a block another
    // may pack the next into the second room, but none sums it before all have met again: each entry of a matrix
    // is summed block after block, so the rounding does not depend on the number of threads.
    run_team(n_useful, [&](unsigned thread, unsigned n, Meeting& meeting) noexcept {
        for (std::size_t b = 0; b < blocks.size(); ++b) {
            const Block& block = blocks[b];
            double* room = rooms.get() + b % n_rooms * n_panels * panel_stride;
            pack_rows(block, room, thread * block.rows / n, (thread + 1) * block.rows / n);
            if (n > 1) meeting.wait();
            for (std::size_t t; (t = next_task[b].fetch_add(1, std::memory_order_relaxed)) < tasks.size();)
                loops.sum_outer({room, block.rows, panel_stride}, tasks[t].first_panel, tasks[t].rows, block.run->sign,
                                block.run->gram, size);
        }
    });
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
