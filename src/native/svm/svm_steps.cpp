// Adiabatic increments: some coefficients move, and those of the margin set change so that e_i + b = 0 holds for them.
// A step ends when a member of the margin set reaches a bound or the moving coefficients reach their targets.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "common/dot.hpp"
#include "common/interrupt.hpp"
#include "simd/simd.hpp"
#include "svm/svm_problem.hpp"

namespace steelyard {

namespace {

// A kernel row is linearly dependent on those of the margin set if its relative pivot is below this value.
// The relative pivot is the pivot divided by the diagonal entry.
constexpr double kDependent = 1e-13;
// SMO steps are faster if the number of violators exceeds the size of the margin set by more than this number.
constexpr std::size_t kManyViolators = 64;
// Maximum number of passes over the active set before a pass over all samples.
constexpr int kLooks = 8;

}  // namespace

// -- changes of the margin set ------------------------------------------------------------------------------------

void SvmProblem::start_margin(std::size_t i) {
    activate(i);
    const double mean = mean_diagonal();
    s_.constant = mean > 0.0 ? mean : 1.0;
    join_margin(i, nullptr, diagonal_with_constant(i));
}

void SvmProblem::join_margin(std::size_t i, const double* solved, double pivot_squared) {
    s_.factor.append(solved, pivot_squared);
    place_[i] = static_cast<std::int32_t>(s_.margin.size());
    s_.margin.push_back(static_cast<std::uint32_t>(i));
}

void SvmProblem::leave_margin(std::size_t position, double* solved) {
    s_.factor.remove(position, solved);
    place_[s_.margin[position]] = kOutside;
    s_.margin.erase(s_.margin.begin() + static_cast<std::ptrdiff_t>(position));
    for (std::size_t k = position; k < s_.margin.size(); ++k) --place_[s_.margin[k]];
}

void SvmProblem::clear_margin() {
    for (const std::uint32_t i : s_.margin) place_[i] = kOutside;
    s_.margin.clear();
    s_.factor.clear();
}

// Computes solved_ = L^-1 v, where v contains one value per member of the margin set.
void SvmProblem::gather_margin(const double* by_slot, double added) {
    solved_.resize(s_.margin.size());
    for (std::size_t k = 0; k < solved_.size(); ++k) solved_[k] = by_slot[active_.slot(s_.margin[k])] + added;
}

// Sets coefficients that reached a bound exactly to this bound and removes their samples from the margin set.
void SvmProblem::drop_hits(double* solved) {
    for (auto hit = motion_.hits().rbegin(); hit != motion_.hits().rend(); ++hit) {
        s_.z[s_.margin[*hit]] = motion_.nearer_bound(*hit);
        leave_margin(*hit, solved);
        motion_.drop(*hit);
    }
}

// -- moves to target coefficients ---------------------------------------------------------------------------------

// Moves coefficients to their targets and, in the same proportion, the residuals e_i + b of the margin set to zero.
void SvmProblem::drive(const std::vector<Target>& targets) {
    const SolverLoops& solver = loops().solver;
    // Remaining changes of z, and remaining changes of e in the active set.
    std::vector<double> change(targets.size()), push;
    double total = solver.sums(s_.z.data(), s_.z.size()).sum, size = 0.0;
    for (std::size_t p = 0; p < targets.size(); ++p) {
        change[p] = targets[p].z - s_.z[targets[p].sample];
        total += change[p];
        size += std::abs(change[p]);
        place_[targets[p].sample] = kMoving;
    }
    auto start = [&] {  // computes the right-hand side of the linear system of the margin set
        sync_active();
        push.assign(active_.size(), 0.0);
        values_.resize(active_.size());
        for (std::size_t p = 0; p < targets.size(); ++p) {
            if (change[p] == 0.0) continue;
            moved_outside_.push_back(targets[p].sample);
            active_.evaluate(targets[p].sample, values_.data());
            solver.axpy(change[p], values_.data(), push.data(), push.size());
        }
        values_ = active_e_;
        solver.axpy(1.0, push.data(), values_.data(), values_.size());
        gather_margin(values_.data(), s_.bias + s_.constant * total);
        s_.factor.forward(solved_.data());
        motion_.take_out(s_);
    };
    const double negligible = 1e-14 * size;
    start();
    // Each step removes members of the margin set, so few steps are expected.
    // Without a limit, the loop might not end for a state from a damaged file.
    // If the limit is reached, later checks repair the incomplete result.
    const std::size_t limit = report_.steps + 1000 + 10 * s_.z.size();
    while (report_.steps < limit) {
        poll_interrupt();
        ++report_.steps;
        if (s_.margin.empty()) {
            if (std::abs(total) <= negligible || targets.empty()) break;
            find_partner(total);
            if (s_.margin.empty()) break;
            start();
        }
        motion_.direction.assign(solved_.begin(), solved_.begin() + static_cast<std::ptrdiff_t>(s_.margin.size()));
        const double db = s_.factor.solve_bordered(motion_.direction.data(), total);
        const double step = motion_.first_hit(1.0);
        motion_.advance(step);
        s_.bias += step * db;
        for (std::size_t p = 0; p < targets.size(); ++p) {
            const std::uint32_t i = targets[p].sample;
            s_.z[i] = step == 1.0 ? targets[p].z : s_.z[i] + step * change[p];
            change[p] *= 1.0 - step;
            if (active_.holds(i)) active_z_[active_.slot(i)] = s_.z[i];  // active_e_ already includes the change
        }
        solver.axpy(step, push.data(), active_e_.data(), push.size());
        if (step == 1.0) break;
        total *= 1.0 - step;
        for (auto* rest : {&push, &solved_})
            for (double& r : *rest) r *= 1.0 - step;
        drop_hits(solved_.data());
    }
    motion_.put_back(s_);
    for (const Target& target : targets) {
        place_at(target.sample, target.z);
        place_[target.sample] = kOutside;
    }
    if (s_.margin.empty()) balance(negligible);
}

// Makes the coefficients sum to zero by changing coefficients between their bounds.
// The sum may differ from zero after a move with an empty margin set.
void SvmProblem::balance(double negligible) {
    double sum = loops().solver.sums(s_.z.data(), s_.z.size()).sum;
    for (std::size_t i = 0; i < s_.z.size() && std::abs(sum) > negligible; ++i) {
        const double z = std::clamp(s_.z[i] - sum, s_.lower[i], s_.upper[i]);
        if (z == s_.z[i]) continue;
        sum += z - s_.z[i];
        place_at(i, z);
    }
}

// Starts the margin set with the sample whose change costs the smallest loss.
// find_partner() is called if the margin set is empty and the sum of the coefficients must change.
void SvmProblem::find_partner(double total) {
    sync();
    const double sign = total > 0.0 ? 1.0 : -1.0;  // 1 if a coefficient must decrease, -1 if it must increase
    std::size_t partner = s_.z.size();
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        const bool can_move = total > 0.0 ? s_.z[i] > s_.lower[i] : s_.z[i] < s_.upper[i];
        if (!can_move || place_[i] == kMoving) continue;
        if (partner == s_.z.size() || sign * s_.e[i] > sign * s_.e[partner]) partner = i;
    }
    if (partner == s_.z.size()) return;
    start_margin(partner);
    s_.bias = -active_e(active_.slot(partner));
}

