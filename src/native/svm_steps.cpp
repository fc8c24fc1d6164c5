// Adiabatic steps: some coefficients move, the margin set responds so that its conditions keep holding, and every
// step ends where a member of the margin set reaches a bound or the moving ones arrive.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "steelyard/interrupt.hpp"
#include "steelyard/svm_problem.hpp"

namespace steelyard {

namespace {

// A pivot this small beside its diagonal means that the kernel row depends on those of the margin set.
constexpr double kDependent = 1e-13;
// Members that reach their bounds within this share of the step reach them together.
constexpr double kTogether = 1e-12;
// More violators than the margin set and this many: pairwise steps get near faster.
constexpr std::size_t kManyViolators = 64;
// About so many samples next to the margin are looked at before all are, and so often.
constexpr std::size_t kNear = 32;
constexpr int kLooks = 8;

}  // namespace

// -- the margin set -----------------------------------------------------------------------------------------------

void SvmProblem::start_margin(std::size_t i) {
    const double mean = mean_diagonal();
    s_.constant = mean > 0.0 ? mean : 1.0;
    join_margin(i, nullptr, diagonal_with_constant(i));
}

void SvmProblem::join_margin(std::size_t i, const double* solved, double pivot_squared) {
    s_.factor.append(solved, pivot_squared);
    place_[i] = static_cast<std::int32_t>(s_.margin.size());
    s_.margin.push_back(static_cast<std::uint32_t>(i));
}

void SvmProblem::leave_margin(std::size_t position) {
    s_.factor.remove(position);
    place_[s_.margin[position]] = kOutside;
    s_.margin.erase(s_.margin.begin() + static_cast<std::ptrdiff_t>(position));
    for (std::size_t k = position; k < s_.margin.size(); ++k) --place_[s_.margin[k]];
}

void SvmProblem::clear_margin() {
    for (const std::uint32_t i : s_.margin) place_[i] = kOutside;
    s_.margin.clear();
    s_.factor.clear();
}

// The largest step along scale * dz, up to limit; hits_ then names the members that stop it.
double SvmProblem::first_hit(const double* dz, double scale, double limit) {
    hits_.clear();
    double step = limit;
    const std::size_t m = s_.margin.size();
    auto reach = [&](std::size_t k) {
        const std::uint32_t i = s_.margin[k];
        const double speed = scale * dz[k];
        if (speed > 0.0) return std::max(0.0, s_.upper[i] - s_.z[i]) / speed;
        if (speed < 0.0) return std::max(0.0, s_.z[i] - s_.lower[i]) / -speed;
        return std::numeric_limits<double>::infinity();
    };
    for (std::size_t k = 0; k < m; ++k) step = std::min(step, reach(k));
    if (step == limit) return step;
    for (std::size_t k = 0; k < m; ++k)
        if (reach(k) <= step * (1.0 + kTogether)) hits_.push_back(k);
    return step;
}

void SvmProblem::advance(const double* dz, double step) {
    for (std::size_t k = 0; k < s_.margin.size(); ++k) {
        const std::uint32_t i = s_.margin[k];
        const double z = s_.z[i] + step * dz[k];
        place_at(i, std::clamp(z, s_.lower[i], s_.upper[i]));
    }
}

// Those who stopped the step are at the nearer bound, exactly, and no longer respond.
void SvmProblem::drop_hits() {
    for (auto hit = hits_.rbegin(); hit != hits_.rend(); ++hit) {
        const std::uint32_t i = s_.margin[*hit];
        place_at(i, s_.z[i] - s_.lower[i] < s_.upper[i] - s_.z[i] ? s_.lower[i] : s_.upper[i]);
        leave_margin(*hit);
        if (near_.size() < 4 * kNear) near_.push_back(i);
    }
}

// -- moving to given coefficients ---------------------------------------------------------------------------------

// Brings samples to their targets and the conditions of the margin set to zero, both in the same proportion.
void SvmProblem::drive(const std::vector<Target>& targets) {
    sync();
    std::vector<double> change(targets.size()), rhs;
    double total = std::accumulate(s_.z.begin(), s_.z.end(), 0.0), size = 0.0;
    for (std::size_t p = 0; p < targets.size(); ++p) {
        change[p] = targets[p].z - s_.z[targets[p].sample];
        total += change[p];
        size += std::abs(change[p]);
        place_[targets[p].sample] = kMoving;
    }
    auto start = [&] {  // what the margin set has to respond to
        rhs.resize(s_.margin.size());
        for (std::size_t k = 0; k < rhs.size(); ++k) rhs[k] = s_.e[s_.margin[k]] + s_.bias;
        for (std::size_t p = 0; p < targets.size(); ++p) {
            if (change[p] == 0.0) continue;
            const double* row = rows_.row(targets[p].sample);
            for (std::size_t k = 0; k < rhs.size(); ++k) rhs[k] += change[p] * row[s_.margin[k]];
        }
    };
    const double negligible = 1e-14 * size;
    start();
    for (;;) {
        poll_interrupt();
        ++report_.steps;
        if (s_.margin.empty()) {
            if (std::abs(total) <= negligible || targets.empty()) break;
            find_partner(total);
            if (s_.margin.empty()) break;
            start();
        }
        const std::size_t m = s_.margin.size();
        direction_.resize(m);
        for (std::size_t k = 0; k < m; ++k) direction_[k] = rhs[k] + s_.constant * total;
        s_.factor.forward(direction_.data());
        const double db = s_.factor.solve_bordered(direction_.data(), total);
        const double step = first_hit(direction_.data(), 1.0, 1.0);
        advance(direction_.data(), step);
        s_.bias += step * db;
        for (std::size_t p = 0; p < targets.size(); ++p) {
            shift(targets[p].sample, step * change[p]);
            change[p] *= 1.0 - step;
        }
        if (step == 1.0) break;
        total *= 1.0 - step;
        for (double& r : rhs) r *= 1.0 - step;
        for (auto hit = hits_.rbegin(); hit != hits_.rend(); ++hit)
            rhs.erase(rhs.begin() + static_cast<std::ptrdiff_t>(*hit));
        drop_hits();
    }
    for (const Target& target : targets) {
        place_at(target.sample, target.z);
        place_[target.sample] = kOutside;
    }
    if (s_.margin.empty()) balance(negligible);
}

// When nobody was left to respond, the targets need not sum to zero: whoever has room makes up for it.
void SvmProblem::balance(double negligible) {
    double sum = std::accumulate(s_.z.begin(), s_.z.end(), 0.0);
    for (std::size_t i = 0; i < s_.z.size() && std::abs(sum) > negligible; ++i) {
        const double z = std::clamp(s_.z[i] - sum, s_.lower[i], s_.upper[i]);
        if (z == s_.z[i]) continue;
        sum += z - s_.z[i];
        place_at(i, z);
    }
}

// The margin set is empty and the sum of the coefficients has to change: whoever loses least responds.
void SvmProblem::find_partner(double total) {
    sync();
    const double sign = total > 0.0 ? 1.0 : -1.0;  // someone has to fall, or to grow
    std::size_t partner = s_.z.size();
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        const bool can_move = total > 0.0 ? s_.z[i] > s_.lower[i] : s_.z[i] < s_.upper[i];
        if (!can_move || place_[i] == kMoving) continue;
        if (partner == s_.z.size() || sign * s_.e[i] > sign * s_.e[partner]) partner = i;
    }
    if (partner == s_.z.size()) return;
    s_.bias = -s_.e[partner];
    start_margin(partner);
}

