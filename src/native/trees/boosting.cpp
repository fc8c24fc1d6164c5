#include "trees/boosting.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/interrupt.hpp"
#include "common/random.hpp"

// This file is compiled without contraction: a fused product would round otherwise on another machine.

namespace steelyard {

namespace {

constexpr std::size_t kBins = 64;
constexpr std::size_t kSample = 2048;  // rows that decide where bins end, of all classes alike
constexpr int kCountBits = 16;         // of a sum: below them rows are counted, above are curvatures
constexpr double kUnit = 0x1p30;       // of the largest weight, for whole gradients

// Added to a number and taken off again it rounds to the nearest whole number, ties to the even one.
constexpr double kRounding = 0x1.8p52;

std::int64_t to_whole(double value) {
    return std::bit_cast<std::int64_t>(value + kRounding) - std::bit_cast<std::int64_t>(kRounding);
}

// 1 / (1 + e^-score), to nine digits, by operations that round alike everywhere and that a compiler can do side by
// side.
double logistic(double score) {
    const double x = std::min(std::abs(score), 700.0);
    const double shifted = x * 1.4426950408889634 + kRounding, n = shifted - kRounding;
    const double r = n * 0.6931471805599453 - x;  // e^-x = 2^-n e^r with |r| <= log(2) / 2
    double e = 1.0 / 40320.0;
    for (const double factorial : {5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0}) e = e * r + 1.0 / factorial;
    const std::int64_t exponent =
        1023 - (std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRounding));
    e *= std::bit_cast<double>(exponent << 52);
    return (score >= 0.0 ? 1.0 : e) / (1.0 + e);
}

// Where the bins of every column end, and in which of them every value lies.
struct Binned {
    std::size_t n_rows = 0;
    std::vector<std::int32_t> columns;  // those whose values differ
    std::vector<std::vector<double>>
        borders;                     // of these columns: bin b holds values above border b - 1, up to border b
    std::vector<std::uint8_t> bins;  // (n_rows, columns.size())
};

// Rows that decide where bins end: of every class as many, evenly spaced.
std::vector<std::size_t> sampled_rows(std::span<const std::int64_t> codes, std::size_t n_classes) {
    const std::size_t most = std::max<std::size_t>(kSample / n_classes, 1);
    std::vector<std::vector<std::size_t>> of_class(n_classes);
    for (std::size_t r = 0; r < codes.size(); ++r) of_class[static_cast<std::size_t>(codes[r])].push_back(r);
    std::vector<std::size_t> sample;
    for (const auto& mine : of_class) {
        const std::size_t n = std::min(mine.size(), most);
        for (std::size_t i = 0; i < n; ++i) sample.push_back(mine[i * mine.size() / n]);
    }
    return sample;
}

// Borders half-way between values that differ: between all, or where another 64th of the values is full.
std::vector<double> borders_of(std::vector<double>& values) {
    std::ranges::sort(values);
    const std::size_t n = values.size();
    std::size_t distinct = 1;
    for (std::size_t i = 1; i < n; ++i) distinct += values[i] != values[i - 1];
    std::vector<double> borders;
    for (std::size_t i = 1; i < n; ++i) {
        const double low = values[i - 1], high = values[i];
        if (low == high || (distinct > kBins && i * kBins < (borders.size() + 1) * n)) continue;
        const double middle = 0.5 * low + 0.5 * high;
        borders.push_back(middle < high ? middle : low);
    }
    return borders;
}

Binned binned(Rows<double> X, std::span<const std::int64_t> codes, std::size_t n_classes) {
    Binned out;
    out.n_rows = X.n_rows;
    const std::vector<std::size_t> sample = sampled_rows(codes, n_classes);
    std::vector<double> values(sample.size());
    for (std::size_t c = 0; c < X.n_features; ++c) {
        std::ranges::transform(sample, values.begin(), [&](std::size_t r) { return X.data[r * X.n_features + c]; });
        std::vector<double> borders = borders_of(values);
        if (borders.empty()) continue;
        out.columns.push_back(static_cast<std::int32_t>(c));
        out.borders.push_back(std::move(borders));
    }
    const std::size_t width = out.columns.size();
    out.bins.resize(X.n_rows * width);
    for (std::size_t c = 0; c < width; ++c) {
        // Infinite borders behind the last one make every search as long, without a branch.
        std::array<double, kBins> borders;
        borders.fill(std::numeric_limits<double>::infinity());
        std::ranges::copy(out.borders[c], borders.begin());
        const double* column = X.data + out.columns[c];
        for (std::size_t r = 0; r < X.n_rows; ++r) {
            const double value = column[r * X.n_features];
            std::size_t bin = 0;
            for (std::size_t step = kBins / 2; step > 0; step /= 2) bin += borders[bin + step - 1] < value ? step : 0;
            out.bins[r * width + c] = static_cast<std::uint8_t>(bin);
        }
    }
    return out;
}

// Sums over some rows: of whole gradients; of whole curvatures, with the number of rows in the lowest bits.
struct alignas(16) Sum {
    std::int64_t gradient = 0;
    std::int64_t curvature_and_rows = 0;

