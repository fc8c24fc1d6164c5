#include "trees/gradient_boosting.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <exception>
#include <limits>
#include <numeric>
#include <string_view>

#include "common/compiler.hpp"
#include "common/interrupt.hpp"
#include "common/portable_math.hpp"
#include "common/random.hpp"
#include "common/threads.hpp"
#include "simd/simd.hpp"
#include "trees/binning.hpp"
#include "trees/histogram_sums.hpp"

// Compiled without floating-point contraction: a fused multiply-add rounds differently, and not every CPU has one.

namespace steelyard {

namespace {

constexpr std::size_t kPrefetchRows = 16;
constexpr std::size_t kMinValuesPerThread = 100'000;  // a thread with fewer table cells is not worth its start
constexpr std::size_t kMinValuesPerLoop = 4'000;      // a loop over fewer values runs on one thread of a team

// Returns 1 / (1 + e^-score), accurate to nine digits for |score| <= 700.
// All operations round identically on every machine and can be vectorized.
STEELYARD_ALWAYS_INLINE inline double logistic(double score) {
    const double x = std::abs(score);
    const double shifted = x * 1.4426950408889634 + kRounding, n = shifted - kRounding;
    const double r = n * 0.6931471805599453 - x;  // e^-x = 2^-n e^r with |r| <= log(2) / 2
    double e = 1.0 / 40320.0;
    e = e * r + 1.0 / 5040.0;
    e = e * r + 1.0 / 720.0;
    e = e * r + 1.0 / 120.0;
    e = e * r + 1.0 / 24.0;
    e = e * r + 1.0 / 6.0;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    const std::uint64_t exponent =
        1023 - (std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kRounding));
    e *= std::bit_cast<double>(exponent << 52);
    // Mask with all bits set if the score is negative.
    const std::uint64_t is_negative = 0 - (std::bit_cast<std::uint64_t>(score) >> 63);
    const std::uint64_t numerator =
        (std::bit_cast<std::uint64_t>(e) & is_negative) | (std::bit_cast<std::uint64_t>(1.0) & ~is_negative);
    return std::bit_cast<double>(numerator) / (1.0 + e);
}

constexpr std::size_t kGradientRows = 256;  // number of rows whose gradients are computed together

// Arguments of a function that writes the sums of single rows, at most kGradientRows of them (see quantize()).
template <class Format>
struct GradientQuery {
    const Format& format;
    const double *scores, *weights, *target;
    std::size_t n;
    std::uint64_t key;
    std::size_t first_row;
    typename Format::Sum* out;
};

// Writes the sums of single rows. The loops have a constant length, so that the compiler vectorizes them; values after
// the last row are not used.
template <class Format>
STEELYARD_ALWAYS_INLINE inline void quantize_gradients(const GradientQuery<Format>& q) {
    double score[kGradientRows] = {}, weight[kGradientRows] = {}, target[kGradientRows] = {};
    double p[kGradientRows], g[kGradientRows], h[kGradientRows];
    typename Format::Sum sums[kGradientRows];
    std::copy_n(q.scores, q.n, score);
    std::copy_n(q.weights, q.n, weight);
    std::copy_n(q.target, q.n, target);
    for (double& value : score) value = value < 700.0 ? value : 700.0;
    for (double& value : score) value = value > -700.0 ? value : -700.0;
    for (std::size_t i = 0; i < kGradientRows; ++i) p[i] = logistic(score[i]);
    for (std::size_t i = 0; i < kGradientRows; ++i) {
        g[i] = weight[i] * (p[i] - target[i]);
        h[i] = weight[i] * (p[i] * (1.0 - p[i]));
    }
    q.format.template quantize<kGradientRows>(g, h, q.key, q.first_row, sums);
    std::copy_n(sums, q.n, q.out);
}

template <class Format>
void quantize_baseline(const GradientQuery<Format>& query) {
    quantize_gradients(query);
}

#if defined(__x86_64__)
template <class Format>
STEELYARD_TARGET_AVX2 void quantize_avx2(const GradientQuery<Format>& query) {
    quantize_gradients(query);
}

template <class Format>
STEELYARD_TARGET_AVX512 void quantize_avx512(const GradientQuery<Format>& query) {
    quantize_gradients(query);
}
#endif

// Returns the version for the active SIMD level. All versions compute the same bits.
template <class Format>
auto gradient_version([[maybe_unused]] std::string_view level) -> void (*)(const GradientQuery<Format>&) {
#if defined(__x86_64__)
    if (level == "avx512") return quantize_avx512<Format>;
    if (level == "avx2") return quantize_avx2<Format>;
#endif
    return quantize_baseline<Format>;
}

template <class Sum>
struct Split {
    double gain = 0.0;
    std::size_t column = 0;  // index of the split column in `columns` of the BinnedRows
    std::size_t bin = 0;     // numeric column: rows up to this bin go left
    bool missing_left = false;
    Sum left{};
    std::vector<std::uint16_t> left_bins;  // category column: rows in these bins go left
};

template <class Sum>
struct Leaf {
    std::size_t begin, end;  // range of the rows of the leaf in `order_`
    Sum sum;
    std::size_t histogram;
    Split<Sum> split;
    std::int32_t node;
};

// Returns the number of bins of a narrow column in a histogram.
std::size_t histogram_stride(std::size_t max_bins) { return max_bins <= 64 ? 64 : kMaxBins; }

// Adds one row to the histograms of N columns.
template <std::size_t Stride, std::size_t N, class Sum>
inline void add_row(const std::uint8_t* bins, const std::uint32_t* places, const Sum& sum, Sum* histogram) {
    for (std::size_t c = 0; c < N; ++c) histogram[c * Stride + bins[places[c]]] += sum;
}

// Adds rows to the histograms of some columns, or subtracts them. Bins are in row-major order.
template <std::size_t Stride, bool Subtracts, class Sum>
void add_rows(const std::uint8_t* bins, std::size_t width, std::span<const std::uint32_t> places,
              const std::uint32_t* rows, std::size_t n_rows, const Sum* sums, Sum* histogram) {
    const std::size_t n = places.size();
    for (std::size_t i = 0; i < n_rows; ++i) {
        if (i + kPrefetchRows < n_rows) {
            prefetch(bins + rows[i + kPrefetchRows] * width);
            prefetch(sums + rows[i + kPrefetchRows]);
        }
        const std::uint8_t* row = bins + rows[i] * width;
        const Sum sum = Subtracts ? Sum{} - sums[rows[i]] : sums[rows[i]];
        std::size_t c = 0;
        for (; c + 8 <= n; c += 8) add_row<Stride, 8>(row, places.data() + c, sum, histogram + c * Stride);
        for (; c + 2 <= n; c += 2) add_row<Stride, 2>(row, places.data() + c, sum, histogram + c * Stride);
        if (c < n) add_row<Stride, 1>(row, places.data() + c, sum, histogram + c * Stride);
    }
}

// Boosting of one output: fits the trees sequentially. The format is that of the sums in histograms.
template <class Format>
class Booster {
    using Sum = typename Format::Sum;
    using Split = steelyard::Split<Sum>;
    using Leaf = steelyard::Leaf<Sum>;