// -- looking for violators and letting them in --------------------------------------------------------------------

void SvmProblem::correct_margin(double threshold) {
    for (int attempt = 0; attempt < 4; ++attempt) {
        double largest = 0.0;
        for (const std::uint32_t i : s_.margin) largest = std::max(largest, std::abs(s_.e[i] + s_.bias));
        if (largest <= 0.1 * threshold) return;
        if (attempt == 2) rebuild_margin();  // the factor has degraded
        drive({});
        sync();
    }
}

// Makes one of two samples that violate together the margin set; the other one violates alone then.
void SvmProblem::open_pair(const Interval& interval) {
    s_.bias = -s_.e[interval.high_sample];
    start_margin(interval.high_sample);
}

// A few new samples are let in before the others are looked at: their own sums are all that has to be known.
void SvmProblem::enter_new(std::size_t first, double threshold) {
    if (s_.z.size() - first > kManyViolators) return;
    for (std::size_t i = first; i < s_.z.size() && !s_.margin.empty(); ++i)
        if (place_[i] == kOutside && violation_of(i, current_e(i)) > threshold) enter(i, threshold);
}

// About kNear samples with the smallest |e + b|; a few probes tell how small that is.
void SvmProblem::choose_near() {
    near_.clear();
    const std::size_t n = s_.z.size();
    if (n <= 4 * kNear) return;  // a look at all costs little more
    constexpr std::size_t n_probes = 256;
    std::vector<double> probes;
    for (std::size_t i = 0; i < n; i += 1 + (n - 1) / n_probes)
        if (place_[i] < 0) probes.push_back(std::abs(s_.e[i] + s_.bias));
    if (probes.empty()) return;
    const auto middle = probes.begin() + static_cast<std::ptrdiff_t>(kNear * probes.size() / n);
    std::nth_element(probes.begin(), middle, probes.end());
    for (std::size_t i = 0; i < n; ++i)
        if (std::abs(s_.e[i] + s_.bias) < *middle && place_[i] < 0) near_.push_back(static_cast<std::uint32_t>(i));
}