    std::int64_t rows() const { return curvature_and_rows & ((std::int64_t{1} << kCountBits) - 1); }
    double g() const { return static_cast<double>(gradient); }
    double h() const { return static_cast<double>(curvature_and_rows >> kCountBits); }
    Sum& operator+=(const Sum& other) {
        gradient += other.gradient;
        curvature_and_rows += other.curvature_and_rows;
        return *this;
    }
    Sum operator-(const Sum& other) const {
        return {gradient - other.gradient, curvature_and_rows - other.curvature_and_rows};
    }
};

struct Split {
    double gain = 0.0;
    std::size_t column = 0, bin = 0;  // among those that the tree looks at; rows up to this bin go left
    Sum left;
};

struct Leaf {
    std::size_t begin, end;  // its rows in the order of rows
    Sum sum;
    std::size_t slot;  // of its sums by bin
    Split split;
    std::int32_t node;
};

// One plane: scores of the rows that are learned, and one tree after the other.
class Booster {
  public:
    Booster(const Binned& rows, const BoostSettings& settings, std::size_t n_looked_at)
        : rows_(rows),
          settings_(settings),
          width_(n_looked_at),
          order_(rows.n_rows),
          spare_(rows.n_rows),
          sums_(rows.n_rows),
          scores_(rows.n_rows, 0.0),
          bins_(rows.n_rows * n_looked_at),
          histograms_(settings.n_leaves * n_looked_at * kBins) {}

    void grow(const std::vector<double>& weights, const std::vector<double>& positive, std::uint64_t plane,
              Forest& forest) {
        int exponent = 0;  // of the largest weight; products with a power of two are exact
        std::frexp(*std::ranges::max_element(weights), &exponent);
        unit_ = std::ldexp(kUnit, -exponent);
        for (std::size_t t = 0; t < settings_.n_trees; ++t) {
            poll_interrupt();
            look_at(t, plane);
            for (std::size_t r = 0; r < rows_.n_rows; ++r) {
                const double p = logistic(scores_[r]);
                const double g = weights[r] * (p - positive[r]), h = weights[r] * (p * (1.0 - p));
                sums_[r] = {to_whole(g * unit_), (to_whole(h * unit_) << kCountBits) + 1};
            }
            grow_tree(forest);
        }
    }

  private:
    // The columns of the next tree, side by side.
    void look_at(std::size_t tree, std::uint64_t plane) {
        const std::size_t n = rows_.columns.size();
        if (width_ == n) {
            if (tree == 0) bins_ = rows_.bins;
            if (looked_at_.empty()) {
                looked_at_.resize(n);
                std::iota(looked_at_.begin(), looked_at_.end(), std::size_t{0});
            }
            return;
        }
        std::vector<std::pair<double, std::size_t>> drawn(n);
        for (std::size_t c = 0; c < n; ++c) drawn[c] = {uniform_at(settings_.seed + plane, tree, c), c};
        std::ranges::nth_element(drawn, drawn.begin() + static_cast<std::ptrdiff_t>(width_));
        looked_at_.clear();
        for (std::size_t i = 0; i < width_; ++i) looked_at_.push_back(drawn[i].second);
        std::ranges::sort(looked_at_);
        for (std::size_t r = 0; r < rows_.n_rows; ++r)
            for (std::size_t c = 0; c < width_; ++c) bins_[r * width_ + c] = rows_.bins[r * n + looked_at_[c]];
    }

    Sum* histogram(std::size_t slot) { return histograms_.data() + slot * width_ * kBins; }

    void add_up(const Leaf& leaf) {
        Sum* histogram = this->histogram(leaf.slot);
        std::memset(static_cast<void*>(histogram), 0, width_ * kBins * sizeof(Sum));
        for (std::size_t i = leaf.begin; i < leaf.end; ++i) {
            const std::size_t r = order_[i];
            const std::uint8_t* bins = bins_.data() + r * width_;
            const Sum sum = sums_[r];
            for (std::size_t c = 0; c < width_; ++c) histogram[c * kBins + bins[c]] += sum;
        }
    }