  public:
    Booster(const BinnedRows& rows, const BoostingSettings& settings, const std::vector<double>& weights,
            const std::vector<double>& target, double base_score, std::uint64_t output)
        : rows_(rows),
          settings_(settings),
          weights_(weights),
          target_(target),
          output_(output),
          width_(std::min(settings.max_columns, rows.columns.size())),
          stride_(histogram_stride(settings.max_bins)),
          format_(rows.n_rows, *std::ranges::max_element(weights)),
          l2_(settings.l2_regularization * format_.unit()),
          category_l2_((settings.l2_regularization + settings.category_l2) * format_.unit()),
          smoothing_(settings.category_smoothing * format_.unit()),
          order_(rows.n_rows),
          spare_(rows.n_rows),
          sums_(rows.n_rows),
          scores_(rows.n_rows, base_score),
          goes_left_(kMaxBins) {
        trees_.base_score.push_back(base_score);
        trees_.set_begin.push_back(0);
    }

    TreeEnsemble fit(SharedPoll& poll) {
        const std::size_t n_useful = 1 + rows_.n_rows * width_ / kMinValuesPerThread;
        const auto n_threads = static_cast<unsigned>(std::min<std::size_t>(settings_.n_threads, n_useful));
        std::exception_ptr error;
        run_team(n_threads, [&](unsigned thread, unsigned n, SpinBarrier& barrier) {
            team_.serve(thread, n, barrier, [&] {
                try {
                    fit_trees(poll);
                } catch (...) {
                    error = std::current_exception();
                }
            });
        });
        if (error) std::rethrow_exception(error);
        return std::move(trees_);
    }

