// ExactView: conversion of exact sums to correctly rounded doubles.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "proximal/sufficient_statistics.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Squares of deviations above 2^kExtreme or below 2^-kExtreme could overflow or underflow.
// Features with such deviations have a unit other than 1.
constexpr int kExtreme = 200;

// If three numbers have at most this many bits, their sum fits in 128 bits.
constexpr unsigned kRegister = 124;

unsigned width(int128 x) {
    const uint128 m = x < 0 ? -static_cast<uint128>(x) : static_cast<uint128>(x);
    const auto high = static_cast<std::uint64_t>(m >> 64);
    return static_cast<unsigned>(high ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(m)));
}

int128 shifted(int128 x, unsigned by) { return static_cast<int128>(static_cast<uint128>(x) << by); }

// Returns the double nearest (ties to even) to a number below 2^104.
// The upper and the lower half are exact doubles, so their sum is rounded once.
double of_halves(int128 x) {
    const auto low = static_cast<std::int64_t>(static_cast<std::uint64_t>(x) & ((std::uint64_t{1} << 52) - 1));
    return static_cast<double>(static_cast<std::int64_t>(x >> 52)) * 0x1p52 + static_cast<double>(low);
}
double nearest(int128 x) {
    const auto high = static_cast<std::int64_t>(x >> 64);
    if (static_cast<std::uint64_t>(high) + (std::uint64_t{1} << 40) >= std::uint64_t{1} << 41)
        return static_cast<double>(x);
    return of_halves(x);
}

// The following functions are overloaded for 128-bit integers and for Big.
int sign(int128 x) { return (x > 0) - (x < 0); }
int sign(const Big& x) { return x.sign(); }
unsigned width(const Big& x) { return x.bit_length(); }
Big big(int128 x) { return Big::of(x); }
const Big& big(const Big& x) { return x; }
double nearest(int128 x, int* exponent) {
    *exponent = 0;
    return nearest(x);
}
double nearest(const Big& x, int* exponent) { return x.nearest(exponent); }
double scaled(int128 x, int by) { return std::ldexp(nearest(x), by); }
double scaled(const Big& x, int by) { return x.scaled(by); }
int128 divide(int128 a, int128 b) {  // returns the quotient rounded towards minus infinity; the divisor is positive
    const int128 quotient = a / b;
    return quotient * b > a ? quotient - 1 : quotient;
}
template <class Whole>
Whole whole(double x);
template <>
int128 whole(double x) {
    return static_cast<std::int64_t>(x);
}
template <>
Big whole(double x) {
    return Big::of_whole(x);
}

// Returns the sum of products of features a and b, translated to the origin. Arithmetic modulo 2^128 is sufficient.
int128 from_origin(int128 value, int128 sum_b, std::int64_t pivot_a, int128 moved_a, std::int64_t pivot_b) {
    return static_cast<int128>(static_cast<uint128>(value) - static_cast<uint128>(sum_b) * pivot_a -
                               static_cast<uint128>(moved_a) * pivot_b);
}

// Translation of sums of products to the origin and conversion to doubles.
// There is one struct for each width of the intermediate values. Wide uses 128 bits.
struct Wide {
    static constexpr double kBits = kRegister;
    using Sum = int128;
    static double translated(int128 value, Sum sum_b, std::int64_t pivot_a, Sum moved_a, std::int64_t pivot_b) {
        return nearest(from_origin(value, sum_b, pivot_a, moved_a, pivot_b));
    }
};
struct Long {  // sums of values have 64 bits; sums of products are split into two exact halves
    static constexpr double kBits = 100.0;
    using Sum = std::int64_t;
    static double translated(int128 value, Sum sum_b, std::int64_t pivot_a, Sum moved_a, std::int64_t pivot_b) {
        return of_halves(value - static_cast<int128>(sum_b) * pivot_a - static_cast<int128>(moved_a) * pivot_b);
    }
};
struct Short {  // all numbers have 64 bits
    static constexpr double kBits = 60.0;
    using Sum = std::int64_t;
    static double translated(int128 value, Sum sum_b, std::int64_t pivot_a, Sum moved_a, std::int64_t pivot_b) {
        return static_cast<double>(static_cast<std::int64_t>(value) - sum_b * pivot_a - moved_a * pivot_b);
    }
};

