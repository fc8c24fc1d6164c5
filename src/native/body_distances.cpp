#include "steelyard/body_distances.hpp"

#include <algorithm>
#include <vector>

#include "steelyard/kernels.hpp"
#include "steelyard/simd.hpp"
#include "steelyard/threads.hpp"

namespace steelyard {

namespace {

// Coordinates of one block of rows: small enough to be squared and summed while still in the cache.
constexpr std::size_t kBlockValues = 1 << 15;
// Below this many multiply-adds a second thread costs more than it brings.
constexpr double kThreadWork = 1e6;

}  // namespace

void sphere_distances(Rows<double> X, Rows<double> centers, double* out, unsigned n_threads) {
    kernel_block({KernelKind::squared_distance}, X, centers, out, centers.n_rows, n_threads);
}

void ellipsoid_distances(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                         std::span<const std::size_t> starts, double* out, unsigned n_threads) {
    const std::size_t n = X.n_rows, d = X.n_features, n_axes = axes.n_rows, n_bodies = starts.size() - 1;
    const PackedRows<double> packed(axes);
    const auto dot = loops().kernel.finish_f64.dot;
    const std::size_t step = std::clamp<std::size_t>(kBlockValues / std::max<std::size_t>(n_axes, 1), 8, 64);
    const std::size_t n_blocks = (n + step - 1) / step;
    const double work = static_cast<double>(n) * static_cast<double>(n_axes) * static_cast<double>(d);
    const unsigned threads = work < kThreadWork ? 1u : std::max(1u, n_threads);
    std::vector<double> scratch(threads * step * n_axes);
    parallel_for(threads, threads, [&](std::size_t share) {
        double* values = scratch.data() + share * step * n_axes;
        for (std::size_t block = share; block < n_blocks; block += threads) {
            const std::size_t begin = block * step, rows = std::min(step, n - begin);
            kernel_rows<double, double>({KernelKind::linear}, {X.data + begin * d, rows, d}, packed, values, n_axes, 1);
            for (std::size_t i = 0; i < rows; ++i) {
                double* row = values + i * n_axes;
                for (std::size_t k = 0; k < n_axes; ++k) row[k] -= offsets[k];
                double* distances = out + (begin + i) * n_bodies;
                for (std::size_t b = 0; b < n_bodies; ++b)
                    distances[b] = dot(row + starts[b], row + starts[b], starts[b + 1] - starts[b]);
            }
        }
    });
}

}  // namespace steelyard