  private:
    void fit_trees(SharedPoll& poll) {
        for (std::size_t t = 0; t < settings_.n_trees && poll.goes_on(); ++t) {
            team_.prepare();
            select_columns(t);
            const std::size_t n_sampled = select_rows(t);
            compute_gradients(t);
            grow_tree(n_sampled);
        }
    }

    // Calls body(part, begin, end) for consecutive parts of [0, n), one part per thread if there are enough values.
    template <class Body>
    void for_parts(std::size_t n, std::size_t n_values, Body&& body) {
        const unsigned n_parts = n_values < kMinValuesPerLoop ? 1 : team_.n_threads();
        if (n_parts == 1) return body(0u, std::size_t{0}, n);
        team_.run([&](unsigned part) { body(part, n * part / n_parts, n * (part + 1) / n_parts); });
    }

    // Draws the columns of the next tree.
    void select_columns(std::size_t tree) {
        const std::size_t n = rows_.columns.size();
        if (width_ == n && tree > 0) return;
        selected_.resize(n);
        std::iota(selected_.begin(), selected_.end(), std::size_t{0});
        if (width_ < n) {
            std::vector<std::pair<double, std::size_t>> drawn(n);
            for (std::size_t c = 0; c < n; ++c) drawn[c] = {uniform_at(settings_.seed + output_, tree, c), c};
            std::ranges::nth_element(drawn, drawn.begin() + static_cast<std::ptrdiff_t>(width_));
            for (std::size_t i = 0; i < width_; ++i) selected_[i] = drawn[i].second;
            selected_.resize(width_);
            std::ranges::sort(selected_);
        }
        narrow_.clear();
        for (const std::size_t c : selected_)
            if (!rows_.columns[c].is_wide) narrow_.push_back(c);
        histogram_size_ = narrow_.size() * stride_;
        std::size_t narrow_begin = 0;
        histogram_begin_.clear();
        n_narrow_.assign(1, 0);
        for (const std::size_t c : selected_) {
            const BinnedColumn& column = rows_.columns[c];
            n_narrow_.push_back(n_narrow_.back() + !column.is_wide);
            std::size_t& begin = column.is_wide ? histogram_size_ : narrow_begin;
            histogram_begin_.push_back(begin);
            begin += column.is_wide ? column.n_bins() + 1 : stride_;
        }
        histograms_.resize(settings_.max_leaves * histogram_size_);
        place_narrow_columns();
    }

    // Copies narrow columns to row-major order: if a tree uses many of them, all for the first tree.
    void place_narrow_columns() {
        const std::size_t n_all = rows_.n_rows > 0 ? rows_.bins.size() / rows_.n_rows : 0;
        const bool has_all = 2 * narrow_.size() >= n_all;
        places_.resize(narrow_.size());
        for (std::size_t c = 0; c < narrow_.size(); ++c)
            places_[c] = static_cast<std::uint32_t>(has_all ? rows_.place[narrow_[c]] : c);
        if (!has_all) return copy_columns(narrow_);
        if (has_all_) return;
        std::vector<std::size_t> all;
        for (std::size_t c = 0; c < rows_.columns.size(); ++c)
            if (!rows_.columns[c].is_wide) all.push_back(c);
        copy_columns(all);
        has_all_ = true;
    }

    void copy_columns(const std::vector<std::size_t>& columns) {
        const std::size_t width = bins_width_ = columns.size();
        has_all_ = false;
        bins_.resize(rows_.n_rows * width);
        for_parts(rows_.n_rows, rows_.n_rows * width, [&](unsigned, std::size_t begin, std::size_t end) {
            constexpr std::size_t kBlockRows = 256;
            for (; begin < end; begin += kBlockRows) {
                const std::size_t block_end = std::min(begin + kBlockRows, end);
                for (std::size_t c = 0; c < width; ++c) {
                    const std::uint8_t* column = rows_.column(columns[c]);
                    for (std::size_t r = begin; r < block_end; ++r) bins_[r * width + c] = column[r];
                }
            }
        });
    }

    // Writes the rows that are sampled for the next tree to the front of `order_`, followed by all other rows.
    // Returns the number of sampled rows.
    std::size_t select_rows(std::size_t tree) {
        std::iota(order_.begin(), order_.end(), std::uint32_t{0});
        if (settings_.row_fraction >= 1.0) return order_.size();
        // Sampling of rows and of columns needs different seeds, because both use the same sequence of random numbers.
        const std::uint64_t seed = mix_bits(settings_.seed + output_ + 1);
        const std::size_t n = partition(
            0, order_.size(), [&](std::size_t r) { return uniform_at(seed, tree, r) < settings_.row_fraction; });
        return n > 0 ? n : order_.size();
    }