// Returns the sum of one feature over the rows of a block.
Big sum_of(const ExactBlock& block, std::size_t d, std::size_t j) {
    if (const Triangle* ready = block.formed()) return ready->get(d, j);
    int128 waiting = 0;
    for (std::size_t i = 0; i < block.weights.size(); ++i)
        waiting += static_cast<int128>(block.weights[i]) * static_cast<std::int64_t>(block.rows[i * d + j]);
    return block.sums ? block.sums->get(d, j) + Big::of(waiting) : Big::of(waiting);
}

int floor_half(int x) { return x >= 0 ? x / 2 : -((1 - x) / 2); }

}  // namespace

SlotGroups single_slots(std::span<const std::int32_t> slots) {
    SlotGroups groups;
    groups.reserve(slots.size());
    for (const std::int32_t slot : slots) groups.push_back({slot});
    return groups;
}

ExactView::ExactView(ExactState state, SlotGroups classes, unsigned n_threads)
    : state_(std::move(state)),
      classes_(std::move(classes)),
      n_threads_(n_threads),
      total_(1),
      origin_(state_.n_features, 0.0),
      variance_(state_.n_features, 0.0),
      units_(state_.n_features, 0),
      finer_(state_.n_features, 0),
      pivot_(state_.n_features) {
    freeze_quantizer(state_, n_threads_);  // fits a preliminary quantizer if there are too few rows for a final one
    if (!state_.is_frozen) {
        Quantizer plain;
        plain.exponent.assign(state_.n_features, 0);
        plain.origin.assign(state_.n_features, 0.0);
        plain.rounds.assign(state_.n_features, 0);
        plain.mixed = plain.rounds;
        freeze_quantizer(state_, plain);
    }
    std::vector<std::int32_t> all;
    for (const auto& slots : classes_) all.insert(all.end(), slots.begin(), slots.end());
    const std::int32_t most = all.empty() ? -1 : *std::max_element(all.begin(), all.end());
    if (static_cast<std::size_t>(most + 1) > state_.slots.size())
        state_.slots.resize(static_cast<std::size_t>(most + 1));
    total_ = folded(state_, all, n_threads_);
    const Big n = total_.count();
    for (std::size_t j = 0; j < state_.n_features; ++j) choose_origin(j, n);
    set_registers();
}

void ExactView::set_registers() {
    for (const unsigned finer : finer_) max_finer_ = std::max(max_finer_, finer);
    for (const Big& pivot : pivot_) pivot_bits_ = std::max(pivot_bits_, pivot.bit_length());
    scale_.resize(state_.n_features + 1);
    bool plain = pivot_bits_ < 63;
    for (std::size_t j = 0; j < scale_.size(); ++j) {
        scale_[j] = std::ldexp(1.0, exponent(j));
        plain = plain && std::abs(exponent(j)) < 400;
    }
    if (!plain) return;
    narrow_pivot_.resize(state_.n_features);
    for (std::size_t j = 0; j < state_.n_features; ++j)
        narrow_pivot_[j] = static_cast<std::int64_t>(pivot_[j].narrow());
}

std::optional<ExactView::Moved> ExactView::moved(const int128* last, double bits) const {
    const std::size_t d = state_.n_features;
    if (narrow_pivot_.size() != d || bits + 2.0 * max_finer_ >= kRegister) return std::nullopt;
    const int128 n = last[d];
    if (width(n) + pivot_bits_ >= kRegister) return std::nullopt;
    Moved sums{std::vector<int128>(d), std::vector<int128>(d), n, 0.0};
    unsigned most = 1;
    for (std::size_t j = 0; j < d; ++j) {
        sums.before[j] = shifted(last[j], finer_[j]);
        sums.after[j] = sums.before[j] - n * narrow_pivot_[j];
        most = std::max({most, width(sums.before[j]), width(sums.after[j])});
    }
    if (most + pivot_bits_ >= kRegister) return std::nullopt;
    sums.bits = std::max(bits + 2.0 * max_finer_, static_cast<double>(most + pivot_bits_));
    if (most >= 63) sums.bits = std::max(sums.bits, Long::kBits);
    return sums;
}

std::optional<ExactView::Moved> ExactView::moved(const TriangleSum& triangle) const {
    if (!triangle.is_narrow()) return std::nullopt;
    std::vector<int128> buffer;
    return moved(triangle.row(state_.n_features, buffer), triangle.bits());
}

std::optional<ExactView::Moved> ExactView::moved(const ExactBlock& block) const {
    if (const Triangle* ready = block.formed()) {
        TriangleSum sums(state_.n_features + 1);
        sums.add(*ready);
        return moved(sums);
    }
    if (block.sums) return std::nullopt;
    const std::size_t d = state_.n_features;
    std::vector<int128> last(d + 1, 0);
    double most = 1.0, weight = 1.0;
    const double* row = block.rows.data();
    for (const std::int64_t w : block.weights) {
        weight += std::fabs(static_cast<double>(w));
        for (std::size_t j = 0; j < d; ++j) {
            most = std::max(most, std::fabs(row[j]));
            last[j] += static_cast<int128>(w) * static_cast<std::int64_t>(row[j]);
        }
        last[d] += w;
        row += d;
    }
    if (most * weight >= 0x1p62) return std::nullopt;
    return moved(last.data(), 2.0 * std::log2(most) + std::log2(weight) + 1.0);
}

template <class Form>
void ExactView::write_moved(const TriangleSum& triangle, const Moved& sums, double* out) const {
    const std::size_t d = state_.n_features, size = d + 1;
    std::vector<typename Form::Sum> before(d), after(d);
    for (std::size_t j = 0; j < d; ++j) {
        before[j] = static_cast<typename Form::Sum>(sums.before[j]);
        after[j] = static_cast<typename Form::Sum>(sums.after[j]);
    }
    std::vector<int128> buffer;
    const std::int64_t* pivot = narrow_pivot_.data();
    const double* scale = scale_.data();
    for (std::size_t a = 0; a < d; ++a, out += size) {
        const int128* from = triangle.row(a, buffer);
        const double left = std::ldexp(scale[a], state_.weight_exponent);
        const auto translated = [&](int128 value, std::size_t b) {
            return Form::translated(value, before[b], pivot[a], after[a], pivot[b]) * left * scale[b];
        };
        if (max_finer_)
            for (std::size_t b = 0; b <= a; ++b) out[b] = translated(shifted(from[b], finer_[a] + finer_[b]), b);
        else
            for (std::size_t b = 0; b <= a; ++b) out[b] = translated(from[b], b);
    }
    const double left = -std::ldexp(1.0, state_.weight_exponent);
    for (std::size_t b = 0; b < d; ++b) out[b] = nearest(sums.after[b]) * left * scale[b];
    out[d] = std::fabs(nearest(sums.n) * left);
}

void ExactView::write_centered(const TriangleSum& triangle, double* out) const {
    const std::optional<Moved> sums = moved(triangle);
    if (!sums) return write(centered(triangle.formed()), out);
    if (sums->bits < Short::kBits) return write_moved<Short>(triangle, *sums, out);
    if (sums->bits < Long::kBits) return write_moved<Long>(triangle, *sums, out);
    write_moved<Wide>(triangle, *sums, out);
}

// Selects the origin of a feature: the multiple of about 1/16 of its standard deviation that is nearest to the mean.
// The origin is a multiple of a power of 2 that depends on the values and not on the steps of the quantizer.
// With finer steps the origin is therefore the same.
void ExactView::choose_origin(std::size_t j, const Big& n) {
    const std::size_t d = state_.n_features;
    const Big sum = total_.get(d, j), squares = total_.get(j, j);
    const unsigned n_bits = n.bit_length(), sum_bits = sum.bit_length();
    // If `fits` is true, all following intermediate values have fewer than 124 bits.
    const bool fits = n_bits <= 30 && n_bits + std::max(sum_bits, squares.bit_length()) < 115 && 2 * sum_bits < 124;
    if (fits)
        choose_origin(j, n.narrow(), sum.narrow(), squares.narrow());
    else
        choose_origin(j, n, sum, squares);
}

template <class Whole>
void ExactView::choose_origin(std::size_t j, const Whole& n, const Whole& sum, const Whole& squares) {
    const int k = state_.quantizer.exponent[j];
    const Whole origin = whole<Whole>(state_.quantizer.origin[j]), scatter = n * squares - sum * sum;
    if (sign(n) <= 0) {
        pivot_[j] = big(-origin);
        return;
    }
    if (sign(scatter) <= 0) {  // the feature is constant, and its value becomes the origin
        const Whole value = divide(sum, n);
        const Whole from_zero = value + origin;
        pivot_[j] = big(value);
        origin_[j] = scaled(from_zero, k);
        const int size = static_cast<int>(width(from_zero)) + k;
        units_[j] = size > kExtreme ? size : 0;
        return;
    }
    const int n_bits = static_cast<int>(width(n));
    const int deviation = floor_half(static_cast<int>(width(scatter)) - 2 * n_bits) + k;
    units_[j] = std::abs(deviation) > kExtreme ? deviation : 0;
    int scatter_exponent, n_exponent;
    const double scatter_part = nearest(scatter, &scatter_exponent), n_part = nearest(n, &n_exponent);
    variance_[j] = std::ldexp(scatter_part / n_part / n_part, scatter_exponent - 2 * n_exponent + 2 * (k - units_[j]));
    // If values with coarser steps were merged, forgetting their rows leaves a remainder of less than one coarser step.
    const int dust = state_.quantizer.mixed[j] ? k + state_.quantizer.mixed[j] : deviation - 1;
    if (deviation < dust) variance_[j] = 0.0;
    const Whole from_zero = sum + n * origin;
    int step = deviation - 4;
    if (sign(from_zero) != 0) step = std::max(step, static_cast<int>(width(from_zero)) - n_bits + k - 50);
    const unsigned finer = step < k ? static_cast<unsigned>(k - step) : 0;
    const unsigned coarser = step > k ? static_cast<unsigned>(step - k) : 0;
    const Whole steps = divide((from_zero << (finer + 1)) + (n << coarser), n) >> (coarser + 1);
    origin_[j] = scaled(steps, step);
    finer_[j] = finer;
    pivot_[j] = big((steps << coarser) - (origin << finer));
}

Triangle ExactView::centered(Triangle triangle) const {
    triangle.refine(finer_, 0);
    triangle.translate(pivot_);
    return triangle;
}

int ExactView::exponent(std::size_t j) const {
    return j < state_.n_features ? state_.quantizer.exponent[j] - static_cast<int>(finer_[j]) - units_[j] : 0;
}

void ExactView::write(const Triangle& triangle, double* out) const {
    const std::size_t size = triangle.size(), d = size - 1;
    std::vector<double> scale(size);
    bool plain = triangle.is_narrow();
    for (std::size_t j = 0; j < size; ++j) {
        scale[j] = std::ldexp(1.0, exponent(j));
        plain = plain && std::abs(exponent(j)) < 400;
    }
    for (std::size_t a = 0, at = 0; a < size; ++a) {
        const double left = std::ldexp(scale[a], state_.weight_exponent) * (a == d ? -1.0 : 1.0);
        for (std::size_t b = 0; b <= a; ++b, ++at)
            if (plain)
                out[a * size + b] = static_cast<double>(triangle.narrow()[at]) * left * scale[b];
            else
                out[a * size + b] =
                    (a == d ? -1.0 : 1.0) * triangle.get(at).scaled(exponent(a) + exponent(b) + state_.weight_exponent);
    }
    out[size * size - 1] = std::fabs(out[size * size - 1]);
}

double ExactView::count(std::size_t k) const {
    Big count(0);
    for (const std::int32_t slot : classes_[k]) count = count + count_of(state_, static_cast<std::size_t>(slot));
    return count.scaled(state_.weight_exponent);
}

const std::shared_ptr<ExactBlock>* ExactView::block_of(std::size_t k) const {
    return classes_[k].size() == 1 ? &state_.slots[static_cast<std::size_t>(classes_[k].front())] : nullptr;
}

void ExactView::sums(std::size_t k, double* out) const {
    const std::size_t d = state_.n_features;
    const auto* alone = block_of(k);
    if (alone && !*alone) {
        std::fill_n(out, d, 0.0);
        return;
    }
    std::optional<Moved> moved;
    if (alone) moved = this->moved(**alone);
    if (moved) {
        const double weight = std::ldexp(1.0, state_.weight_exponent);
        for (std::size_t j = 0; j < d; ++j) out[j] = nearest(moved->after[j]) * weight * scale_[j];
        return;
    }
    Big n(0);
    for (const std::int32_t slot : classes_[k]) n = n + count_of(state_, static_cast<std::size_t>(slot));
    for (std::size_t j = 0; j < d; ++j) {
        Big sum(0);
        for (const std::int32_t slot : classes_[k])
            if (const auto& block = state_.slots[static_cast<std::size_t>(slot)]) sum = sum + sum_of(*block, d, j);
        sum = (sum << finer_[j]) - n * pivot_[j];
        out[j] = sum.scaled(exponent(j) + state_.weight_exponent);
    }
}

void ExactView::matrix(std::size_t k, double* out) const {
    write_centered(folded(state_, classes_[k], n_threads_), out);
}

bool ExactView::is_semidefinite(std::size_t k, double slack) const {
    const std::size_t size = state_.n_features + 1;
    std::vector<double> matrix(size * size), scale(size);
    this->matrix(k, matrix.data());
    for (std::size_t i = 0; i < size; ++i) {
        const double square = matrix[i * size + i];
        const bool exact = i + 1 == size || !state_.quantizer.mixed[i];
        if (exact && square < 0.0) return false;
        scale[i] = exact && square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
    }
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t j = 0; j < i; ++j) matrix[i * size + j] = matrix[i * size + j] * scale[i] * scale[j];
        matrix[i * size + i] = 1.0 + slack;
    }
    return loops().factor.factor(matrix.data(), size, size);
}

// Computes single columns of the matrix of one class, relative to the origin.
// If all rows are pending, the columns are computed from the rows.
class ExactView::Columns {
  public:
    Columns(const ExactView& view, std::size_t k) : view_(view), d_(view.state_.n_features) {
        const auto* block = view.block_of(k);
        if (block && *block && !(*block)->sums) sums_ = view.moved(**block);
        if (sums_) {
            rows_ = block->get();
            return;
        }
        square_.resize((d_ + 1) * (d_ + 1));
        view.matrix(k, square_.data());
    }

    void diagonal(double* out) const {
        for (std::size_t j = 0; j <= d_; ++j) out[j] = rows_ ? entry(j, j) : square_[j * (d_ + 1) + j];
    }
    void column(std::size_t p, double* out) const {
        for (std::size_t j = 0; j <= d_; ++j)
            out[j] =
                rows_ ? entry(std::max(j, p), std::min(j, p)) : square_[std::max(j, p) * (d_ + 1) + std::min(j, p)];
    }

  private:
    double entry(std::size_t a, std::size_t b) const {  // requires a >= b
        const int weights = view_.state_.weight_exponent;
        if (a == d_ && b == d_) return std::fabs(std::ldexp(nearest(sums_->n), weights));
        if (a == d_) return -std::ldexp(nearest(sums_->after[b]) * view_.scale_[b], weights);
        int128 value = 0;
        const double* row = rows_->rows.data();
        for (const std::int64_t weight : rows_->weights) {
            value +=
                static_cast<int128>(weight * static_cast<std::int64_t>(row[a])) * static_cast<std::int64_t>(row[b]);
            row += d_;
        }
        value = shifted(value, view_.finer_[a] + view_.finer_[b]);
        const int128 moved =
            from_origin(value, sums_->before[b], view_.narrow_pivot_[a], sums_->after[a], view_.narrow_pivot_[b]);
        return nearest(moved) * std::ldexp(view_.scale_[a], weights) * view_.scale_[b];
    }

    const ExactView& view_;
    const std::size_t d_;
    const ExactBlock* rows_ = nullptr;
    std::optional<Moved> sums_;
    std::vector<double> square_;
};

std::vector<double> ExactView::factor(std::size_t k, std::span<const double> scale) const {
    const std::size_t size = state_.n_features + 1;
    const Columns columns(*this, k);
    std::vector<double> left(size), column(size), rows;  // `left` is the remaining diagonal in units of `scale`
    columns.diagonal(left.data());
    for (std::size_t j = 0; j < size; ++j) left[j] /= scale[j] * scale[j];
    const double first = *std::max_element(left.begin(), left.end());
    const double least = static_cast<double>(size) * std::numeric_limits<double>::epsilon() * first;
    for (std::size_t rank = 0; rank < size; ++rank) {
        const auto p = static_cast<std::size_t>(std::max_element(left.begin(), left.end()) - left.begin());
        if (!(left[p] > least)) break;
        columns.column(p, column.data());
        for (std::size_t q = 0; q < rank; ++q) {
            const double* row = rows.data() + q * size;
            const double factor = row[p];
            for (std::size_t j = 0; j < size; ++j) column[j] -= factor * row[j];
        }
        const double root = std::sqrt(left[p]) * scale[p];
        for (std::size_t j = 0; j < size; ++j) {
            column[j] /= root;
            left[j] -= column[j] / scale[j] * (column[j] / scale[j]);
        }
        left[p] = 0.0;
        rows.insert(rows.end(), column.begin(), column.end());
    }
    return rows;
}

void ExactView::total(double* out) const { write_centered(total_, out); }

std::vector<std::uint8_t> ExactView::canonical(std::size_t k) const {
    const Triangle triangle = centered(folded(state_, classes_[k], n_threads_).formed());
    std::vector<std::uint8_t> bytes;
    const auto put = [&](const void* data, std::size_t n) {
        const auto* from = static_cast<const std::uint8_t*>(data);
        bytes.insert(bytes.end(), from, from + n);
    };
    const std::size_t size = triangle.size();
    bytes.reserve(12 * Triangle::entries(size));
    std::uint64_t limbs[Big::kMaxLimbs];
    for (std::size_t a = 0, at = 0; a < size; ++a)
        for (std::size_t b = 0; b <= a; ++b, ++at) {
            Big value = triangle.get(at);
            std::int32_t power = 0;
            // Numbers are written as an odd number times a power of two, so that equal values have equal bytes.
            if (!value.is_zero()) {
                const unsigned zeros = value.trailing_zeros();
                value = value >> zeros;
                const auto of = [&](std::size_t j) { return j + 1 < size ? exponent(j) + units_[j] : 0; };
                power = of(a) + of(b) + state_.weight_exponent + static_cast<int>(zeros);
            }
            const auto n = static_cast<std::uint8_t>(value.size());
            value.store(limbs, n);
            put(&power, sizeof power);
            put(&n, 1);
            put(limbs, n * sizeof *limbs);
        }
    return bytes;
}

}  // namespace steelyard
