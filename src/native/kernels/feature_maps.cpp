#include "kernels/feature_maps.hpp"

#include <algorithm>
#include <vector>

#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kMapTaskRows = 256;  // rows per task
// Number of rows from which copying the weights of a block to contiguous memory pays off.
constexpr std::size_t kMinPackedRows = 8;
constexpr std::size_t kTaskValues = 1 << 16;

unsigned threads_for_map(unsigned wanted, std::size_t n_rows, std::size_t n_features, std::size_t n_outputs) {
    const double work = static_cast<double>(n_rows) * static_cast<double>(n_outputs * (n_features + 20));
    return work < 2e6 ? 1u : wanted;
}

// Clamps a value to [-limit, limit]; NaN becomes `limit`.
double between(double value, double limit) { return value < limit ? (value > -limit ? value : -limit) : limit; }

double to_step(double value) { return ((value * 0x1p19 + 0x1.8p52) - 0x1.8p52) * 0x1p-19; }

// Shifts, scales and rounds feature values as documented in FeatureMap. feature(i) is the feature index of value i.
template <class Feature>
void enter(const FeatureMap& map, const double* values, std::size_t n, Feature feature, double* entries) {
    const double *shift = map.shift.data(), *scale = map.scale.data();
    const auto scaled = [&](std::size_t i) { return (values[i] - shift[feature(i)]) * scale[feature(i)]; };
    switch (map.spec.kind) {
        case MapKind::halving:
            for (std::size_t i = 0; i < n; ++i) entries[i] = scaled(i);
            return;
        case MapKind::halving_2:
            for (std::size_t i = 0; i < n; ++i) entries[i] = to_step(between(scaled(i), 64.0));
            return;
        default:
            for (std::size_t i = 0; i < n; ++i)
                entries[i] = static_cast<double>(static_cast<float>(between(scaled(i), 1e30)));
    }
}

double entry(const FeatureMap& map, std::size_t feature, double x) {
    double result;
    enter(map, &x, 1, [feature](std::size_t) { return feature; }, &result);
    return result;
}

// Weights of blocks of outputs, copied to contiguous memory unless there are only a few rows.
class Blocks {
  public:
    Blocks(const FeatureMap& map, std::size_t n_rows)
        : map_(map), pack_all_(n_rows >= kMinPackedRows), weights_(map.n_features() * kMapBlock), starts_(kMapBlock) {}

    MapBlock operator()(std::size_t first) {
        const std::size_t m = map_.n_outputs(), width = std::min(kMapBlock, m - first);
        if (!pack_all_ && width == kMapBlock) return {map_.weights + first, m, map_.starts.data() + first};
        for (std::size_t k = 0; k < map_.n_features(); ++k)
            std::copy_n(map_.weights + k * m + first, width, weights_.data() + k * kMapBlock);
        std::copy_n(map_.starts.data() + first, width, starts_.data());
        return {weights_.data(), kMapBlock, starts_.data()};
    }

  private:
    const FeatureMap& map_;
    bool pack_all_;
    std::vector<double> weights_, starts_;
};

void map_task(const FeatureMap& map, const double* rows, std::size_t n, double* out) {
    const MapLoops& loops = steelyard::loops().map;
    const std::size_t d = map.n_features(), m = map.n_outputs();
    std::vector<double> entries(n * d), edge;
    for (std::size_t i = 0; i < n; ++i)
        enter(map, rows + i * d, d, [](std::size_t k) { return k; }, entries.data() + i * d);
    Blocks blocks(map, n);
    for (std::size_t first = 0; first < m; first += kMapBlock) {
        const MapBlock block = blocks(first);
        const std::size_t width = std::min(kMapBlock, m - first);
        if (width == kMapBlock) {
            loops.block(map.spec, entries.data(), n, d, block, out + first, m);
            continue;
        }
        edge.resize(n * kMapBlock);
        loops.block(map.spec, entries.data(), n, d, block, edge.data(), kMapBlock);
        for (std::size_t i = 0; i < n; ++i) std::copy_n(edge.data() + i * kMapBlock, width, out + i * m + first);
    }
}