    void compute_gradients(std::size_t tree) {
        const std::uint64_t key = mix_bits(settings_.seed + output_) + tree;
        for_parts(rows_.n_rows, 5 * rows_.n_rows, [&](unsigned, std::size_t begin, std::size_t end) {
            for (; begin < end; begin += kGradientRows)
                quantize_({format_, scores_.data() + begin, weights_.data() + begin, target_.data() + begin,
                           std::min(kGradientRows, end - begin), key, begin, sums_.data() + begin});
        });
    }

    // Returns the number of sums of a selected column in a histogram: its bins and the bin of missing values.
    std::size_t n_sums(std::size_t c) const {
        const BinnedColumn& column = rows_.columns[selected_[c]];
        return column.n_bins() + column.has_missing;
    }

    Sum* histogram(std::size_t i) { return histograms_.data() + i * histogram_size_; }

    // Computes the histograms of the selected columns first..last.
    void build_histogram(const Leaf& leaf, std::size_t first, std::size_t last) {
        Sum* out = histogram(leaf.histogram);
        for (std::size_t c = first; c < last; ++c) std::fill_n(out + histogram_begin_[c], n_sums(c), Sum{});
        add_to_histogram<false>(leaf, first, last, out);
    }

    // Adds the rows of a leaf to the histograms of the selected columns first..last, or subtracts them.
    template <bool Subtracts>
    void add_to_histogram(const Leaf& leaf, std::size_t first, std::size_t last, Sum* out) {
        const std::size_t n = leaf.end - leaf.begin, begin = n_narrow_[first];
        const std::span<const std::uint32_t> places{places_.data() + begin, n_narrow_[last] - begin};
        const std::uint32_t* rows = order_.data() + leaf.begin;
        Sum* narrow = out + begin * stride_;
        if (stride_ == 64)
            add_rows<64, Subtracts>(bins_.data(), bins_width_, places, rows, n, sums_.data(), narrow);
        else
            add_rows<256, Subtracts>(bins_.data(), bins_width_, places, rows, n, sums_.data(), narrow);
        for (std::size_t c = first; c < last; ++c) {
            if (!rows_.columns[selected_[c]].is_wide) continue;
            const std::uint16_t* bins = rows_.wide_column(selected_[c]);
            Sum* column = out + histogram_begin_[c];
            for (std::size_t i = 0; i < n; ++i)
                column[bins[rows[i]]] += Subtracts ? Sum{} - sums_[rows[i]] : sums_[rows[i]];
        }
    }

    static double gain_term(double g, double h, double l2) { return g * g / (h + l2); }

    // Returns whether a leaf has enough rows for two children.
    bool can_split(const Leaf& leaf) const {
        return format_.rows(leaf.sum) >= 2 * static_cast<std::int64_t>(settings_.min_rows_per_leaf);
    }

    // Replaces the split of a leaf if the selected column `c` has a better one.
    void improve_split(Leaf& leaf, std::size_t c) {
        const Sum* bins = histogram(leaf.histogram) + histogram_begin_[c];
        if (rows_.columns[selected_[c]].is_category)
            find_category_split(leaf, selected_[c], bins);
        else
            find_numeric_split(leaf, selected_[c], bins);
    }

    void subtract(Sum* larger, const Sum* smaller, std::size_t n) const {
        loops_.split.subtract(reinterpret_cast<std::int64_t*>(larger), reinterpret_cast<const std::int64_t*>(smaller),
                              n * sizeof(Sum) / sizeof(std::int64_t));
    }