// Who starts to violate is nearly always next to the margin. Letting those in first, for the price of their own sums,
// saves passes over all samples; the last one of these still decides.
void SvmProblem::enter_near(double threshold, std::size_t step_limit) {
    for (int look = 0; look < kLooks && 2 * touched_.size() < rows_.max_kept(); ++look) {
        std::vector<std::pair<double, std::uint32_t>> list = near_violators(threshold);
        std::sort(list.begin(), list.end(), std::greater<>());
        for (const auto& [violation, i] : list) {
            if (s_.margin.empty() || report_.steps >= step_limit) return;
            if (violation_of(i, current_e(i)) > threshold) enter(i, threshold);
        }
        if (list.empty()) return;
    }
}

std::vector<std::pair<double, std::uint32_t>> SvmProblem::near_violators(double threshold) {
    near_e_.clear();
    for (const std::uint32_t i : near_) near_e_.push_back(s_.e[i]);
    for (const std::uint32_t j : touched_) {
        const double change = s_.z[j] - base_[j];
        const double* row = rows_.row(j);
        for (std::size_t k = 0; k < near_.size(); ++k) near_e_[k] += change * row[near_[k]];
    }
    std::vector<std::pair<double, std::uint32_t>> found;
    for (std::size_t k = 0; k < near_.size(); ++k) {
        const double violation = violation_of(near_[k], near_e_[k]);
        if (violation > threshold && place_[near_[k]] < 0) found.emplace_back(violation, near_[k]);
    }
    return found;
}

// True when nobody violates the conditions by more than threshold().
bool SvmProblem::run_rounds(std::size_t max_steps) {
    const std::size_t limit = report_.steps + max_steps;
    bool may_use_smo = report_.smo_steps == 0;
    enter_near(threshold(), limit);
    for (;; ++report_.rounds) {
        sync();
        const double threshold = this->threshold();
        correct_margin(threshold);
        if (s_.margin.empty()) {
            const Interval interval = bias_interval();
            if (interval.low - interval.high <= 2.0 * threshold) return true;
            open_pair(interval);
        }
        const std::vector<std::uint32_t> list = violators(threshold);
        if (list.empty()) return true;
        if (report_.steps >= limit) return false;
        if (may_use_smo && list.size() > kManyViolators + s_.margin.size()) {
            may_use_smo = false;
            smo(std::max(1e-3, threshold), 20 * s_.z.size() + 1000);
            rebuild_margin();
            continue;
        }
        for (const std::uint32_t i : list) {
            if (s_.margin.empty() || report_.steps >= limit) break;
            if (violation_of(i, current_e(i)) > threshold) enter(i, threshold);
        }
        enter_near(threshold, limit);
    }
}

// Moves one violator, and the margin set with it, until it violates no more or has reached its bound.
void SvmProblem::enter(std::size_t i, double threshold) {
    const double* row = rows_.row(i);
    const double g = current_e(i) + s_.bias, sign = g < 0.0 ? 1.0 : -1.0;
    double gap = std::abs(g);
    while (!s_.margin.empty()) {
        ++report_.steps;
        const std::size_t m = s_.margin.size();
        direction_.resize(m);
        for (std::size_t k = 0; k < m; ++k) direction_[k] = row[s_.margin[k]] + s_.constant;
        s_.factor.forward(direction_.data());
        solved_.assign(direction_.begin(), direction_.end());
        const double diagonal = diagonal_with_constant(i);
        const double pivot_squared = s_.factor.pivot_squared(solved_.data(), diagonal);
        const bool is_dependent = pivot_squared <= kDependent * diagonal;
        double curvature = s_.factor.curvature(solved_.data(), pivot_squared);
        const double db = s_.factor.solve_bordered(direction_.data(), 1.0);
        if (is_dependent) {
            curvature = rows_.diagonal(i) + db;
            for (std::size_t k = 0; k < m; ++k) curvature += direction_[k] * row[s_.margin[k]];
            curvature = std::max(0.0, curvature);
        }
        const double room = sign > 0.0 ? s_.upper[i] - s_.z[i] : s_.z[i] - s_.lower[i];
        const double wanted = curvature * room > gap ? gap / curvature : room;
        const double step = first_hit(direction_.data(), sign, wanted);
        advance(direction_.data(), sign * step);
        s_.bias += sign * step * db;
        shift(i, sign * step);
        gap -= curvature * step;
        if (!hits_.empty()) {
            drop_hits();
            if (gap <= threshold) return;
            continue;
        }
        if (wanted == room)
            place_at(i, sign > 0.0 ? s_.upper[i] : s_.lower[i]);
        else if (!is_dependent)
            join_margin(i, solved_.data(), pivot_squared);
        return;
    }
}

}  // namespace steelyard
