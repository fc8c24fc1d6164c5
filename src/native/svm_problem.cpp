#include "steelyard/svm_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "steelyard/simd.hpp"

namespace steelyard {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A coefficient this close to a bound, as a share of the way between the bounds, is at the bound.
constexpr double kAtBound = 1e-10;
// Rounding builds up in sums that are only ever added to.
constexpr std::uint64_t kSumsBeforeAnew = 512;

}  // namespace

// -- samples come and go ------------------------------------------------------------------------------------------

void SvmProblem::restore(SvmState state) {
    s_ = std::move(state);
    const std::size_t n = s_.z.size();
    base_.assign(n, 0.0);
    is_touched_.assign(n, 0);
    touched_.clear();
    n_checked_ = n;
    index_margin();
}

void SvmProblem::index_margin() {
    place_.assign(s_.z.size(), kOutside);
    for (std::size_t k = 0; k < s_.margin.size(); ++k) place_[s_.margin[k]] = static_cast<std::int32_t>(k);
}

void SvmProblem::extend(const std::vector<double>& y, const std::vector<double>& bounds) {
    const std::size_t old = s_.z.size(), n = old + y.size();
    const auto n_zeros = std::count(s_.z.begin(), s_.z.end(), 0.0);
    const std::size_t n_weights = old - static_cast<std::size_t>(n_zeros);
    s_.z.resize(n);
    std::vector<double> e(y.size());
    for (std::size_t k = 0; k < y.size(); ++k) {
        if (n_weights == 0) break;
        std::size_t n_kept = 0;
        e[k] = rows_.kept_sum(old + k, s_.z.data(), n_kept);
        if (n_kept != n_weights) e[k] = loops().kernel.finish_f64.dot(s_.z.data(), rows_.row(old + k), old);
    }
    for (std::size_t k = 0; k < y.size(); ++k) s_.e.push_back(e[k] - y[k]);
    s_.y.insert(s_.y.end(), y.begin(), y.end());
    for (std::size_t k = 0; k < y.size(); ++k) {
        s_.lower.push_back(y[k] > 0.0 ? 0.0 : -bounds[k]);
        s_.upper.push_back(y[k] > 0.0 ? bounds[k] : 0.0);
    }
    place_.resize(n, kOutside);
    base_.resize(n);
    is_touched_.resize(n);
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
    if (i != last && place_[last] >= 0)
        s_.margin[static_cast<std::size_t>(place_[last])] = static_cast<std::uint32_t>(i);
    for (auto* values : {&s_.y, &s_.z, &s_.e, &s_.lower, &s_.upper}) {
        (*values)[i] = (*values)[last];
        values->pop_back();
    }
    place_[i] = place_[last];
    place_.pop_back();
    base_.pop_back();
    is_touched_.pop_back();
    n_checked_ = std::min(n_checked_, last);
}

void SvmProblem::copy_solution(const SvmState& from, SvmState& to) {
    to.z = from.z, to.e = from.e, to.margin = from.margin;
    to.factor.copy_from(from.factor);
    to.constant = from.constant, to.bias = from.bias, to.n_sums = from.n_sums;
}

void SvmProblem::commit() {
    has_snapshot_ = false;
    old_bounds_.clear();
}

void SvmProblem::rollback() {
    if (has_snapshot_) {
        copy_solution(snapshot_, s_);
        index_margin();
        std::fill(is_touched_.begin(), is_touched_.end(), std::uint8_t{0});
        touched_.clear();
    }
    targets_.clear();
    n_checked_ = 0;
    for (auto old = old_bounds_.rbegin(); old != old_bounds_.rend(); ++old) {
        s_.lower[old->sample] = old->lower;
        s_.upper[old->sample] = old->upper;
    }
    commit();
}

// -- the way to the optimum ---------------------------------------------------------------------------------------