// Entries of a sparse row that contribute to the sums of a feature map.
// Stored values contribute, and so do zeros of features with a shift, because the shift makes them nonzero.
struct SparseRow {
    std::vector<double> values;
    std::vector<std::size_t> features;

    void add(double value, std::size_t feature) {
        if (value == 0.0) return;
        values.push_back(value);
        features.push_back(feature);
    }
};

}  // namespace

void map_rows(const FeatureMap& map, Rows<double> rows, double* out, unsigned n_threads) {
    const std::size_t n = rows.n_rows, d = rows.n_features, m = map.n_outputs();
    parallel_for((n + kMapTaskRows - 1) / kMapTaskRows, threads_for_map(n_threads, n, d, m), [&](std::size_t task) {
        const std::size_t begin = task * kMapTaskRows;
        map_task(map, rows.data + begin * d, std::min(kMapTaskRows, n - begin), out + begin * m);
    });
}

void map_sparse_rows(const FeatureMap& map, std::span<const double> values, std::span<const std::int64_t> columns,
                     std::span<const std::int64_t> row_starts, double* out, unsigned n_threads) {
    const MapLoops& loops = steelyard::loops().map;
    const std::size_t n = row_starts.size() - 1, m = map.n_outputs();
    std::vector<std::size_t> shifted;  // features whose zeros contribute to the sums because of their shift
    for (std::size_t k = 0; k < map.n_features(); ++k)
        if (entry(map, k, 0.0) != 0.0) shifted.push_back(k);
    const unsigned threads = threads_for_map(n_threads, 1, values.size() / std::max<std::size_t>(n, 1), n * m);
    parallel_for((n + kMapTaskRows - 1) / kMapTaskRows, threads, [&](std::size_t task) {
        const std::size_t begin = task * kMapTaskRows, end = std::min(n, begin + kMapTaskRows);
        Blocks blocks(map, 1);
        std::vector<SparseRow> rows(end - begin);
        for (std::size_t i = begin; i < end; ++i) {
            auto zero = shifted.begin();
            for (std::int64_t at = row_starts[i]; at < row_starts[i + 1]; ++at) {
                const auto feature = static_cast<std::size_t>(columns[at]);
                for (; zero != shifted.end() && *zero < feature; ++zero)
                    rows[i - begin].add(entry(map, *zero, 0.0), *zero);
                if (zero != shifted.end() && *zero == feature) ++zero;
                rows[i - begin].add(entry(map, feature, values[at]), feature);
            }
            for (; zero != shifted.end(); ++zero) rows[i - begin].add(entry(map, *zero, 0.0), *zero);
        }
        double edge[kMapBlock];
        for (std::size_t first = 0; first < m; first += kMapBlock) {
            const MapBlock block = blocks(first);
            const std::size_t width = std::min(kMapBlock, m - first);
            for (std::size_t i = begin; i < end; ++i) {
                const SparseRow& row = rows[i - begin];
                double* to = width == kMapBlock ? out + i * m + first : edge;
                loops.sparse(map.spec, row.values.data(), row.features.data(), row.values.size(), block, to);
                if (to == edge) std::copy_n(edge, width, out + i * m + first);
            }
        }
    });
}

void round_to_step(std::span<double> values, double factor, double step, unsigned n_threads) {
    const auto round = loops().map.round;
    const std::size_t n_tasks = (values.size() + kTaskValues - 1) / kTaskValues;
    parallel_for(n_tasks, n_tasks < 8 ? 1 : n_threads, [&](std::size_t task) {
        const std::size_t begin = task * kTaskValues;
        round(values.data() + begin, std::min(kTaskValues, values.size() - begin), factor, step);
    });
}

}  // namespace steelyard