    double worth(double g, double h) const { return g * g / (h + ridge_); }

    // The best split is searched by gains, of which nearly all are seen to be too small without a quotient, many at a
    // time. Rounding is left ample room there: what is found is the same as if every gain were worked out.
    void find_split(Leaf& leaf) {
        leaf.split = {};
        const auto least = static_cast<std::int64_t>(settings_.least_rows);
        const std::int64_t n = leaf.sum.rows();
        if (n < 2 * least) return;
        const double g = leaf.sum.g(), h = leaf.sum.h(), whole = worth(g, h);
        std::array<Sum, kBins> left;
        std::array<double, kBins> gl, hl;
        for (std::size_t c = 0; c < width_; ++c) {
            const Sum* bins = histogram(leaf.slot) + c * kBins;
            const std::size_t n_borders = rows_.borders[looked_at_[c]].size();
            Sum sum;
            for (std::size_t b = 0; b < n_borders; ++b) left[b] = sum += bins[b];
            std::size_t begin = 0, end = n_borders;
            while (begin < end && left[begin].rows() < least) ++begin;
            while (begin < end && n - left[end - 1].rows() < least) --end;
            for (std::size_t b = begin; b < end; ++b) gl[b] = left[b].g(), hl[b] = left[b].h();
            const auto may_be_best = [&](std::size_t b, double best) {
                const double gr = g - gl[b], low = hl[b] + ridge_, high = (h - hl[b]) + ridge_;
                return gl[b] * gl[b] * high + gr * gr * low > best * (low * high);
            };
            const auto to_beat = [&] { return (leaf.split.gain + whole) * (1.0 - 1e-12); };
            const double best = to_beat();
            std::int64_t n_better = 0;
            for (std::size_t b = begin; b < end; ++b) n_better += may_be_best(b, best);
            if (n_better == 0) continue;
            for (std::size_t b = begin; b < end; ++b) {
                if (!may_be_best(b, to_beat())) continue;
                const Sum right = leaf.sum - left[b];
                const double gain = worth(left[b].g(), left[b].h()) + worth(right.g(), right.h()) - whole;
                if (gain > leaf.split.gain) leaf.split = {gain, c, b, left[b]};
            }
        }
    }

    // Rows of the left side first, all in the order they had.
    std::size_t part(const Leaf& leaf) {
        std::size_t left = leaf.begin, n_right = 0;
        for (std::size_t i = leaf.begin; i < leaf.end; ++i) {
            const std::uint32_t r = order_[i];
            const bool is_left = bins_[r * width_ + leaf.split.column] <= leaf.split.bin;
            order_[left] = r;
            spare_[n_right] = r;
            left += is_left;
            n_right += !is_left;
        }
        std::copy_n(spare_.begin(), n_right, order_.begin() + static_cast<std::ptrdiff_t>(left));
        return left;
    }

    std::int32_t new_node(Forest& forest) {
        forest.feature.push_back(-1);
        forest.left.push_back(-1);
        forest.number.push_back(0.0);
        return static_cast<std::int32_t>(forest.feature.size()) - 1;
    }

    void grow_tree(Forest& forest) {
        ridge_ = settings_.ridge * unit_;
        std::iota(order_.begin(), order_.end(), std::uint32_t{0});
        Leaf root{0, order_.size(), {}, 0, {}, new_node(forest)};
        forest.roots.push_back(root.node);
        for (const Sum& sum : sums_) root.sum += sum;
        if (width_ > 0) {
            add_up(root);
            find_split(root);
        }
        leaves_.assign(1, root);
        while (leaves_.size() < settings_.n_leaves) {
            const auto best = std::ranges::max_element(leaves_, {}, [](const Leaf& leaf) { return leaf.split.gain; });
            if (best->split.gain <= 0.0) break;
            split(*best, forest);
        }
        for (const Leaf& leaf : leaves_) {
            const double value = -settings_.rate * leaf.sum.g() / (leaf.sum.h() + ridge_);
            forest.number[static_cast<std::size_t>(leaf.node)] = value;
            for (std::size_t i = leaf.begin; i < leaf.end; ++i) scores_[order_[i]] += value;
        }
    }