void SvmProblem::solve() {
    report_ = {};
    const std::size_t n = s_.z.size();
    const bool is_done = targets_.empty() && is_optimal();
    const std::size_t first_new = n_checked_;
    n_checked_ = n;
    if (is_done) {
        if (s_.margin.empty()) settle_bias();
        return;
    }
    copy_solution(s_, snapshot_);
    has_snapshot_ = true;
    if (s_.n_sums > kSumsBeforeAnew) resum();
    choose_near();
    std::vector<Target> targets;
    targets.swap(targets_);
    for (const Target& target : targets)
        if (place_[target.sample] >= 0) leave_margin(static_cast<std::size_t>(place_[target.sample]));
    if (!targets.empty()) drive(targets);
    enter_new(first_new, threshold());
    if (optimise(1000 + 10 * n)) return;
    for (const std::size_t smo_steps : {20 * n + 10000, 200 * n + 1000000}) {  // the repair, then its last attempt
        smo(threshold(), smo_steps);
        resum();
        rebuild_margin();
        if (optimise(1000 + 10 * n)) return;
    }
    throw SolverFailure("the optimality conditions hold only to " + std::to_string(worst()));
}

bool SvmProblem::optimise(std::size_t max_steps) {
    run_rounds(max_steps);
    sync();
    settle_bias();
    const double rounding = this->rounding();  // not finite as soon as one coefficient is not
    return std::isfinite(rounding + s_.bias) && worst() <= std::max(tolerance_, 16.0 * rounding) &&
           imbalance() <= std::max(tolerance_, kAtBound);
}

// -- sums ---------------------------------------------------------------------------------------------------------

void SvmProblem::shift(std::size_t i, double change) {
    if (!is_touched_[i]) {
        is_touched_[i] = 1;
        base_[i] = s_.z[i];
        touched_.push_back(static_cast<std::uint32_t>(i));
    }
    s_.z[i] += change;
}

double SvmProblem::current_e(std::size_t i) {
    double e = s_.e[i];
    if (touched_.empty()) return e;
    const double* row = rows_.row(i);
    for (const std::uint32_t j : touched_) e += (s_.z[j] - base_[j]) * row[j];
    return e;
}

void SvmProblem::sync() {
    changed_.clear();
    changes_.clear();
    for (const std::uint32_t j : touched_) {
        is_touched_[j] = 0;
        if (s_.z[j] == base_[j]) continue;
        changed_.push_back(j);
        changes_.push_back(s_.z[j] - base_[j]);
    }
    touched_.clear();
    if (changed_.empty()) return;
    rows_.add_rows(changed_, changes_, s_.e.data());
    ++s_.n_sums;
}

void SvmProblem::resum() {
    std::vector<std::uint32_t> samples;
    std::vector<double> weights;
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        s_.e[i] = -s_.y[i];
        is_touched_[i] = 0;
        if (s_.z[i] == 0.0) continue;
        samples.push_back(static_cast<std::uint32_t>(i));
        weights.push_back(s_.z[i]);
    }
    touched_.clear();
    rows_.add_rows(samples, weights, s_.e.data());
    s_.n_sums = 0;
}

// -- conditions ---------------------------------------------------------------------------------------------------

double SvmProblem::violation_of(std::size_t i, double e) const {
    const double g = e + s_.bias;
    if (g < 0.0) return s_.z[i] < s_.upper[i] ? -g : 0.0;
    return s_.z[i] > s_.lower[i] ? g : 0.0;
}

std::vector<std::uint32_t> SvmProblem::violators(double threshold) const {
    std::vector<std::uint32_t> found;
    if (worst() <= threshold) return found;
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        const double g = s_.e[i] + s_.bias;
        const double up = s_.z[i] < s_.upper[i] ? -g : 0.0, down = s_.z[i] > s_.lower[i] ? g : 0.0;
        if (std::max(up, down) <= threshold) continue;  // the one branch, and nearly always taken
        if (place_[i] < 0) found.push_back(static_cast<std::uint32_t>(i));
    }
    std::sort(found.begin(), found.end(), [&](std::uint32_t a, std::uint32_t b) {
        const double va = violation_of(a, s_.e[a]), vb = violation_of(b, s_.e[b]);
        return va != vb ? va > vb : a < b;
    });
    return found;
}

