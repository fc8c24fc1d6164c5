#include "enclosing/pairwise_steps.hpp"

#include <algorithm>
#include <cmath>

#include "common/interrupt.hpp"
#include "common/numbers.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

void add_row(double a, const double* x, double* y, std::size_t n) { loops().solver.axpy(a, x, y, n); }
void add_row(double a, const float* x, double* y, std::size_t n) { loops().solver.axpy_narrow(a, x, y, n); }

template <class T>
std::size_t pairwise_steps_on(KernelRows& rows, SvmState& state, double threshold, std::size_t max_steps) {
    const std::size_t n = state.z.size();
    for (std::size_t step = 0; step < max_steps; ++step) {
        poll_interrupt();
        std::size_t up = n;
        double least = kInfinity;
        for (std::size_t i = 0; i < n; ++i)
            if (state.z[i] < state.upper[i] && state.e[i] < least) least = state.e[i], up = i;
        if (up == n) return step;
        const T* up_row = rows.row<T>(up);
        std::size_t down = n;
        double best_gain = 0.0, largest = -kInfinity;
        const double up_diagonal = rows.diagonal(up), tiny = 1e-12 * std::max(1e-300, std::abs(up_diagonal));
        for (std::size_t j = 0; j < n; ++j) {
            if (!(state.z[j] > state.lower[j]) || !(state.e[j] > least)) continue;
            const double difference = state.e[j] - least;
            largest = std::max(largest, difference);
            const double curvature =
                std::max(up_diagonal + rows.diagonal(j) - 2.0 * static_cast<double>(up_row[j]), tiny);
            const double gain = difference * difference / curvature;
            if (gain > best_gain) best_gain = gain, down = j;
        }
        if (down == n || largest <= 2.0 * threshold) return step;
        const T* down_row = rows.row<T>(down);
        const double curvature =
            std::max(up_diagonal + rows.diagonal(down) - 2.0 * static_cast<double>(up_row[down]), tiny);
        const double up_room = state.upper[up] - state.z[up], down_room = state.z[down] - state.lower[down];
        const double move = std::min({(state.e[down] - least) / curvature, up_room, down_room});
        state.z[up] = move == up_room ? state.upper[up] : state.z[up] + move;
        state.z[down] = move == down_room ? state.lower[down] : state.z[down] - move;
        add_row(move, up_row, state.e.data(), n);
        add_row(-move, down_row, state.e.data(), n);
    }
    return max_steps;
}

}  // namespace

std::size_t pairwise_steps(KernelRows& rows, SvmState& state, double threshold, std::size_t max_steps) {
    return rows.is_wide() ? pairwise_steps_on<double>(rows, state, threshold, max_steps)
                          : pairwise_steps_on<float>(rows, state, threshold, max_steps);
}

}  // namespace steelyard
