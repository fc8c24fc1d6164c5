#include "koil/linear_online.hpp"

#include <algorithm>
#include <vector>

#include "common/dot.hpp"
#include "common/random.hpp"

namespace steelyard {

namespace {

void add(double factor, const double* x, double* target, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) target[k] += factor * x[k];
}

// Calls body(x, y) for every row, converted to double.
template <class T, class Body>
void for_rows(Rows<T> X, const std::int8_t* y, Body&& body) {
    std::vector<double> x(X.n_features);
    for (std::size_t i = 0; i < X.n_rows; ++i) {
        std::copy_n(X.data + i * X.n_features, X.n_features, x.begin());
        body(x.data(), static_cast<int>(y[i]));
    }
}

}  // namespace

template <class T>
void perceptron_sweep(Rows<T> X, const std::int8_t* y, double* weights, double& bias) {
    const std::size_t d = X.n_features;
    for_rows(X, y, [&](const double* x, int sign) {
        if (sign * (dot(weights, x, d) + bias) > 0.0) return;
        add(sign, x, weights, d);
        bias += sign;
    });
}

template <class T>
void oam_sweep(Rows<T> X, const std::int8_t* y, const OamState& state, std::size_t budget, double C,
               std::uint64_t seed) {
    const std::size_t d = X.n_features;
    std::vector<double> difference(d);
    for_rows(X, y, [&](const double* x, int sign) {
        const int own = sign > 0, other = 1 - own;
        const double uniform = uniform_at(seed, state.seen[0] + state.seen[1]);
        const double drawn = uniform * static_cast<double>(++state.seen[own]);
        const std::size_t slot = state.stored[own] < budget ? state.stored[own]++ : static_cast<std::size_t>(drawn);
        if (slot < budget) std::copy_n(x, d, state.buffers[own] + slot * d);
        // Each buffered vector represents seen / budget samples.
        const double bound = C * std::max(1.0, static_cast<double>(state.seen[other]) / static_cast<double>(budget));
        for (std::size_t j = 0; j < state.stored[other]; ++j) {
            const double* z = state.buffers[other] + j * d;
            for (std::size_t k = 0; k < d; ++k) difference[k] = x[k] - z[k];
            const double loss = 1.0 - sign * dot(state.weights, difference.data(), d);
            const double squared = dot(difference.data(), difference.data(), d);
            if (loss > 0.0 && squared > 0.0)
                add(sign * std::min(bound, loss / squared), difference.data(), state.weights, d);
        }
    });
}

template <class T>
void opauc_sweep(Rows<T> X, const std::int8_t* y, const OpaucState& state, double learning_rate,
                 double regularization) {
    const std::size_t d = X.n_features;
    std::vector<double> before(d), difference(d), gradient(d);
    for_rows(X, y, [&](const double* x, int sign) {
        const int own = sign > 0, other = 1 - own;
        double *mean = state.means[own], *covariance = state.covariances[own];
        const double n = static_cast<double>(++state.seen[own]);
        for (std::size_t k = 0; k < d; ++k) {
            before[k] = x[k] - mean[k];
            mean[k] += before[k] / n;
        }
        // Welford update of the covariance: S += ((x - old mean)(x - new mean)' - S) / n.
        for (std::size_t r = 0; r < d; ++r)
            for (std::size_t k = 0; k < d; ++k)
                covariance[r * d + k] += (before[r] * (x[k] - mean[k]) - covariance[r * d + k]) / n;
        if (state.seen[other] == 0) return;
        for (std::size_t k = 0; k < d; ++k) difference[k] = x[k] - state.means[other][k];
        const double residual = dot(difference.data(), state.weights, d) - sign;
        for (std::size_t r = 0; r < d; ++r)
            gradient[r] = regularization * state.weights[r] + residual * difference[r] +
                          dot(state.covariances[other] + r * d, state.weights, d);
        add(-learning_rate, gradient.data(), state.weights, d);
    });
}

#define STEELYARD_INSTANTIATE(T)                                                                               \
    template void perceptron_sweep(Rows<T>, const std::int8_t*, double*, double&);                             \
    template void oam_sweep(Rows<T>, const std::int8_t*, const OamState&, std::size_t, double, std::uint64_t); \
    template void opauc_sweep(Rows<T>, const std::int8_t*, const OpaucState&, double, double);
STEELYARD_INSTANTIATE(double)
STEELYARD_INSTANTIATE(float)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard
