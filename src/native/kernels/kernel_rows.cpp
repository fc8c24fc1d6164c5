#include "kernels/kernel_rows.hpp"

#include <algorithm>
#include <cmath>

#include "common/dot.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Number of rows that are summed in float before the partial sum is added in double.
constexpr std::size_t kTogether = 8;
// Error of a fixed-point value: half a unit, plus rounding errors of about a dozen float operations.
constexpr double kFixedError = 0.5 / kFixedScale + 20 * 0x1p-24;
// Number of rounding errors per term: value, weight, product and three pairwise sums, plus a safety margin.
constexpr double kNarrowError = 0x1p-24 * (1 + 1 + 1 + 3 + 0.5), kStoredError = 0x1p-24 * (1 + 0.5);
// Largest kernel value that is stored as float. Products with weights must not come near the limits of float.
constexpr double kNarrowLargest = 1e30;

Precision first_precision(const KernelSpec& spec, bool has_function) {
    // The values of a Python kernel function may have any range.
    // A smaller type would save little time, because calling the function dominates the cost.
    if (has_function) return Precision::full;
    const bool is_bounded = spec.kind == KernelKind::rbf || spec.kind == KernelKind::laplacian;
    return is_bounded && spec.gamma >= 0.0 ? Precision::fixed : Precision::single;
}

// Rounds the weights of a pair of rows to integers with a common scale. Returns the error of the resulting sum.
double put_weights(FixedWeights& fixed, std::size_t pair, const double* weights) {
    constexpr double largest_part = 32767.0;
    const double largest = std::max(std::abs(weights[0]), std::abs(weights[1]));
    const auto scale = static_cast<float>(largest / (largest_part * kFixedScale));
    const double unit = static_cast<double>(scale) * kFixedScale;
    const bool has_scale = scale > 0.0F && std::isfinite(scale);
    fixed.scales[pair] = has_scale ? scale : 0.0F;
    double error = 0.0;
    for (std::size_t r = 0; r < 2; ++r) {
        const double part =
            has_scale ? std::clamp(std::nearbyint(weights[r] / unit), -largest_part, largest_part) : 0.0;
        fixed.parts[2 * pair + r] = static_cast<std::int16_t>(part);
        error += 0.5 * std::abs(has_scale ? weights[r] - part * unit : weights[r]);
    }
    return error;
}

}  // namespace

KernelRows::KernelRows(std::size_t n_features, KernelSpec spec, KernelFunction function, std::size_t budget_bytes)
    : n_features_(n_features),
      budget_(budget_bytes),
      spec_(spec),
      function_(std::move(function)),
      precision_(first_precision(spec, static_cast<bool>(function_))),
      packed_(n_features),
      packed_kept_(n_features) {}

// -- adding and removing samples ----------------------------------------------------------------------------------

std::size_t KernelRows::max_kept() const {
    // Minimum number of cached rows, because sums read this many rows at a time.
    constexpr std::size_t least = kFixedRows;
    return std::max(least, budget_ / (bytes_of_value() * std::max<std::size_t>(1, capacity_)));
}

void KernelRows::reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    capacity_ = std::max<std::size_t>({capacity, capacity_ + capacity_ / 2, 64});
    spare_.clear();
    while (kept_.size() > max_kept()) drop_slot(static_cast<std::uint32_t>(kept_.size() - 1));
    spare_.clear();
    for (Kept& kept : kept_) {
        AlignedBuffer<std::byte> grown = new_buffer();
        std::copy_n(kept.values.get(), size_ * bytes_of_value(), grown.get());
        kept.values = std::move(grown);
    }
}

void KernelRows::append(const double* x) {
    reserve(size_ + 1);
    double diagonal = 0.0;
    if (function_)
        function_(x, 1, x, 1, &diagonal);
    else
        kernel_diagonal<double>(spec_, {x, 1, n_features_}, &diagonal);
    samples_.insert(samples_.end(), x, x + n_features_);
    diagonal_.push_back(diagonal);
    norms_.push_back(std::sqrt(std::abs(diagonal)));
    // largest_norm_ is only an upper bound, because removing samples does not lower it.
    largest_norm_ = std::max(largest_norm_, norms_.back());
    slot_of_.push_back(kNone);
    if (!function_) packed_.append(x);
    ++size_;
    while (largest_norm_ * largest_norm_ > kNarrowLargest && !is_wide()) widen();
    if (kept_.empty()) return;
    try {
        evaluate_new_column(size_ - 1);
    } catch (...) {
        pop();
        throw;
    }
    put_column(size_ - 1);
}

void KernelRows::evaluate_new_column(std::size_t i) {
    column_.resize(kept_.size());
    if (function_) {
        std::vector<double> kept_values;
        for (const Kept& kept : kept_)
            kept_values.insert(kept_values.end(), sample(kept.sample), sample(kept.sample) + n_features_);
        function_(sample(i), 1, kept_values.data(), kept_.size(), column_.data());
    } else {
        kernel_row(spec_, sample(i), packed_kept_, column_.data());
    }
    column_sample_ = i;
}

void KernelRows::encode(const std::vector<double>& values, std::byte* out) const {
    switch (precision_) {
        case Precision::fixed:
            loops().solver.to_fixed(values.data(), reinterpret_cast<std::int16_t*>(out), values.size());
            break;
        case Precision::single: std::copy(values.begin(), values.end(), reinterpret_cast<float*>(out)); break;
        case Precision::full: std::copy(values.begin(), values.end(), reinterpret_cast<double*>(out)); break;
    }
}

template <class T>
void KernelRows::put_values(std::size_t i) {
    const T* values = reinterpret_cast<const T*>(encoded_.data());
    for (std::size_t slot = 0; slot < kept_.size(); ++slot)
        reinterpret_cast<T*>(kept_[slot].values.get())[i] = values[slot];
}

void KernelRows::put_column(std::size_t i) {
    encoded_.resize(column_.size() * bytes_of_value());
    encode(column_, encoded_.data());
    switch (precision_) {
        case Precision::fixed: return put_values<std::int16_t>(i);
        case Precision::single: return put_values<float>(i);
        case Precision::full: return put_values<double>(i);
    }
}

template <class T>
void KernelRows::move_values(std::size_t from, std::size_t to) {
    for (Kept& kept : kept_) {
        T* values = reinterpret_cast<T*>(kept.values.get());
        values[to] = values[from];
    }
}

void KernelRows::move_column(std::size_t from, std::size_t to) {
    switch (precision_) {
        case Precision::fixed: return move_values<std::int16_t>(from, to);
        case Precision::single: return move_values<float>(from, to);
        case Precision::full: return move_values<double>(from, to);
    }
}

void KernelRows::swap_remove(std::size_t i) {
    release(i);
    column_sample_ = kNone;
    const std::size_t last = size_ - 1;
    if (i != last) {
        move_column(last, i);
        std::copy_n(samples_.data() + last * n_features_, n_features_, samples_.data() + i * n_features_);
        diagonal_[i] = diagonal_[last];
        norms_[i] = norms_[last];
        slot_of_[i] = slot_of_[last];
        if (slot_of_[i] != kNone) kept_[slot_of_[i]].sample = static_cast<std::uint32_t>(i);
    }
    if (!function_) packed_.swap_remove(i);
    samples_.resize(last * n_features_);
    diagonal_.pop_back();
    norms_.pop_back();
    slot_of_.pop_back();
    size_ = last;
}

void KernelRows::pop() { swap_remove(size_ - 1); }

// -- cached kernel rows -------------------------------------------------------------------------------------------

void KernelRows::widen() {
    if (is_wide()) return;
    while (!kept_.empty()) drop_slot(static_cast<std::uint32_t>(kept_.size() - 1));
    spare_.clear();
    precision_ = precision_ == Precision::fixed ? Precision::single : Precision::full;
}

std::vector<std::uint32_t> KernelRows::kept_samples() const {
    std::vector<std::uint32_t> samples;
    for (const Kept& kept : kept_) samples.push_back(kept.sample);
    return samples;
}

void KernelRows::evaluate_row(std::size_t i, double* out) const {
    if (function_)
        function_(sample(i), 1, samples_.data(), size_, out);
    else
        kernel_row(spec_, sample(i), packed_, out);
}

const std::byte* KernelRows::kept_row(std::size_t i) {
    const std::uint32_t slot = slot_of_[i];
    Kept& kept = slot != kNone ? kept_[slot] : new_slot(i);
    kept.last_use = ++clock_;
    return kept.values.get();
}

KernelRows::Kept& KernelRows::new_slot(std::size_t i) {
    if (kept_.size() >= max_kept()) {
        const auto oldest = std::min_element(kept_.begin(), kept_.end(),
                                             [](const Kept& a, const Kept& b) { return a.last_use < b.last_use; });
        drop_slot(static_cast<std::uint32_t>(oldest - kept_.begin()));
    }
    AlignedBuffer<std::byte> values;
    if (spare_.empty()) {
        values = new_buffer();
    } else {
        values = std::move(spare_.back());
        spare_.pop_back();
    }
    row_.resize(size_);
    evaluate_row(i, row_.data());
    encode(row_, values.get());
    if (!function_) packed_kept_.append(sample(i));
    column_sample_ = kNone;
    slot_of_[i] = static_cast<std::uint32_t>(kept_.size());
    kept_.push_back({static_cast<std::uint32_t>(i), 0, std::move(values)});
    return kept_.back();
}

void KernelRows::drop_slot(std::uint32_t slot) {
    constexpr std::size_t max_spare = 8;
    column_sample_ = kNone;
    slot_of_[kept_[slot].sample] = kNone;
    if (spare_.size() < max_spare) spare_.push_back(std::move(kept_[slot].values));
    if (slot + 1 != kept_.size()) {
        kept_[slot] = std::move(kept_.back());
        slot_of_[kept_[slot].sample] = slot;
    }
    kept_.pop_back();
    if (!function_) packed_kept_.swap_remove(slot);
}

void KernelRows::release(std::size_t i) {
    if (slot_of_[i] != kNone) drop_slot(slot_of_[i]);
}

// -- sums of kernel rows ------------------------------------------------------------------------------------------

const float* KernelRows::decoded_row(std::size_t i) {
    const std::byte* values = kept_row(i);
    std::swap(decoded_[0], decoded_[1]);
    decoded_[0].resize(size_);
    loops().solver.from_fixed(reinterpret_cast<const std::int16_t*>(values), decoded_[0].data(), size_);
    return decoded_[0].data();
}

double KernelRows::add_rows(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights,
                            double* out) {
    switch (precision_) {
        case Precision::fixed: return add_fixed(samples, weights, out);
        case Precision::single: return add_single(samples, weights, out);
        default: return add_full(samples, weights, out);
    }
}

double KernelRows::add_fixed(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights,
                             double* out) {
    double error = 0.0;
    for (std::size_t k = 0; k < samples.size(); k += kFixedRows) {
        const std::size_t n_rows = std::min(kFixedRows, samples.size() - k);
        const std::int16_t* rows[kFixedRows];
        double padded[kFixedRows] = {};
        double sum = 0.0, size = 0.0;
        for (std::size_t r = 0; r < kFixedRows; ++r) {
            rows[r] = row<std::int16_t>(samples[k + std::min(r, n_rows - 1)]);
            if (r >= n_rows) continue;
            padded[r] = weights[k + r];
            sum += padded[r];
            size += std::abs(padded[r]);
        }
        FixedWeights fixed;
        for (std::size_t pair = 0; pair < kFixedRows / 2; ++pair) error += put_weights(fixed, pair, padded + 2 * pair);
        fixed.shift = static_cast<float>(0.5 * sum);
        loops().solver.add_fixed16(fixed, rows, out, size_);
        error += kFixedError * size;
    }
    return error;
}

double KernelRows::add_single(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights,
                              double* out) {
    double size = 0.0;
    for (std::size_t k = 0; k < samples.size(); k += kTogether) {
        const std::size_t n_rows = std::min(kTogether, samples.size() - k);
        const float* rows[kTogether];
        float narrow[kTogether] = {};
        for (std::size_t r = 0; r < kTogether; ++r) {
            rows[r] = row<float>(samples[k + std::min(r, n_rows - 1)]);
            if (r >= n_rows) continue;
            narrow[r] = static_cast<float>(weights[k + r]);
            size += std::abs(weights[k + r]) * norms_[samples[k + r]];
        }
        loops().solver.add_narrow8(narrow, rows, out, size_);
    }
    return kNarrowError * size * largest_norm_;
}

double KernelRows::add_full(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights,
                            double* out) {
    const SolverLoops& solver = loops().solver;
    std::size_t k = 0;
    for (; k + 4 <= samples.size(); k += 4) {
        const double* rows[4];
        for (std::size_t r = 0; r < 4; ++r) rows[r] = row<double>(samples[k + r]);
        solver.axpy4(weights.data() + k, rows, out, size_);
    }
    for (; k < samples.size(); ++k) solver.axpy(weights[k], row<double>(samples[k]), out, size_);
    return 0.0;
}

double KernelRows::sum_rows(const double* z, double* out) {
    if (precision_ == Precision::fixed) {  // the resolution of fixed point is too low for large coefficients
        exact_sums(z, out);
        return 0.0;
    }
    std::fill_n(out, size_, 0.0);
    for (std::size_t i = 0; i < size_; ++i) {
        if (z[i] == 0.0) continue;
        if (is_wide())
            loops().solver.axpy(z[i], row<double>(i), out, size_);
        else
            loops().solver.axpy_narrow(z[i], row<float>(i), out, size_);
    }
    return is_wide() ? 0.0 : kStoredError * loops().solver.absolute_dot(z, norms_.data(), size_) * largest_norm_;
}

double KernelRows::exact_sum(std::size_t i, const double* z, std::size_t n_nonzero) {
    if (n_nonzero == 0) return 0.0;
    std::size_t n_missing = n_nonzero;
    double sum = 0.0;
    if (!is_wide() && column_sample_ != i) evaluate_new_column(i);
    for (std::size_t slot = 0; slot < kept_.size(); ++slot) {
        const double weight = z[kept_[slot].sample];
        sum += weight * (is_wide() ? reinterpret_cast<const double*>(kept_[slot].values.get())[i] : column_[slot]);
        n_missing -= weight != 0.0;
    }
    if (n_missing == 0) return sum;
    if (is_wide()) return dot(z, row<double>(i), size_);
    row_.resize(size_);
    evaluate_row(i, row_.data());
    return dot(z, row_.data(), size_);
}

void KernelRows::exact_sums(const double* z, double* out) const {
    std::vector<double> vectors, weights;
    for (std::size_t i = 0; i < size_; ++i) {
        if (z[i] == 0.0) continue;
        vectors.insert(vectors.end(), sample(i), sample(i) + n_features_);
        weights.push_back(z[i]);
    }
    if (!function_) {
        const PackedRows<double> packed(Rows<double>{vectors.data(), weights.size(), n_features_});
        kernel_sums(spec_, Rows<double>{samples_.data(), size_, n_features_}, packed, weights.data(), out, 1);
        return;
    }
    constexpr std::size_t together = 64;
    std::vector<double> block(together * weights.size());
    for (std::size_t begin = 0; begin < size_; begin += together) {
        const std::size_t n_rows = std::min(together, size_ - begin);
        if (!weights.empty()) function_(sample(begin), n_rows, vectors.data(), weights.size(), block.data());
        for (std::size_t k = 0; k < n_rows; ++k)
            out[begin + k] = dot(weights.data(), block.data() + k * weights.size(), weights.size());
    }
}

void KernelRows::evaluate(std::size_t i, const std::vector<std::uint32_t>& samples, const PackedRows<double>& packed,
                          double* out) {
    if (!function_) return kernel_row(spec_, sample(i), packed, out);
    const double* values = row<double>(i);
    for (std::size_t k = 0; k < samples.size(); ++k) out[k] = values[samples[k]];
}

}  // namespace steelyard
