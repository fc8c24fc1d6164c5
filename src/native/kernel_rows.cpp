#include "steelyard/kernel_rows.hpp"

#include <algorithm>
#include <cmath>

#include "steelyard/simd.hpp"

namespace steelyard {

KernelRows::KernelRows(std::size_t n_features, KernelSpec spec, KernelFunction function, std::size_t budget_bytes)
    : n_features_(n_features),
      budget_(budget_bytes),
      spec_(spec),
      function_(std::move(function)),
      packed_(n_features),
      packed_kept_(n_features) {}

std::size_t KernelRows::max_kept() const {
    constexpr std::size_t least = 16;  // a few rows are always in use at the same time
    return std::max(least, budget_ / (sizeof(double) * std::max<std::size_t>(1, capacity_)));
}

void KernelRows::reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    capacity_ = std::max<std::size_t>({capacity, capacity_ + capacity_ / 2, 64});
    spare_.clear();
    while (kept_.size() > max_kept()) drop_slot(static_cast<std::uint32_t>(kept_.size() - 1));
    spare_.clear();
    for (Kept& kept : kept_) {
        AlignedBuffer<double> grown = aligned_buffer<double>(capacity_);
        std::copy_n(kept.values.get(), size_, grown.get());
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
    largest_norm_ = std::max(largest_norm_, norms_.back());  // an upper bound once samples have gone
    slot_of_.push_back(kNone);
    if (!function_) packed_.append(x);
    ++size_;
    if (kept_.empty()) return;
    try {
        extend_kept_rows();
    } catch (...) {
        pop();
        throw;
    }
}

// The last sample is new: every kept row gets its entry.
void KernelRows::extend_kept_rows() {
    const double* x = sample(size_ - 1);
    new_column_.resize(kept_.size());
    if (function_) {
        std::vector<double> kept_samples;
        for (const Kept& kept : kept_)
            kept_samples.insert(kept_samples.end(), sample(kept.sample), sample(kept.sample) + n_features_);
        function_(x, 1, kept_samples.data(), kept_.size(), new_column_.data());
    } else {
        kernel_row(spec_, x, packed_kept_, new_column_.data());
    }
    for (std::size_t slot = 0; slot < kept_.size(); ++slot) kept_[slot].values[size_ - 1] = new_column_[slot];
}

std::vector<std::uint32_t> KernelRows::kept_samples() const {
    std::vector<std::uint32_t> samples;
    for (const Kept& kept : kept_) samples.push_back(kept.sample);
    return samples;
}

double KernelRows::kept_sum(std::size_t i, const double* z, std::size_t& n_weights) const {
    double sum = 0.0;
    n_weights = 0;
    for (const Kept& kept : kept_) {
        const double weight = z[kept.sample];
        sum += weight * kept.values[i];
        n_weights += weight != 0.0;
    }
    return sum;
}

void KernelRows::swap_remove(std::size_t i) {
    release(i);
    const std::size_t last = size_ - 1;
    if (i != last) {
        for (Kept& kept : kept_) kept.values[i] = kept.values[last];
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

void KernelRows::evaluate(std::size_t i, double* out) const {
    if (function_)
        function_(sample(i), 1, samples_.data(), size_, out);
    else
        kernel_row(spec_, sample(i), packed_, out);
}

const double* KernelRows::row(std::size_t i) {
    const std::uint32_t slot = slot_of_[i];
    if (slot != kNone) {
        kept_[slot].last_use = ++clock_;
        return kept_[slot].values.get();
    }
    return new_slot(i).values.get();
}

KernelRows::Kept& KernelRows::new_slot(std::size_t i) {
    if (kept_.size() >= max_kept()) {
        const auto oldest = std::min_element(kept_.begin(), kept_.end(),
                                             [](const Kept& a, const Kept& b) { return a.last_use < b.last_use; });
        drop_slot(static_cast<std::uint32_t>(oldest - kept_.begin()));
    }
    AlignedBuffer<double> values;
    if (spare_.empty()) {
        values = aligned_buffer<double>(capacity_);
    } else {
        values = std::move(spare_.back());
        spare_.pop_back();
    }
    evaluate(i, values.get());
    if (!function_) packed_kept_.append(sample(i));
    slot_of_[i] = static_cast<std::uint32_t>(kept_.size());
    kept_.push_back({static_cast<std::uint32_t>(i), ++clock_, std::move(values)});
    return kept_.back();
}

void KernelRows::drop_slot(std::uint32_t slot) {
    constexpr std::size_t max_spare = 8;
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

void KernelRows::add_rows(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out) {
    const SolverLoops& solver = loops().solver;
    std::size_t k = 0;
    for (; k + 4 <= samples.size(); k += 4) {
        const double* rows[4];
        for (std::size_t r = 0; r < 4; ++r) rows[r] = row(samples[k + r]);
        solver.axpy4(weights.data() + k, rows, out, size_);
    }
    for (; k < samples.size(); ++k) solver.axpy(weights[k], row(samples[k]), out, size_);
}

}  // namespace steelyard