SvmProblem::Interval SvmProblem::bias_interval() const {
    Interval found{-kInfinity, kInfinity, 0, 0};
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        if (s_.z[i] < s_.upper[i] && -s_.e[i] > found.low) found.low = -s_.e[i], found.low_sample = i;
        if (s_.z[i] > s_.lower[i] && -s_.e[i] < found.high) found.high = -s_.e[i], found.high_sample = i;
    }
    return found;
}

double SvmProblem::worst() const {
    return loops().solver.worst(s_.e.data(), s_.bias, s_.z.data(), s_.lower.data(), s_.upper.data(), s_.z.size());
}

// What the coefficients lack to sum to zero, as a share of their absolute values.
double SvmProblem::imbalance() const {
    double sum = 0.0, size = 0.0;
    for (const double z : s_.z) sum += z, size += std::abs(z);
    return size > 0.0 ? std::abs(sum) / size : 0.0;
}

double SvmProblem::violation() {
    const std::vector<double> e = s_.e;
    const std::uint64_t n_sums = s_.n_sums;
    resum();
    const double largest = std::max(worst(), imbalance());
    s_.e = e, s_.n_sums = n_sums;  // looking must not change what follows, not even by rounding
    return largest;
}

// An upper bound of what one rounding in each term of (Kz)_i can amount to.
double SvmProblem::rounding() const {
    const double sum = loops().solver.absolute_dot(s_.z.data(), rows_.norms().data(), s_.z.size());
    return std::numeric_limits<double>::epsilon() * sum * rows_.largest_norm();
}

// Steps go on below the tolerance as long as they see more than rounding.
double SvmProblem::threshold() const { return std::max(0.01 * tolerance_, rounding()); }

bool SvmProblem::is_between(std::size_t i) const {
    const double gap = kAtBound * (s_.upper[i] - s_.lower[i]);
    return s_.z[i] > s_.lower[i] + gap && s_.z[i] < s_.upper[i] - gap;
}

bool SvmProblem::is_optimal() const {
    const double limit = 0.5 * tolerance_;  // sums are up to date and margins exact: only news can violate
    if (s_.margin.empty()) {
        const Interval interval = bias_interval();
        return interval.low - interval.high <= 2.0 * limit;
    }
    for (std::size_t i = n_checked_; i < s_.z.size(); ++i)
        if (violation_of(i, s_.e[i]) > limit) return false;
    return true;
}

void SvmProblem::settle_bias() {
    double sum = 0.0;
    std::size_t n_between = 0;
    for (const std::uint32_t i : s_.margin)
        if (is_between(i)) sum -= s_.e[i], ++n_between;
    if (n_between == 0) {
        clear_margin();
        for (std::size_t i = 0; i < s_.z.size(); ++i)
            if (is_between(i)) sum -= s_.e[i], ++n_between;
    }
    if (n_between > 0) {
        s_.bias = sum / static_cast<double>(n_between);
        return;
    }
    // Nobody pins the bias, not even by a rounding's breadth: the middle of where it may be.
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        const double nearer = s_.z[i] - s_.lower[i] < s_.upper[i] - s_.z[i] ? s_.lower[i] : s_.upper[i];
        if (s_.z[i] != nearer) place_at(i, nearer);
    }
    sync();
    const Interval interval = bias_interval();
    if (std::isfinite(interval.low) && std::isfinite(interval.high))
        s_.bias = 0.5 * (interval.low + interval.high);
    else
        s_.bias = std::isfinite(interval.low) ? interval.low : std::isfinite(interval.high) ? interval.high : 0.0;
}

}  // namespace steelyard
