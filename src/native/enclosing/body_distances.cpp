#include "enclosing/body_distances.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "common/numbers.hpp"
#include "common/threads.hpp"
#include "kernels/kernels.hpp"
#include "proximal/packed_planes.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Number of distances per block of rows, small enough to stay in the cache until they are compared.
constexpr std::size_t kBlockValues = 1 << 15;
constexpr std::size_t kMaxBlockRows = 64;
// Number of multiply-adds below which a second thread does not pay off.
constexpr double kThreadWork = 1e6;
constexpr double kNearlyEqual = 1e-14;

// Computes the squared distances of a block of rows to all spheres. `scratch` has scratch_width() values per row.
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

// Calls body(begin, block, scratch) for blocks of rows. `scratch` has space for scratch_width() + extra values per row.
template <class Bodies, class Body>
void for_blocks(const Bodies& bodies, Rows<double> X, std::size_t extra, unsigned n_threads, Body&& body) {
    const std::size_t n = X.n_rows, d = X.n_features;
    const std::size_t step =
        std::clamp<std::size_t>(kBlockValues / std::max<std::size_t>(bodies.width(), 1), 8, kMaxBlockRows);
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

// Finds the ball or ellipsoid with the smallest ratio of distance to radius, given the squared distances of a row.
class NearestRule {
  public:
    explicit NearestRule(std::span<const double> radii) : radii_(radii), factors_(radii.size()) {
        for (std::size_t b = 0; b < radii.size(); ++b) factors_[b] = 1.0 / (radii[b] * radii[b]);
    }
    std::size_t n_bodies() const { return radii_.size(); }
    double ratio(double squared_distance, std::size_t body) const { return std::sqrt(squared_distance) / radii_[body]; }

    // Square roots and divisions are slow, so squared ratios are compared. Only nearly equal ratios are computed.
    void decide(const double* distances, std::size_t i, Nearest out) const {
        const NearLeast near = near_least_(distances, factors_.data(), 1.0 + kNearlyEqual, n_bodies());
        std::size_t nearest = near.count == 1 ? near.at : 0;
        double smallest = ratio(distances[nearest], nearest);
        for (std::size_t b = 1; near.count != 1 && b < n_bodies(); ++b) {
            const double other = ratio(distances[b], b);
            if (other < smallest) smallest = other, nearest = b;
        }
        out.body[i] = static_cast<std::int64_t>(nearest);
        out.ratio[i] = smallest;
    }

  private:
    std::span<const double> radii_;
    std::vector<double> factors_;
    decltype(BallLoops::near_least) near_least_ = loops().ball.near_least;
};

template <class Bodies>
void find_nearest(const Bodies& bodies, Rows<double> X, std::span<const double> radii, Nearest out,
                  unsigned n_threads) {
    const NearestRule rule(radii);
    const std::size_t n_bodies = radii.size();
    for_blocks(bodies, X, n_bodies, n_threads, [&](std::size_t begin, Rows<double> block, double* scratch) {
        double* distances = scratch + block.n_rows * bodies.scratch_width();
        bodies.distances(block, scratch, distances);
        for (std::size_t i = 0; i < block.n_rows; ++i) rule.decide(distances + i * n_bodies, begin + i, out);
    });
}

// Approximate squared distances to spheres, |x|^2 - 2 c'x + |c|^2, relative to the mean of the centers c.
// Approximate distances suffer from cancellation, so they are used only to find the nearest sphere.
// If several spheres are the nearest within rounding errors, the caller computes exact distances.
class SphereScreen {
  public:
    SphereScreen(Rows<double> centers, std::span<const double> radii)
        : middle_(middle_of(centers)),
          planes_(normals(centers, radii), centers.n_rows, centers.n_features),
          doubt_(static_cast<double>(4 * centers.n_features + 128) * std::numeric_limits<double>::epsilon()) {
        // Padding after the last sphere is never the nearest sphere.
        factors_.resize(width(), 0.0);
        offsets_.resize(width(), kInfinity);
    }

    std::size_t width() const { return planes_.stride(); }
    std::size_t scratch_width() const { return width() + middle_.size() + 1; }

    // Marks a row for which several spheres may be the nearest.
    static constexpr std::size_t kUndecided = SIZE_MAX;
    void nearest(Rows<double> X, double* scratch, std::size_t* found) const {
        double *shifted = scratch + X.n_rows * width(), *squares = shifted + X.n_rows * X.n_features;
        ball_.shift_rows(X.data, X.n_rows, X.n_features, middle_.data(), shifted, squares);
        planes_.products(Rows<double>{shifted, X.n_rows, X.n_features}, scratch);
        for (std::size_t i = 0; i < X.n_rows; ++i) {
            const NearLeast near = ball_.perhaps_least(scratch + i * width(), factors_.data(), offsets_.data(),
                                                       squares[i] + kNoSquare, doubt_, width());
            found[i] = near.count == 1 ? near.at : kUndecided;
        }
    }

  private:
    // Squares below this limit may underflow, so that relative error bounds do not hold for them.
    static constexpr double kNoSquare = 1e-290;

    static std::vector<double> middle_of(Rows<double> centers) {
        std::vector<double> middle(centers.n_features, 0.0);
        for (std::size_t b = 0; b < centers.n_rows; ++b)
            for (std::size_t k = 0; k < centers.n_features; ++k)
                middle[k] += centers.data[b * centers.n_features + k] / static_cast<double>(centers.n_rows);
        return middle;
    }

    // Radii are divided by the largest radius, so that the squares of their inverses are at least 1.
    std::vector<double> normals(Rows<double> centers, std::span<const double> radii) {
        const double largest = *std::max_element(radii.begin(), radii.end());
        std::vector<double> normals;
        for (std::size_t b = 0; b < centers.n_rows; ++b) {
            const double factor = (largest / radii[b]) * (largest / radii[b]);
            double square = 0.0;
            for (std::size_t k = 0; k < centers.n_features; ++k) {
                const double c = centers.data[b * centers.n_features + k] - middle_[k];
                normals.push_back(-2.0 * factor * c);
                square += c * c;
            }
            factors_.push_back(factor);
            offsets_.push_back(factor * square);
        }
        return normals;
    }

    const BallLoops& ball_ = loops().ball;
    std::vector<double> middle_, factors_, offsets_;
    PackedPlanes planes_;
    double doubt_;
};

}  // namespace