    // Computes the histogram and the best split of a leaf and, if `sibling` is given, those of its larger sibling.
    // The sibling still has the histogram of the parent, from which the histogram of the leaf is subtracted.
    // A leaf that cannot be split needs no histogram: its rows are subtracted from the histogram of the parent.
    // A column is finished while its histograms are in the cache. Each thread processes some of the columns.
    void find_splits(Leaf& leaf, Leaf* sibling) {
        if (sibling ? !can_split(*sibling) : !can_split(leaf)) return;  // the leaf is not larger than its sibling
        const bool is_final = !can_split(leaf);
        std::vector<std::pair<Split, Split>> found(team_.n_threads());  // splits of the leaf and of its sibling
        const std::size_t n_values = width_ * (leaf.end - leaf.begin) + histogram_size_;
        for_parts(width_, n_values, [&](unsigned part, std::size_t first, std::size_t last) {
            Leaf own = leaf, other = sibling ? *sibling : leaf;
            if (is_final)
                add_to_histogram<true>(leaf, first, last, histogram(other.histogram));
            else
                build_histogram(leaf, first, last);
            for (std::size_t c = first; c < last; ++c) {
                if (!is_final) improve_split(own, c);
                if (!sibling) continue;
                const std::size_t begin = histogram_begin_[c];
                if (!is_final)
                    subtract(histogram(other.histogram) + begin, histogram(own.histogram) + begin, n_sums(c));
                improve_split(other, c);
            }
            found[part] = {std::move(own.split), std::move(other.split)};
        });
        for (auto& [split, split_of_sibling] : found) {  // in the order of columns, as on one thread
            if (split.gain > leaf.split.gain) leaf.split = std::move(split);
            if (sibling && split_of_sibling.gain > sibling->split.gain) sibling->split = std::move(split_of_sibling);
        }
    }

    void find_numeric_split(Leaf& leaf, std::size_t c, const Sum* bins) {
        const BinnedColumn& column = rows_.columns[c];
        const std::size_t n_bins = column.n_bins();
        const Sum missing = column.has_missing ? bins[n_bins] : Sum{};
        const bool has_missing = format_.rows(missing) > 0;
        scan_bins(leaf, c, bins, n_bins - !has_missing, Sum{}, has_missing, false);
        if (has_missing) scan_bins(leaf, c, bins, n_bins - 1, missing, true, true);
    }

    // Evaluates the split after each of the first `n` bins.
    // A vectorized test without divisions rejects almost all splits.
    // The test has a margin for rounding errors, so the best split is the same as if every gain were computed.
    void scan_bins(Leaf& leaf, std::size_t c, const Sum* bins, std::size_t n, Sum sum, bool has_missing,
                   bool missing_left) {
        const double g = format_.g(leaf.sum), h = format_.h(leaf.sum), l2 = l2_, parent = gain_term(g, h, l2);
        const auto to_beat = [&] { return (leaf.split.gain + parent) * (1.0 - 1e-12); };
        std::array<Sum, kMaxBins> prefix_sums;
        std::array<std::uint16_t, kMaxBins> chosen;
        const SplitLimits limits{static_cast<std::int64_t>(settings_.min_rows_per_leaf), l2, to_beat()};
        const std::size_t n_chosen =
            format_.scan(loops_.split, bins, n, sum, leaf.sum, limits, prefix_sums.data(), chosen.data());
        for (std::size_t i = 0; i < n_chosen; ++i) {
            const std::size_t b = chosen[i];
            const Sum& left = prefix_sums[b];
            const double gl = format_.g(left), hl = format_.h(left), gr = g - gl;
            const double low = hl + l2, high = (h - hl) + l2;
            if (!(gl * gl * high + gr * gr * low > to_beat() * (low * high))) continue;
            const Sum right = leaf.sum - left;
            const double gain = gain_term(gl, hl, l2) + gain_term(format_.g(right), format_.h(right), l2) - parent;
            if (!(gain > leaf.split.gain)) continue;
            const bool larger_left = format_.rows(left) >= format_.rows(right);
            leaf.split = {gain, c, b, has_missing ? missing_left : larger_left, left, {}};
        }
    }

