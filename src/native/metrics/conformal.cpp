#include "metrics/conformal.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace steelyard {

namespace {

// Adds one to the count of `level` and returns the smoothed p-value of the new value.
double add_and_rank(double* counts, std::size_t n_levels, std::size_t level, double uniform) {
    counts[level] += 1.0;
    const double below = std::accumulate(counts, counts + level, 0.0);
    const double n = std::accumulate(counts + level, counts + n_levels, below);
    return (below + uniform * counts[level]) / n;
}

}  // namespace

void conformal_p_values(Rows<double> X, const ConformalColumns& columns, const double* uniform, double* p) {
    const std::size_t d = X.n_features, n_bins = columns.n_bins, half = n_bins / 2, n_values = X.n_rows * d;
    std::vector<double> folded(d * half);  // number of earlier rows at each distance from the middle bins
    for (std::size_t c = 0; c < d; ++c)
        for (std::size_t level = 0; level < half; ++level)
            folded[c * half + level] =
                columns.counts[c * n_bins + half + level] + columns.counts[c * n_bins + half - 1 - level];
    for (std::size_t i = 0; i < n_values; ++i) {
        const std::size_t c = i % d;
        const double* edges = columns.edges + c * (n_bins - 1);
        const auto bin = static_cast<std::size_t>(std::upper_bound(edges, edges + n_bins - 1, X.data[i]) - edges);
        const std::size_t level = bin >= half ? bin - half : half - 1 - bin;
        p[i] = add_and_rank(columns.counts + c * n_bins, n_bins, bin, uniform[i]);
        p[n_values + i] = add_and_rank(folded.data() + c * half, half, level, uniform[n_values + i]);
    }
}

}  // namespace steelyard
