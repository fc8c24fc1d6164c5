// Sequential minimal optimisation with second-order choice of the pair: gets near the optimum from far away, and
// repairs where steps along the margin set cannot go on.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/interrupt.hpp"
#include "steelyard/simd.hpp"
#include "steelyard/svm_problem.hpp"

namespace steelyard {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastPivot = 1e-13;

void add_row(double a, const double* x, double* y, std::size_t n) { loops().solver.axpy(a, x, y, n); }
void add_row(double a, const float* x, double* y, std::size_t n) { loops().solver.axpy_narrow(a, x, y, n); }

}  // namespace

// Until no pair violates the conditions by more than twice the threshold, or the steps are used up. The margin set is
// not kept: resum() and rebuild_margin() follow.
void SvmProblem::smo(double threshold, std::size_t max_steps) {
    sync();
    clear_margin();
    if (rows_.is_wide())
        smo_steps<double>(threshold, max_steps);
    else
        smo_steps<float>(threshold, max_steps);
}

template <class T>
void SvmProblem::smo_steps(double threshold, std::size_t max_steps) {
    const std::size_t n = s_.z.size();
    for (std::size_t step = 0; step < max_steps; ++step) {
        poll_interrupt();
        std::size_t up = n;
        double least = kInfinity;
        for (std::size_t i = 0; i < n; ++i)
            if (s_.z[i] < s_.upper[i] && s_.e[i] < least) least = s_.e[i], up = i;
        if (up == n) return;
        const T* up_row = rows_.row<T>(up);
        std::size_t down = n;
        double best_gain = 0.0, largest = -kInfinity;
        const double up_diagonal = rows_.diagonal(up), tiny = 1e-12 * std::max(1e-300, std::abs(up_diagonal));
        for (std::size_t j = 0; j < n; ++j) {
            if (!(s_.z[j] > s_.lower[j]) || !(s_.e[j] > least)) continue;
            const double difference = s_.e[j] - least;
            largest = std::max(largest, difference);
            const double curvature =
                std::max(up_diagonal + rows_.diagonal(j) - 2.0 * static_cast<double>(up_row[j]), tiny);
            const double gain = difference * difference / curvature;
            if (gain > best_gain) best_gain = gain, down = j;
        }
        if (down == n || largest <= 2.0 * threshold) return;
        const T* down_row = rows_.row<T>(down);
        const double curvature =
            std::max(up_diagonal + rows_.diagonal(down) - 2.0 * static_cast<double>(up_row[down]), tiny);
        const double up_room = s_.upper[up] - s_.z[up], down_room = s_.z[down] - s_.lower[down];
        const double move = std::min({(s_.e[down] - least) / curvature, up_room, down_room});
        s_.z[up] = move == up_room ? s_.upper[up] : s_.z[up] + move;
        s_.z[down] = move == down_room ? s_.lower[down] : s_.z[down] - move;
        add_row(move, up_row, s_.e.data(), n);
        add_row(-move, down_row, s_.e.data(), n);
        ++report_.smo_steps;
    }
}

double SvmProblem::mean_diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < s_.z.size(); ++i) sum += rows_.diagonal(i);
    return sum / static_cast<double>(std::max<std::size_t>(1, s_.z.size()));
}

// The margin set anew: everyone between the bounds whose kernel row does not depend on those before.
void SvmProblem::rebuild_margin() {
    clear_margin();
    double sum = 0.0;
    std::size_t n_between = 0;
    for (std::size_t i = 0; i < s_.z.size(); ++i) {
        if (!is_between(i)) continue;
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

// The factor anew, for the margin set as it is. No kernel value is evaluated.
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
