#include "svm/svm_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "simd/simd.hpp"

namespace steelyard {

// -- adding and removing samples ----------------------------------------------------------------------------------

void SvmProblem::restore(SvmState state, const std::vector<std::uint32_t>& active) {
    s_ = std::move(state);
    base_ = s_.z;
    n_checked_ = s_.z.size();
    active_.clear();
    active_.resize(s_.z.size());
    active_e_.clear();
    active_z_.clear();
    for (const std::uint32_t i : active) {
        active_.add(i);
        active_e_.push_back(s_.e[i]);
        active_z_.push_back(s_.z[i]);
    }
    index_margin();
    measure_coefficients();
}

void SvmProblem::index_margin() {
    place_.assign(s_.z.size(), kOutside);
    for (std::size_t k = 0; k < s_.margin.size(); ++k) place_[s_.margin[k]] = static_cast<std::int32_t>(k);
}

void SvmProblem::extend(const std::vector<double>& y, const std::vector<double>& bounds) {
    const std::size_t old = s_.z.size(), n = old + y.size();
    s_.z.resize(n);
    std::vector<double> e(y.size());
    for (std::size_t k = 0; k < y.size(); ++k) e[k] = rows_.exact_sum(old + k, s_.z.data(), n_support_) - y[k];
    s_.e.insert(s_.e.end(), e.begin(), e.end());
    s_.exact_at.resize(n, s_.slack);
    s_.y.insert(s_.y.end(), y.begin(), y.end());
    for (std::size_t k = 0; k < y.size(); ++k) {
        s_.lower.push_back(y[k] > 0.0 ? 0.0 : -bounds[k]);
        s_.upper.push_back(y[k] > 0.0 ? bounds[k] : 0.0);
    }
    place_.resize(n, kOutside);
    base_.resize(n);
    active_.resize(n);
}

void SvmProblem::set_bound(std::size_t i, double bound) {
    const double lower = s_.y[i] > 0.0 ? 0.0 : -bound, upper = s_.y[i] > 0.0 ? bound : 0.0;
    if (lower == s_.lower[i] && upper == s_.upper[i]) return;
    old_bounds_.push_back({static_cast<std::uint32_t>(i), s_.lower[i], s_.upper[i]});
    const double z = s_.z[i];
    const bool was_bound = z != 0.0 && (z == s_.lower[i] || z == s_.upper[i]);
    if (bound > 0.0) n_checked_ = 0;
    s_.lower[i] = lower;
    s_.upper[i] = upper;
    const bool is_outside = z < lower || z > upper;
    if (was_bound || is_outside || (place_[i] >= 0 && bound == 0.0))
        targets_.push_back({static_cast<std::uint32_t>(i), s_.y[i] * bound});
}

void SvmProblem::swap_remove(std::size_t i) {
    const std::size_t last = s_.z.size() - 1;
    if (place_[i] >= 0) leave_margin(static_cast<std::size_t>(place_[i]));
    if (active_.holds(i)) deactivate(active_.slot(i));
    if (i != last && place_[last] >= 0)
        s_.margin[static_cast<std::size_t>(place_[last])] = static_cast<std::uint32_t>(i);
    for (auto* values : {&s_.y, &s_.z, &s_.e, &s_.exact_at, &s_.lower, &s_.upper, &base_}) {
        (*values)[i] = (*values)[last];
        values->pop_back();
    }
    place_[i] = place_[last];
    place_.pop_back();
    active_.swap_remove(i);
    n_checked_ = std::min(n_checked_, last);
}

void SvmProblem::take_snapshot() {
    snapshot_.z = s_.z, snapshot_.e = s_.e, snapshot_.exact_at = s_.exact_at, snapshot_.margin = s_.margin;
    snapshot_.constant = s_.constant, snapshot_.bias = s_.bias;
    snapshot_.slack = s_.slack, snapshot_.n_sums = s_.n_sums;
    n_active_before_ = active_.size();
    has_snapshot_ = true;
}

void SvmProblem::commit() {
    if (has_snapshot_) trim_active();
    has_snapshot_ = false;
    old_bounds_.clear();
}

void SvmProblem::rollback() {
    if (has_snapshot_) {
        while (active_.size() > n_active_before_) deactivate(active_.size() - 1);
        s_.z = snapshot_.z, s_.e = snapshot_.e, s_.exact_at = snapshot_.exact_at, s_.margin = snapshot_.margin;
        s_.constant = snapshot_.constant, s_.bias = snapshot_.bias;
        s_.slack = snapshot_.slack, s_.n_sums = snapshot_.n_sums;
        base_ = s_.z;
        moved_outside_.clear();
        for (std::size_t slot = 0; slot < active_.size(); ++slot) {
            active_e_[slot] = s_.e[active_.sample(slot)];
            active_z_[slot] = s_.z[active_.sample(slot)];
        }
        index_margin();
        refactor();
        measure_coefficients();
        has_snapshot_ = false;
    }
    targets_.clear();
    n_checked_ = 0;
    for (auto old = old_bounds_.rbegin(); old != old_bounds_.rend(); ++old) {
        s_.lower[old->sample] = old->lower;
        s_.upper[old->sample] = old->upper;
    }
    old_bounds_.clear();
}

// -- solving the problem ------------------------------------------------------------------------------------------

void SvmProblem::solve() {
    report_ = {};
    const std::size_t n = s_.z.size();
    const bool is_done = targets_.empty() && is_optimal();
    const std::size_t first_new = n_checked_;
    n_checked_ = n;
    if (is_done && !s_.margin.empty()) return;
    take_snapshot();
    if (is_done) return set_bias();
    if (is_stale()) resum();
    std::vector<Target> targets;
    targets.swap(targets_);
    for (const Target& target : targets)
        if (place_[target.sample] >= 0) leave_margin(static_cast<std::size_t>(place_[target.sample]));
    if (!targets.empty()) drive(targets);
    enter_new(first_new);
    if (optimise(1000 + 10 * n)) return;
    for (const std::size_t max_steps :
         {20 * n + 10000, 200 * n + 1000000}) {  // SMO with a small, then with a large maximum number of steps
        while (!rows_.is_wide()) rows_.widen();
        resum();
        smo(threshold(), max_steps);
        resum();
        rebuild_margin();
        if (optimise(1000 + 10 * n)) return;
    }
    throw SolverFailure("the optimality conditions hold only to " + std::to_string(worst_violation(s_)));
}

bool SvmProblem::optimise(std::size_t max_steps) {
    const bool is_done = run_rounds(max_steps);
    sync();
    set_bias();
    if (!is_done) violators(tolerance_);  // called only because it makes uncertain sums exact
    return std::isfinite(rounding_ + s_.bias) && worst_violation(s_) <= std::max(tolerance_, 16.0 * rounding_) &&
           imbalance_of(s_) <= std::max(tolerance_, kAtBound);
}

// -- optimality conditions ----------------------------------------------------------------------------------------

// Returns the exact bias interval, although the sums e may be inexact.
// If the error bound of a sum allows its sample to be an end of the interval, the sum is recomputed exactly.
BiasInterval SvmProblem::bias_interval() {
    BiasInterval found = apparent_interval(s_);
    if (s_.slack == 0.0 || s_.z.empty()) return found;
    for (const std::uint32_t i : active_.samples()) s_.exact_at[i] = s_.slack;
    for (bool has_news = true; has_news; found = apparent_interval(s_)) {
        has_news = false;
        const double low = found.low - slack_of(found.low_sample), high = found.high + slack_of(found.high_sample);
        for (std::size_t i = 0; i < s_.z.size(); ++i) {
            const double slack = slack_of(i);
            const bool may_be_low = s_.z[i] < s_.upper[i] && -s_.e[i] + slack >= low;
            const bool may_be_high = s_.z[i] > s_.lower[i] && -s_.e[i] - slack <= high;
            if (slack == 0.0 || !(may_be_low || may_be_high)) continue;
            make_exact(i);
            has_news = true;
        }
    }
    return found;
}

double SvmProblem::violation() {
    std::vector<double> e(s_.z.size());
    rows_.exact_sums(s_.z.data(), e.data());
    for (std::size_t i = 0; i < e.size(); ++i) e[i] -= s_.y[i];
    e.swap(s_.e);
    const double largest = std::max(worst_violation(s_), imbalance_of(s_));
    e.swap(s_.e);  // restores the old sums: this function must not change later results
    return largest;
}

// Counts the nonzero coefficients and bounds the rounding errors of the sums.
// If any coefficient is not finite, rounding_ is not finite.
void SvmProblem::measure_coefficients() {
    n_support_ = loops().solver.count_nonzero(s_.z.data(), s_.z.size());
    const double sum = loops().solver.absolute_dot(s_.z.data(), rows_.norms().data(), s_.z.size());
    rounding_ = std::numeric_limits<double>::epsilon() * sum * rows_.largest_norm();
}

// Returns the violation at which the solver stops. It is smaller than the tolerance, but not below rounding errors.
double SvmProblem::threshold() const { return std::max(0.01 * tolerance_, rounding_); }

bool SvmProblem::is_optimal() {
    // All other samples satisfied their conditions at the last check, so only new samples are checked.
    const double limit = 0.5 * tolerance_;
    if (s_.margin.empty()) {
        const BiasInterval interval = bias_interval();
        return interval.low - interval.high <= 2.0 * limit;
    }
    for (std::size_t i = n_checked_; i < s_.z.size(); ++i)
        if (violation_of(s_, i, s_.e[i]) > limit) return false;
    return true;
}

void SvmProblem::set_bias() {
    double sum = 0.0;
    std::size_t n_between = 0;
    for (const std::uint32_t i : s_.margin)
        if (is_between_bounds(s_, i)) sum -= s_.e[i], ++n_between;
    if (n_between == 0) {
        clear_margin();
        for (std::size_t i = 0; i < s_.z.size(); ++i)
            if (is_between_bounds(s_, i)) sum -= s_.e[i], ++n_between;
    }
    if (n_between > 0) {
        s_.bias = sum / static_cast<double>(n_between);
        return;
    }
    // If no sample is strictly between its bounds, the bias is the middle of its interval.
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        const double nearer = s_.z[i] - s_.lower[i] < s_.upper[i] - s_.z[i] ? s_.lower[i] : s_.upper[i];
        if (s_.z[i] != nearer) place_at(i, nearer);
    }
    sync();
    const BiasInterval interval = bias_interval();
    if (std::isfinite(interval.low) && std::isfinite(interval.high))
        s_.bias = 0.5 * (interval.low + interval.high);
    else
        s_.bias = std::isfinite(interval.low) ? interval.low : std::isfinite(interval.high) ? interval.high : 0.0;
}

}  // namespace steelyard