// -- removing violations ------------------------------------------------------------------------------------------

void SvmProblem::correct_margin() {
    for (int attempt = 0; attempt < 4; ++attempt) {
        double largest = 0.0;
        for (const std::uint32_t i : s_.margin) largest = std::max(largest, std::abs(s_.e[i] + s_.bias));
        if (largest <= 0.1 * threshold()) return;
        if (attempt == 2) rebuild_margin();  // the factor has lost precision
        drive({});
        sync();
    }
}

// Starts the margin set with one of two violating samples, so that only the other one still violates its condition.
void SvmProblem::open_pair(const BiasInterval& interval) {
    start_margin(interval.high_sample);
    s_.bias = -active_e(active_.slot(interval.high_sample));
}

// Removes the violations of new samples, if there are few, before all other samples are checked.
// Only the sums of the new samples are needed.
void SvmProblem::enter_new(std::size_t first) {
    if (s_.z.size() - first > kManyViolators) return;
    for (std::size_t i = first; i < s_.z.size() && !s_.margin.empty(); ++i) {
        if (place_[i] != kOutside || s_.upper[i] == s_.lower[i]) continue;
        if (violation_of(s_, i, exact_e(i)) <= threshold()) continue;
        activate(i);
        enter(i);
    }
}

// Removes the violations of samples in the active set. A final pass over all samples is still necessary.
// New violators have often just left the margin set, so this function saves passes over all samples.
void SvmProblem::enter_active(std::size_t step_limit) {
    std::vector<std::pair<double, std::uint32_t>> list;
    for (int look = 0; look < kLooks; ++look) {
        list.clear();
        values_.resize(active_.size());
        for (std::size_t slot = 0; slot < active_.size(); ++slot)
            values_[slot] = s_.z[active_.sample(slot)] - active_z_[slot];
        for (std::size_t slot = 0; slot < active_.size(); ++slot) {
            const std::uint32_t i = active_.sample(slot);
            if (place_[i] >= 0) continue;  // members of the margin set need no sum
            const double e = active_e_[slot] + dot(active_.row(slot), values_.data(), values_.size());
            const double violation = violation_of(s_, i, e);
            if (violation > threshold()) list.emplace_back(violation, i);
        }
        if (list.empty()) return;
        std::sort(list.begin(), list.end(), std::greater<>());
        for (const auto& [violation, i] : list) {
            if (s_.margin.empty() || report_.steps >= step_limit) return;
            if (violation_of(s_, i, active_e(active_.slot(i))) > threshold()) enter(i);
        }
    }
}