    // Sorts categories by gradient / hessian and evaluates prefixes and suffixes of this order as left children.
    void find_category_split(Leaf& leaf, std::size_t c, const Sum* bins) {
        const auto min_rows = static_cast<std::int64_t>(settings_.min_rows_per_leaf);
        const std::int64_t min_category_rows =
            std::max<std::int64_t>(static_cast<std::int64_t>(settings_.min_rows_per_category), 1);
        const double parent = gain_term(format_.g(leaf.sum), format_.h(leaf.sum), l2_);
        std::vector<std::pair<double, std::uint16_t>> sorted;  // categories sorted by gradient / hessian
        Sum others = leaf.sum;
        for (std::size_t b = 0; b < rows_.columns[c].n_bins(); ++b) {
            if (format_.rows(bins[b]) < min_category_rows) continue;
            sorted.emplace_back(format_.g(bins[b]) / (format_.h(bins[b]) + smoothing_), static_cast<std::uint16_t>(b));
            others = others - bins[b];
        }
        const std::size_t n = sorted.size();
        const bool has_others = format_.rows(others) > 0;
        if (n + has_others < 2) return;
        std::ranges::sort(sorted);
        const std::size_t n_sets = std::min(settings_.max_categories, has_others ? n : n - 1);
        for (const bool is_descending : {false, true}) {
            if (is_descending) std::ranges::reverse(sorted);
            Sum left{};
            for (std::size_t i = 0; i < n_sets; ++i) {
                left += bins[sorted[i].second];
                const Sum right = leaf.sum - left;
                const std::int64_t n_left = format_.rows(left), n_right = format_.rows(right);
                if (n_left < min_rows || n_right < min_rows) continue;
                const double gain = gain_term(format_.g(left), format_.h(left), category_l2_) +
                                    gain_term(format_.g(right), format_.h(right), category_l2_) - parent;
                if (!(gain > leaf.split.gain)) continue;
                const bool swapped = !has_others && n_left > n_right;
                leaf.split = {gain, c, 0, false, swapped ? right : left, {}};
                for (std::size_t j = swapped ? i + 1 : 0; j < (swapped ? n : i + 1); ++j)
                    leaf.split.left_bins.push_back(sorted[j].second);
            }
        }
    }

    // Stable partition of the rows begin..end of `order_`.
    // Returns the position of the first row for which the predicate is false.
    template <class Predicate>
        requires std::predicate<Predicate, std::size_t>
    std::size_t partition(std::size_t begin, std::size_t end, Predicate&& goes_left) {
        std::size_t left = begin, n_right = 0;
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint32_t r = order_[i];
            const bool is_left = goes_left(r);
            order_[left] = r;
            spare_[n_right] = r;
            left += is_left;
            n_right += !is_left;
        }
        std::copy_n(spare_.begin(), n_right, order_.begin() + static_cast<std::ptrdiff_t>(left));
        return left;
    }

    // Sets `goes_left_` for every bin of the split column.
    void set_left_bins(const Split& split, const BinnedColumn& column) {
        goes_left_.assign(std::max(kMaxBins, column.n_bins() + 1), 0);
        if (column.is_category)
            for (const std::uint16_t b : split.left_bins) goes_left_[b] = 1;
        else
            std::fill_n(goes_left_.begin(), split.bin + 1, std::uint8_t{1});
        if (column.has_missing) goes_left_[column.n_bins()] = split.missing_left;
    }

    // Partitions the rows begin..end of `order_` by `goes_left_` of their bins in the split column.
    std::size_t partition(std::size_t begin, std::size_t end, std::size_t column) {
        const std::uint8_t* goes_left = goes_left_.data();
        if (rows_.columns[column].is_wide) {
            const std::uint16_t* bins = rows_.wide_column(column);
            return partition(begin, end, [=](std::size_t r) { return goes_left[bins[r]] != 0; });
        }
        const std::uint8_t* bins = rows_.column(column);
        return partition(begin, end, [=](std::size_t r) { return goes_left[bins[r]] != 0; });
    }

    std::int32_t add_node(const Sum& sum) {
        trees_.feature.push_back(-1);
        trees_.left.push_back(-1);
        trees_.value.push_back(0.0);
        trees_.missing_left.push_back(0);
        trees_.rows.push_back(static_cast<std::int32_t>(format_.rows(sum)));
        trees_.category_set.push_back(-1);
        return static_cast<std::int32_t>(trees_.feature.size()) - 1;
    }

    void grow_tree(std::size_t n_sampled) {
        Leaf root{0, n_sampled, {}, 0, {}, 0};
        for (std::size_t i = 0; i < n_sampled; ++i) root.sum += sums_[order_[i]];
        root.node = add_node(root.sum);
        trees_.roots.push_back(root.node);
        if (width_ > 0 && settings_.max_leaves > 1) {
            find_splits(root, nullptr);
        }
        // Rows that were not sampled follow the splits too, because the new tree changes their scores.
        unsampled_.assign(1, {n_sampled, order_.size()});
        leaves_.assign(1, root);
        while (leaves_.size() < settings_.max_leaves) {
            const auto best = std::ranges::max_element(leaves_, {}, [](const Leaf& leaf) { return leaf.split.gain; });
            if (best->split.gain <= 0.0) break;
            split(static_cast<std::size_t>(best - leaves_.begin()));
        }
        for (std::size_t l = 0; l < leaves_.size(); ++l) {
            const Leaf& leaf = leaves_[l];
            const double value = -settings_.learning_rate * format_.g(leaf.sum) / (format_.h(leaf.sum) + l2_);
            trees_.value[static_cast<std::size_t>(leaf.node)] = value;
            for (std::size_t i = leaf.begin; i < leaf.end; ++i) scores_[order_[i]] += value;
            for (std::size_t i = unsampled_[l].first; i < unsampled_[l].second; ++i) scores_[order_[i]] += value;
        }
    }