bool all_within(std::span<const double> values, double limit, unsigned n_threads) {
    constexpr std::size_t kTask = 1 << 16;
    const std::size_t n_tasks = (values.size() + kTask - 1) / kTask;
    std::atomic<bool> beyond{false};
    parallel_for(n_tasks, n_tasks < 4 ? 1u : n_threads, [&](std::size_t task) {
        std::int64_t found = 0;  // has the size of a double, so that the loop can be vectorized
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
    if (radii.size() == 1) return find_nearest(Spheres(centers), X, radii, out, n_threads);
    const NearestRule rule(radii);
    const Spheres spheres(centers);
    const SphereScreen screen(centers, radii);
    const auto distance = loops().ball.squared_distance;
    const std::size_t d = X.n_features;
    for_blocks(screen, X, 0, n_threads, [&](std::size_t begin, Rows<double> block, double* scratch) {
        std::array<std::size_t, kMaxBlockRows> found;
        screen.nearest(block, scratch, found.data());
        // The scratch memory is no longer needed, so it is reused for the undecided rows and their distances.
        std::size_t n_undecided = 0;
        for (std::size_t i = 0; i < block.n_rows; ++i) {
            const double* row = block.data + i * d;
            if (found[i] == SphereScreen::kUndecided) {
                std::copy_n(row, d, scratch + n_undecided * d);
                found[n_undecided++] = i;
                continue;
            }
            out.body[begin + i] = static_cast<std::int64_t>(found[i]);
            out.ratio[begin + i] = rule.ratio(distance(row, centers.data + found[i] * d, d), found[i]);
        }
        double* distances = scratch + n_undecided * d;
        spheres.distances({scratch, n_undecided, d}, nullptr, distances);
        for (std::size_t u = 0; u < n_undecided; ++u)
            rule.decide(distances + u * spheres.size(), begin + found[u], out);
    });
}

void nearest_ellipsoid(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                       std::span<const std::size_t> starts, std::span<const double> radii, Nearest out,
                       unsigned n_threads) {
    find_nearest(Ellipsoids(axes, offsets, starts), X, radii, out, n_threads);
}

}  // namespace steelyard
