// Part of SvmProblem: SMO steps, and rebuilding of the margin set after SMO steps and after a rollback.
#include <algorithm>

#include "enclosing/pairwise_steps.hpp"
#include "svm/svm_problem.hpp"

namespace steelyard {

namespace {

constexpr double kLeastPivot = 1e-13;

}  // namespace

// Makes SMO steps, which invalidate the margin set. The caller must call resum() and rebuild_margin() afterwards.
void SvmProblem::smo(double threshold, std::size_t max_steps) {
    sync();
    clear_margin();
    report_.smo_steps += pairwise_steps(rows_, s_, threshold, max_steps);
}

double SvmProblem::mean_diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < s_.z.size(); ++i) sum += rows_.diagonal(i);
    return sum / static_cast<double>(std::max<std::size_t>(1, s_.z.size()));
}

// Rebuilds the margin set from all samples between their bounds whose kernel rows are linearly independent.
void SvmProblem::rebuild_margin() {
    clear_margin();
    double sum = 0.0;
    std::size_t n_between = 0;
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        if (!is_between_bounds(s_, i)) continue;
        activate(i);
        const std::uint32_t slot = active_.slot(i);
        sum -= active_e(slot);
        ++n_between;
        if (s_.margin.empty()) {
            start_margin(i);
            continue;
        }
        gather_margin(active_.row(slot), s_.constant);
        s_.factor.forward(solved_.data());
        const double pivot_squared = s_.factor.pivot_squared(solved_.data(), diagonal_with_constant(i));
        if (pivot_squared > kLeastPivot * diagonal_with_constant(i)) join_margin(i, solved_.data(), pivot_squared);
    }
    if (n_between > 0) s_.bias = sum / static_cast<double>(n_between);
}

// Recomputes the factor of the margin set from cached kernel values.
void SvmProblem::refactor() {
    s_.factor.clear();
    const std::vector<std::uint32_t> margin = std::move(s_.margin);
    s_.margin.clear();
    for (const std::uint32_t i : margin) {
        gather_margin(active_.row(active_.slot(i)), s_.constant);
        s_.factor.forward(solved_.data());
        const double diagonal = diagonal_with_constant(i);
        const double pivot_squared = s_.factor.pivot_squared(solved_.data(), diagonal);
        join_margin(i, solved_.data(), std::max(pivot_squared, kLeastPivot * diagonal));
    }
}

}  // namespace steelyard