    void write_split(const Leaf& leaf, const BinnedColumn& column, std::int32_t first_child) {
        const auto node = static_cast<std::size_t>(leaf.node);
        const Split& split = leaf.split;
        trees_.feature[node] = column.feature;
        trees_.left[node] = first_child;
        if (!column.is_category) {
            const bool is_last = split.bin == column.borders.size();  // only missing values go right
            trees_.value[node] = is_last ? std::numeric_limits<double>::infinity() : column.borders[split.bin];
            trees_.missing_left[node] = split.missing_left;
            return;
        }
        trees_.category_set[node] = static_cast<std::int32_t>(trees_.set_begin.size()) - 1;
        const auto begin = static_cast<std::size_t>(trees_.set_begin.back());
        const std::size_t last_bin = *std::ranges::max_element(split.left_bins);
        trees_.set_words.resize(begin + static_cast<std::size_t>(column.categories[last_bin]) / 64 + 1, 0);
        for (const std::uint16_t b : split.left_bins) {
            const auto code = static_cast<std::size_t>(column.categories[b]);
            trees_.set_words[begin + code / 64] |= std::uint64_t{1} << (code % 64);
        }
        trees_.set_begin.push_back(static_cast<std::int64_t>(trees_.set_words.size()));
    }

    void split(std::size_t l) {
        const Leaf leaf = leaves_[l];
        const BinnedColumn& column = rows_.columns[leaf.split.column];
        set_left_bins(leaf.split, column);
        const std::size_t middle = partition(leaf.begin, leaf.end, leaf.split.column);
        const Sum right_sum = leaf.sum - leaf.split.left;
        const std::int32_t first_child = add_node(leaf.split.left);
        add_node(right_sum);
        write_split(leaf, column, first_child);
        Leaf left{leaf.begin, middle, leaf.split.left, leaf.histogram, {}, first_child};
        Leaf right{middle, leaf.end, right_sum, leaves_.size(), {}, first_child + 1};
        const auto [begin, end] = unsampled_[l];
        const std::size_t unsampled_middle = partition(begin, end, leaf.split.column);
        unsampled_[l] = {begin, unsampled_middle};
        unsampled_.push_back({unsampled_middle, end});
        if (leaves_.size() + 1 < settings_.max_leaves) {  // after the last split, the children need no histograms
            const bool swapped = left.end - left.begin < right.end - right.begin;
            if (swapped) std::swap(left.histogram, right.histogram);
            find_splits(swapped ? left : right, swapped ? &right : &left);
        }
        leaves_[l] = std::move(left);
        leaves_.push_back(std::move(right));
    }

    const Loops& loops_ = loops();
    void (*const quantize_)(const GradientQuery<Format>&) = gradient_version<Format>(loops_.name);
    TeamLoops team_;
    const BinnedRows& rows_;
    const BoostingSettings& settings_;
    const std::vector<double>&weights_, &target_;
    std::uint64_t output_;
    std::size_t width_;   // number of columns of a tree
    std::size_t stride_;  // number of bins of a column in a histogram
    Format format_;
    double l2_, category_l2_, smoothing_;
    std::vector<std::uint32_t> order_, spare_;
    std::vector<Sum> sums_;
    std::vector<double> scores_;
    // Columns of the current tree, and those of them that have one-byte bins.
    std::vector<std::size_t> selected_, narrow_;
    std::vector<std::size_t> n_narrow_;         // number of narrow columns before each selected column
    std::vector<std::size_t> histogram_begin_;  // start of the histogram of each selected column
    std::size_t histogram_size_ = 0;
    std::vector<Sum> histograms_;
    std::vector<std::uint8_t> bins_;     // bins of all or of the selected narrow columns, shape (n_rows, bins_width_)
    std::vector<std::uint32_t> places_;  // column of `bins_` of each selected narrow column
    std::size_t bins_width_ = 0;
    bool has_all_ = false;  // whether `bins_` contains all narrow columns
    // Whether the rows of each bin of the split column go left.
    std::vector<std::uint8_t> goes_left_;
    std::vector<Leaf> leaves_;
    // Range of the rows of each leaf that were not sampled for the tree.
    std::vector<std::pair<std::size_t, std::size_t>> unsampled_;
    TreeEnsemble trees_;
};

