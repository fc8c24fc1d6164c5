#include "steelyard/scores.hpp"

#include <algorithm>
#include <atomic>
#include <vector>

#include "steelyard/simd.hpp"
#include "steelyard/threads.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kTaskRows = 2048;  // what a thread takes at a time
constexpr std::size_t kBlockRows = 128;  // scored together: the scores stay in the first-level cache

void one_plane(const ScoreLoops& loops, Rows<double> rows, const double* normal, double* out) {
    loops.one_plane_f64(rows.data, rows.n_rows, rows.n_features, normal, out);
}
void one_plane(const ScoreLoops& loops, Rows<float> rows, const double* normal, double* out) {
    loops.one_plane_f32(rows.data, rows.n_rows, rows.n_features, normal, out);
}
void many_planes(const ScoreLoops& loops, Rows<double> rows, const double* panel, std::size_t panels, double* out,
                 std::size_t stride) {
    loops.many_planes_f64(rows.data, rows.n_rows, rows.n_features, panel, panels, out, stride);
}
void many_planes(const ScoreLoops& loops, Rows<float> rows, const double* panel, std::size_t panels, double* out,
                 std::size_t stride) {
    loops.many_planes_f32(rows.data, rows.n_rows, rows.n_features, panel, panels, out, stride);
}

// The normals in the order in which the loops read them; planes past the last are zero.
class PackedPlanes {
  public:
    PackedPlanes(const Planes& planes, std::size_t n_features)
        : loops_(steelyard::loops().score), n_planes_(planes.intercepts.size()), n_features_(n_features) {
        if (n_planes_ == 1) {
            numbers_.assign(planes.normals.begin(), planes.normals.end());
            return;
        }
        n_panels_ = (n_planes_ + loops_.width - 1) / loops_.width;
        numbers_.assign(n_panels_ * n_features * loops_.width, 0.0);
        for (std::size_t p = 0; p < n_planes_; ++p)
            for (std::size_t k = 0; k < n_features; ++k)
                numbers_[(p / loops_.width * n_features + k) * loops_.width + p % loops_.width] =
                    planes.normals[p * n_features + k];
    }

    // Numbers from one row of scores to the next.
    std::size_t stride() const { return n_planes_ == 1 ? 1 : n_panels_ * loops_.width; }

    template <class T>
    void products(Rows<T> rows, double* out) const {
        if (n_planes_ == 1) return one_plane(loops_, rows, numbers_.data(), out);
        for (std::size_t panel = 0; panel < n_panels_; panel += loops_.group)
            many_planes(loops_, rows, numbers_.data() + panel * n_features_ * loops_.width,
                        std::min(loops_.group, n_panels_ - panel), out + panel * loops_.width, stride());
    }

  private:
    const ScoreLoops& loops_;
    std::size_t n_planes_, n_features_, n_panels_ = 1;
    AlignedVector<double> numbers_;
};

// Calls use(i, scores of row i) for every row; false if a score is not finite.
template <class T, class Use>
bool for_each_row(Rows<T> rows, const Planes& planes, unsigned n_threads, Use&& use) {
    const std::size_t n_planes = planes.intercepts.size(), d = rows.n_features;
    const PackedPlanes packed(planes, d);
    const double work = static_cast<double>(rows.n_rows) * static_cast<double>(d * n_planes);
    std::atomic<bool> finite{true};
    parallel_for((rows.n_rows + kTaskRows - 1) / kTaskRows, work < 2e6 ? 1 : n_threads, [&](std::size_t task) {
        const AlignedBuffer<double> scores = aligned_buffer<double>(kBlockRows * packed.stride());
        const std::size_t end = std::min(rows.n_rows, (task + 1) * kTaskRows);
        double doubt = 0.0;  // becomes NaN with the first score that is not finite
        for (std::size_t begin = task * kTaskRows; begin < end; begin += kBlockRows) {
            const Rows<T> block{rows.data + begin * d, std::min(kBlockRows, end - begin), d};
            packed.products(block, scores.get());
            for (std::size_t i = 0; i < block.n_rows; ++i) {
                double* row = scores.get() + i * packed.stride();
                for (std::size_t p = 0; p < n_planes; ++p) {
                    row[p] += planes.intercepts[p];
                    doubt += row[p] - row[p];
                }
                use(begin + i, row);
            }
        }
        if (doubt != 0.0) finite.store(false, std::memory_order_relaxed);
    });
    return finite.load();
}

std::size_t winner(const double* scores, std::size_t n_planes) {
    if (n_planes == 1) return scores[0] > 0.0;
    std::size_t best = 0;
    double highest = scores[0];
    for (std::size_t p = 1; p < n_planes; ++p) {
        best = scores[p] > highest ? p : best;
        highest = scores[p] > highest ? scores[p] : highest;
    }
    return best;
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
    const std::size_t n_planes = planes.intercepts.size();
    return for_each_row(rows, planes, n_threads,
                        [&](std::size_t i, const double* row) { labels[i] = labels_of[winner(row, n_planes)]; });
}

template bool linear_scores(Rows<double>, const Planes&, double*, unsigned);
template bool linear_scores(Rows<float>, const Planes&, double*, unsigned);
template bool linear_labels(Rows<double>, const Planes&, std::span<const std::uint64_t>, std::uint64_t*, unsigned);
template bool linear_labels(Rows<float>, const Planes&, std::span<const std::uint64_t>, std::uint64_t*, unsigned);

}  // namespace steelyard
