// Part of SvmProblem: the sums e of kernel values. In the active set they are always summed in double precision.
// After sync(), the errors of all other sums are within their error bounds (slack).
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "simd/simd.hpp"
#include "svm/svm_problem.hpp"

namespace steelyard {

namespace {

// If recomputed sums have an error bound above this value, kernel rows of higher precision are used.
constexpr double kLargestFreshSlack = 1e-3;
// Sums with an error bound above this value are useless, and may even have overflowed.
constexpr double kUselessError = 1.0;
// Number of additions after which sums are recomputed to limit rounding errors.
constexpr std::uint64_t kSumsBeforeAnew = 2048;
// All sums are computed in double if more than kFewDoubtful samples, and more than 1 in kDoubtfulShare, are uncertain.
// With so many uncertain samples, computing exact sums one by one would cost more.
constexpr std::size_t kFewDoubtful = 64, kDoubtfulShare = 8;

}  // namespace

// -- sums of the active set ---------------------------------------------------------------------------------------

void SvmProblem::activate(std::size_t i) {
    if (active_.holds(i)) return;
    const double e = exact_e(i);
    active_.add(i);
    active_e_.push_back(e);
    active_z_.push_back(s_.z[i]);
    const std::size_t slot = active_.size() - 1;
    active_e_[slot] -= active_e(slot) - e;  // active_e() adds this difference again
}

void SvmProblem::deactivate(std::size_t slot) {
    active_.drop(slot);
    active_e_[slot] = active_e_.back();
    active_z_[slot] = active_z_.back();
    active_e_.pop_back();
    active_z_.pop_back();
}

// Removes samples outside the margin set from the active set if the active set has become large.
// Samples that left the margin set often return soon, so they stay in the active set for a while.
// A larger active set saves passes over all samples, so its size may grow with the number of samples.
void SvmProblem::trim_active() {
    const std::size_t spare = std::max<std::size_t>(64, s_.z.size() / 32);
    if (active_.size() <= s_.margin.size() + spare) return;
    for (std::size_t slot = active_.size(); slot-- > 0;)
        if (place_[active_.sample(slot)] < 0) deactivate(slot);
}

// Sets coefficient i to z. If sample i is not in the active set, the sums of the active set are updated immediately.
void SvmProblem::place_at(std::size_t i, double z) {
    const double change = z - s_.z[i];
    s_.z[i] = z;
    if (active_.holds(i) || change == 0.0) return;
    moved_outside_.push_back(static_cast<std::uint32_t>(i));
    values_.resize(active_.size());
    active_.evaluate(i, values_.data());
    loops().solver.axpy(change, values_.data(), active_e_.data(), active_e_.size());
}

double SvmProblem::active_e(std::size_t slot) const {
    double e = active_e_[slot];
    const double* row = active_.row(slot);
    for (std::size_t other = 0; other < active_.size(); ++other)
        e += row[other] * (s_.z[active_.sample(other)] - active_z_[other]);
    return e;
}

void SvmProblem::sync_active() {
    const SolverLoops& solver = loops().solver;
    const double* rows[4];
    double weights[4];
    std::size_t n_rows = 0;
    for (std::size_t slot = 0; slot < active_.size(); ++slot) {
        const double z = s_.z[active_.sample(slot)];
        if (z == active_z_[slot]) continue;
        rows[n_rows] = active_.row(slot);
        weights[n_rows++] = z - active_z_[slot];
        active_z_[slot] = z;
        if (n_rows == 4) solver.axpy4(weights, rows, active_e_.data(), active_e_.size()), n_rows = 0;
    }
    for (std::size_t k = 0; k < n_rows; ++k) solver.axpy(weights[k], rows[k], active_e_.data(), active_e_.size());
}

// -- sums of all samples ------------------------------------------------------------------------------------------

void SvmProblem::sync() {
    sync_active();
    changed_.clear();
    changes_.clear();
    const std::vector<std::uint32_t>* lists[] = {&active_.samples(), &moved_outside_};
    for (const auto* list : lists)
        for (const std::uint32_t i : *list) {
            if (s_.z[i] == base_[i]) continue;
            changed_.push_back(i);
            changes_.push_back(s_.z[i] - base_[i]);
            base_[i] = s_.z[i];
        }
    moved_outside_.clear();
    if (changed_.empty()) return hand_out_active();
    const double error = rows_.add_rows(changed_, changes_, s_.e.data());
    if (!(error <= kUselessError)) {
        rows_.widen();
        return resum_outside();
    }
    s_.slack += error;
    ++s_.n_sums;
    measure_coefficients();
    hand_out_active();
}

void SvmProblem::hand_out_active() {
    for (std::size_t slot = 0; slot < active_.size(); ++slot) {
        const std::uint32_t i = active_.sample(slot);
        s_.e[i] = active_e_[slot];
        s_.exact_at[i] = s_.slack;
    }
}

double SvmProblem::exact_e(std::size_t i) {
    return rows_.exact_sum(i, s_.z.data(), loops().solver.count_nonzero(s_.z.data(), s_.z.size())) - s_.y[i];
}

void SvmProblem::make_exact(std::size_t i) {
    s_.e[i] = exact_e(i);
    s_.exact_at[i] = s_.slack;
}

// Recomputes the sums of all samples outside the active set. The sums of the active set are already exact.
void SvmProblem::resum_outside() {
    s_.slack = rows_.sum_rows(s_.z.data(), s_.e.data());
    while (!(s_.slack <= kLargestFreshSlack) && !rows_.is_wide()) {
        rows_.widen();
        s_.slack = rows_.sum_rows(s_.z.data(), s_.e.data());
    }
    for (std::size_t i = 0; i < s_.z.size(); ++i) s_.e[i] -= s_.y[i];
    s_.exact_at.assign(s_.z.size(), 0.0);
    base_ = s_.z;
    moved_outside_.clear();
    hand_out_active();
    measure_coefficients();
}

bool SvmProblem::is_stale() const { return s_.n_sums > kSumsBeforeAnew; }

void SvmProblem::resum() {
    for (std::size_t slot = 0; slot < active_.size(); ++slot) {
        const std::uint32_t i = active_.sample(slot);
        active_e_[slot] = exact_e(i);
        active_z_[slot] = s_.z[i];
    }
    resum_outside();
    s_.n_sums = 0;
}

// Returns the samples whose violation exceeds the threshold, largest violation first.
// If the error bound of a sum leaves open whether the sample violates its condition, the sum is recomputed exactly.
std::vector<std::uint32_t> SvmProblem::violators(double threshold) {
    changed_.resize(s_.z.size());
    changed_.resize(loops().solver.suspects(s_.e.data(), s_.bias, s_.z.data(), s_.lower.data(), s_.upper.data(),
                                            s_.slack, s_.exact_at.data(), s_.z.size(), changed_.data()));
    std::erase_if(changed_, [&](std::uint32_t i) { return place_[i] >= 0; });
    const auto n_doubtful = static_cast<std::size_t>(
        std::count_if(changed_.begin(), changed_.end(), [&](std::uint32_t i) { return slack_of(i) > 0.0; }));
    if (n_doubtful > kFewDoubtful + s_.z.size() / kDoubtfulShare) {
        rows_.widen();
        resum_outside();
        return violators(threshold);
    }
    std::vector<std::pair<double, std::uint32_t>> found;
    for (const std::uint32_t i : changed_) {
        if (slack_of(i) > 0.0 && !active_.holds(i)) make_exact(i);
        const double violation = violation_of(s_, i, s_.e[i]);
        if (violation > threshold) found.emplace_back(-violation, i);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::uint32_t> list;
    for (const auto& [violation, i] : found) list.push_back(i);
    return list;
}

}  // namespace steelyard