// Repeats passes over all samples until no violation exceeds threshold(). Returns false if max_steps is reached.
bool SvmProblem::run_rounds(std::size_t max_steps) {
    const std::size_t limit = report_.steps + max_steps;
    bool may_use_smo = report_.smo_steps == 0;
    for (;; ++report_.rounds) {
        enter_active(limit);
        sync();
        correct_margin();
        if (s_.margin.empty()) {
            const BiasInterval interval = bias_interval();
            if (interval.low - interval.high <= 2.0 * threshold()) return true;
            open_pair(interval);
        }
        const std::vector<std::uint32_t> list = violators(threshold());
        if (list.empty()) return true;
        if (report_.steps + report_.rounds >= limit) return false;
        if (may_use_smo && list.size() > kManyViolators + s_.margin.size()) {
            may_use_smo = false;
            smo(std::max(1e-3, threshold()), 20 * s_.z.size() + 1000);
            resum();
            rebuild_margin();
            continue;
        }
        for (const std::uint32_t i : list) {
            if (s_.margin.empty() || report_.steps >= limit) break;
            activate(i);
            if (violation_of(s_, i, active_e(active_.slot(i))) > threshold()) enter(i);
        }
    }
}

// Moves one violator until its optimality condition holds or it reaches its bound, while the margin set adapts.
void SvmProblem::enter(std::size_t i) {
    const std::uint32_t slot = active_.slot(i);
    gather_margin(active_.row(slot), s_.constant);
    s_.factor.forward(solved_.data());
    const double g = active_e(slot) + s_.bias;
    motion_.take_out(s_);
    move_in(i, g);
    motion_.put_back(s_);
}

void SvmProblem::move_in(std::size_t i, double g) {
    const double* row = active_.row(active_.slot(i));
    const double sign = g < 0.0 ? 1.0 : -1.0, diagonal = diagonal_with_constant(i);
    double gap = std::abs(g);
    while (!s_.margin.empty()) {
        poll_interrupt();
        ++report_.steps;
        const std::size_t m = s_.margin.size();
        const double pivot_squared = s_.factor.pivot_squared(solved_.data(), diagonal);
        const bool is_dependent = pivot_squared <= kDependent * diagonal;
        double curvature = s_.factor.curvature(solved_.data(), pivot_squared);
        motion_.direction.assign(solved_.begin(), solved_.begin() + static_cast<std::ptrdiff_t>(m));
        const double db = s_.factor.solve_bordered(motion_.direction.data(), 1.0);
        if (is_dependent) {
            curvature = rows_.diagonal(i) + db;
            for (std::size_t k = 0; k < m; ++k) curvature += motion_.direction[k] * row[active_.slot(s_.margin[k])];
            curvature = std::max(0.0, curvature);
        }
        const double room = sign > 0.0 ? s_.upper[i] - s_.z[i] : s_.z[i] - s_.lower[i];
        const double wanted = curvature * room > gap ? gap / curvature : room;
        if (sign < 0.0)
            for (double& dz : motion_.direction) dz = -dz;
        const double step = motion_.first_hit(wanted);
        motion_.advance(step);
        s_.bias += sign * step * db;
        s_.z[i] += sign * step;
        gap -= curvature * step;
        if (!motion_.hits().empty()) {
            drop_hits(solved_.data());
            if (gap <= threshold()) return;
            continue;
        }
        if (wanted == room)
            s_.z[i] = sign > 0.0 ? s_.upper[i] : s_.lower[i];
        else if (!is_dependent)
            join_margin(i, solved_.data(), pivot_squared);
        return;
    }
}

}  // namespace steelyard
