#include "steelyard/body_distances.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "steelyard/kernels.hpp"
#include "steelyard/simd.hpp"
#include "steelyard/threads.hpp"

namespace steelyard {

namespace {

// Values of one block of rows: small enough to be squared, summed and compared while still in the cache.
constexpr std::size_t kBlockValues = 1 << 15;
// Below this many multiply-adds a second thread costs more than it brings.
constexpr double kThreadWork = 1e6;
constexpr double kNearlyEqual = 1e-14;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Distances of a few rows at a time; `scratch` has room for scratch_width() values a row.
class Spheres {
  public:
    explicit Spheres(Rows<double> centers) : packed_(centers) {}
    std::size_t size() const { return packed_.size(); }
    std::size_t width() const { return packed_.size(); }
    std::size_t scratch_width() const { return 0; }
    void distances(Rows<double> X, double*, double* out) const {
        kernel_rows<double, double>({KernelKind::squared_distance}, X, packed_, out, size(), 1);
    }

  private:
    PackedRows<double> packed_;
};

class Ellipsoids {
  public:
    Ellipsoids(Rows<double> axes, std::span<const double> offsets, std::span<const std::size_t> starts)
        : packed_(axes), offsets_(offsets), starts_(starts) {}
    std::size_t size() const { return starts_.size() - 1; }
    std::size_t width() const { return packed_.size(); }
    std::size_t scratch_width() const { return packed_.size(); }
    void distances(Rows<double> X, double* scratch, double* out) const {
        const auto dot = loops().kernel.finish_f64.dot;
        const std::size_t n_axes = packed_.size();
        kernel_rows<double, double>({KernelKind::linear}, X, packed_, scratch, n_axes, 1);
        for (std::size_t i = 0; i < X.n_rows; ++i, scratch += n_axes) {
            for (std::size_t k = 0; k < n_axes; ++k) scratch[k] -= offsets_[k];
            for (std::size_t b = 0; b + 1 < starts_.size(); ++b)
                *out++ = dot(scratch + starts_[b], scratch + starts_[b], starts_[b + 1] - starts_[b]);
        }
    }

  private:
    PackedRows<double> packed_;
    std::span<const double> offsets_;
    std::span<const std::size_t> starts_;
};

// Calls body(begin, block, scratch) for blocks of rows; `extra` more values a row are there after the scratch's own.
template <class Bodies, class Body>
void for_blocks(const Bodies& bodies, Rows<double> X, std::size_t extra, unsigned n_threads, Body&& body) {
    const std::size_t n = X.n_rows, d = X.n_features;
    const std::size_t step = std::clamp<std::size_t>(kBlockValues / std::max<std::size_t>(bodies.width(), 1), 8, 64);
    const std::size_t n_blocks = (n + step - 1) / step, room = step * (bodies.scratch_width() + extra);
    const double work = static_cast<double>(n) * static_cast<double>(bodies.width()) * static_cast<double>(d);
    const unsigned threads = work < kThreadWork ? 1u : std::max(1u, n_threads);
    std::vector<double> scratch(threads * room);
    parallel_for(threads, threads, [&](std::size_t share) {
        for (std::size_t block = share; block < n_blocks; block += threads) {
            const std::size_t begin = block * step;
            body(begin, Rows<double>{X.data + begin * d, std::min(step, n - begin), d}, scratch.data() + share * room);
        }
    });
}

template <class Bodies>
void all_distances(const Bodies& bodies, Rows<double> X, double* out, unsigned n_threads) {
    for_blocks(bodies, X, 0, n_threads, [&](std::size_t begin, Rows<double> block, double* scratch) {
        bodies.distances(block, scratch, out + begin * bodies.size());
    });
}

double ratio(double squared_distance, double radius) { return std::sqrt(squared_distance) / radius; }

// Roots and quotients are slow, so squares decide; only where two are as good as equal, all are asked exactly.
template <class Bodies>
void find_nearest(const Bodies& bodies, Rows<double> X, std::span<const double> radii, Nearest out,
                  unsigned n_threads) {
    const auto near_least = loops().ball.near_least;
    const std::size_t n_bodies = bodies.size();
    std::vector<double> factors(n_bodies);
    for (std::size_t b = 0; b < n_bodies; ++b) factors[b] = 1.0 / (radii[b] * radii[b]);
    for_blocks(bodies, X, n_bodies, n_threads, [&](std::size_t begin, Rows<double> block, double* scratch) {
        const double* distances = scratch + block.n_rows * bodies.scratch_width();
        bodies.distances(block, scratch, scratch + block.n_rows * bodies.scratch_width());
        for (std::size_t i = 0; i < block.n_rows; ++i, distances += n_bodies) {
            const NearLeast near = near_least(distances, factors.data(), 1.0 + kNearlyEqual, n_bodies);
            std::size_t nearest = near.count == 1 ? near.at : 0;
            double smallest = ratio(distances[nearest], radii[nearest]);
            for (std::size_t b = 1; near.count != 1 && b < n_bodies; ++b) {
                const double other = ratio(distances[b], radii[b]);
                if (other < smallest) smallest = other, nearest = b;
            }
            out.body[begin + i] = static_cast<std::int64_t>(nearest);
            out.ratio[begin + i] = smallest;
        }
    });
}

}  // namespace

bool all_within(std::span<const double> values, double limit, unsigned n_threads) {
    constexpr std::size_t kTask = 1 << 16;
    const std::size_t n_tasks = (values.size() + kTask - 1) / kTask;
    std::atomic<bool> beyond{false};
    parallel_for(n_tasks, n_tasks < 4 ? 1u : n_threads, [&](std::size_t task) {
        std::int64_t found = 0;  // as wide as a value, so that several are looked at together
        for (const double value : values.subspan(task * kTask, std::min(kTask, values.size() - task * kTask)))
            found |= static_cast<std::int64_t>(!(std::fabs(value) <= limit));
        if (found) beyond.store(true, std::memory_order_relaxed);
    });
    return !beyond.load(std::memory_order_relaxed);
}

void sphere_distances(Rows<double> X, Rows<double> centers, double* out, unsigned n_threads) {
    all_distances(Spheres(centers), X, out, n_threads);
}

void ellipsoid_distances(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                         std::span<const std::size_t> starts, double* out, unsigned n_threads) {
    all_distances(Ellipsoids(axes, offsets, starts), X, out, n_threads);
}

void nearest_sphere(Rows<double> X, Rows<double> centers, std::span<const double> radii, Nearest out,
                    unsigned n_threads) {
    find_nearest(Spheres(centers), X, radii, out, n_threads);
}

void nearest_ellipsoid(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                       std::span<const std::size_t> starts, std::span<const double> radii, Nearest out,
                       unsigned n_threads) {
    find_nearest(Ellipsoids(axes, offsets, starts), X, radii, out, n_threads);
}

}  // namespace steelyard