    void split(Leaf& leaf, Forest& forest) {
        const auto node = static_cast<std::size_t>(leaf.node);
        const std::size_t middle = part(leaf), column = looked_at_[leaf.split.column];
        const std::int32_t first = new_node(forest);
        new_node(forest);
        forest.feature[node] = rows_.columns[column];
        forest.number[node] = rows_.borders[column][leaf.split.bin];
        forest.left[node] = first;
        Leaf left{leaf.begin, middle, leaf.split.left, leaf.slot, {}, first};
        Leaf right{middle, leaf.end, leaf.sum - leaf.split.left, leaves_.size(), {}, first + 1};
        if (leaves_.size() + 1 < settings_.n_leaves) {  // else nobody will ask
            // The shorter side is added up; the longer one is what is left of both.
            const bool swapped = left.end - left.begin < right.end - right.begin;
            if (swapped) std::swap(left.slot, right.slot);
            const Leaf& shorter = swapped ? left : right;
            add_up(shorter);
            Sum* longer = histogram(leaf.slot);
            const Sum* taken = histogram(leaves_.size());
            for (std::size_t i = 0; i < width_ * kBins; ++i) longer[i] = longer[i] - taken[i];
            find_split(left);
            find_split(right);
        }
        leaf = left;
        leaves_.push_back(right);
    }

    const Binned& rows_;
    const BoostSettings& settings_;
    std::size_t width_;
    std::vector<std::uint32_t> order_, spare_;
    std::vector<Sum> sums_;
    std::vector<double> scores_;
    std::vector<std::uint8_t> bins_;
    std::vector<Sum> histograms_;
    std::vector<std::size_t> looked_at_;
    std::vector<Leaf> leaves_;
    double unit_ = 1.0, ridge_ = 0.0;
};

// Weights under which both sides of a plane count alike, and all rows together as many as they are.
std::vector<double> balanced(std::span<const double> weights, const std::vector<double>& positive) {
    double total[2] = {0.0, 0.0};
    for (std::size_t r = 0; r < weights.size(); ++r) total[positive[r] > 0.0] += weights[r];
    const double half = 0.5 * static_cast<double>(weights.size());
    std::vector<double> out(weights.size());
    for (std::size_t r = 0; r < weights.size(); ++r) out[r] = weights[r] * (half / total[positive[r] > 0.0]);
    return out;
}

}  // namespace

Forest grow_forest(Rows<double> X, std::span<const std::int64_t> codes, std::span<const double> weights,
                   std::size_t n_classes, const BoostSettings& settings) {
    const Binned rows = binned(X, codes, n_classes);
    const std::size_t n_planes = n_classes > 2 ? n_classes : 1;
    Forest forest;
    for (std::size_t plane = 0; plane < n_planes; ++plane) {
        const auto side = static_cast<std::int64_t>(n_classes > 2 ? plane : 1);
        std::vector<double> positive(codes.size());
        std::ranges::transform(codes, positive.begin(), [=](std::int64_t code) { return code == side ? 1.0 : 0.0; });
        Booster booster(rows, settings, std::min(settings.n_columns, rows.columns.size()));
        booster.grow(balanced(weights, positive), positive, plane, forest);
    }
    return forest;
}

void forest_scores(Rows<double> X, const Forest& forest, std::size_t n_planes, double* out) {
    const std::size_t n_trees = forest.roots.size() / n_planes;
    for (std::size_t r = 0; r < X.n_rows; ++r) {
        const double* row = X.data + r * X.n_features;
        for (std::size_t plane = 0; plane < n_planes; ++plane) {
            double sum = 0.0;
            for (std::size_t t = 0; t < n_trees; ++t) {
                auto node = static_cast<std::size_t>(forest.roots[plane * n_trees + t]);
                while (forest.feature[node] >= 0)
                    node = static_cast<std::size_t>(forest.left[node] +
                                                    !(row[forest.feature[node]] <= forest.number[node]));
                sum += forest.number[node];
            }
            out[r * n_planes + plane] = sum;
        }
    }
}

bool is_sound(const Forest& forest, std::size_t n_planes, std::size_t n_features) {
    const auto n = static_cast<std::int64_t>(forest.feature.size());
    if (forest.left.size() != forest.feature.size() || forest.number.size() != forest.feature.size()) return false;
    if (n_planes == 0 || forest.roots.empty() || forest.roots.size() % n_planes != 0) return false;
    for (const std::int32_t root : forest.roots)
        if (root < 0 || root >= n) return false;
    for (std::int64_t node = 0; node < n; ++node) {
        const auto i = static_cast<std::size_t>(node);
        if (!std::isfinite(forest.number[i])) return false;
        if (forest.feature[i] < 0) continue;
        // Children stand behind their node: a walk that only goes on comes to an end.
        if (forest.feature[i] >= static_cast<std::int64_t>(n_features) || forest.left[i] <= node ||
            forest.left[i] + 1 >= n)
            return false;
    }
    return true;
}

}  // namespace steelyard