// Returns the sums of the weights of the negative and of the positive rows.
std::array<double, 2> total_weights(std::span<const double> weights, const std::vector<double>& target) {
    std::array<double, 2> total{};
    for (std::size_t r = 0; r < weights.size(); ++r) total[target[r] > 0.0] += weights[r];
    return total;
}

TreeEnsemble fit_output(const BinnedRows& rows, std::span<const std::int64_t> codes, std::span<const double> weights,
                        std::int64_t positive, std::uint64_t output, const BoostingSettings& settings,
                        SharedPoll& poll) {
    std::vector<double> target(codes.size()), scaled(weights.begin(), weights.end());
    std::ranges::transform(codes, target.begin(), [=](std::int64_t code) { return code == positive ? 1.0 : 0.0; });
    const std::array<double, 2> total = total_weights(weights, target);
    double base_score = 0.0;
    if (settings.balance_classes) {
        const double half = 0.5 * static_cast<double>(weights.size());
        for (std::size_t r = 0; r < scaled.size(); ++r) scaled[r] = weights[r] * (half / total[target[r] > 0.0]);
    } else if (settings.start_from_prior) {
        base_score = portable_log(total[1] / total[0]);
    }
    const double max_weight = *std::ranges::max_element(scaled);
    const double total_weight = std::accumulate(scaled.begin(), scaled.end(), 0.0);
    if (settings.pack_sums && PackedFormat::suits(rows.n_rows, max_weight, total_weight))
        return Booster<PackedFormat>(rows, settings, scaled, target, base_score, output).fit(poll);
    return Booster<WideFormat>(rows, settings, scaled, target, base_score, output).fit(poll);
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

void append_trees(TreeEnsemble& to, const TreeEnsemble& from) {
    const auto n_nodes = static_cast<std::int32_t>(to.feature.size());
    const auto n_sets = static_cast<std::int32_t>(to.set_begin.size()) - 1;
    const auto n_words = static_cast<std::int64_t>(to.set_words.size());
    for (const std::int32_t left : from.left) to.left.push_back(left < 0 ? left : left + n_nodes);
    for (const std::int32_t root : from.roots) to.roots.push_back(root + n_nodes);
    for (const std::int32_t set : from.category_set) to.category_set.push_back(set < 0 ? set : set + n_sets);
    for (std::size_t i = 1; i < from.set_begin.size(); ++i) to.set_begin.push_back(from.set_begin[i] + n_words);
    append(to.feature, from.feature);
    append(to.value, from.value);
    append(to.missing_left, from.missing_left);
    append(to.rows, from.rows);
    append(to.set_words, from.set_words);
    append(to.base_score, from.base_score);
}

}  // namespace

TreeEnsemble fit_gradient_boosting(Rows<double> X, std::span<const std::int64_t> codes, std::span<const double> weights,
                                   std::size_t n_classes, std::span<const std::uint8_t> is_category,
                                   const BoostingSettings& settings) {
    const BinnedRows rows = bin_rows(
        X, codes, n_classes, is_category,
        {settings.max_bins, histogram_stride(settings.max_bins), settings.min_rows_per_category, settings.n_threads});
    const std::size_t n_outputs = n_classes > 2 ? n_classes : 1;
    BoostingSettings of_output = settings;
    const std::size_t min_rows = std::max<std::size_t>(settings.min_rows_per_leaf, 1);
    of_output.max_leaves = std::clamp<std::size_t>(X.n_rows / min_rows, 1, settings.max_leaves);
    // Several outputs use one thread each; a single output uses all threads.
    if (n_outputs > 1) of_output.n_threads = 1;
    std::vector<TreeEnsemble> fitted(n_outputs);
    std::vector<std::exception_ptr> errors(n_outputs);
    SharedPoll poll;
    parallel_for(n_outputs, settings.n_threads, [&](std::size_t output) {
        try {
            const auto positive = static_cast<std::int64_t>(n_classes > 2 ? output : 1);
            fitted[output] = fit_output(rows, codes, weights, positive, output, of_output, poll);
        } catch (...) {
            errors[output] = std::current_exception();
        }
    });
    poll.rethrow();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
    TreeEnsemble trees;
    trees.set_begin.push_back(0);
    for (const TreeEnsemble& of_one : fitted) append_trees(trees, of_one);
    return trees;
}

}  // namespace steelyard
