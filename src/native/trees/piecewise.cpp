#include "trees/piecewise.hpp"

#include <algorithm>
#include <cmath>

// This file is compiled without floating-point contraction, so that results are bit-identical on every machine.

namespace steelyard {

void apply_pieces(Rows<double> X, const ColumnPieces& pieces, double* out) noexcept {
    const std::size_t d = X.n_features;
    for (std::size_t i = 0; i < X.n_rows * d; i += d) {
        for (std::size_t c = 0; c < d; ++c) {
            const double value = X.data[i + c];
            std::size_t piece = 0;  // index of the last knot that is at most the value
            for (std::size_t left = pieces.n_knots; left > 1;) {
                const std::size_t half = left / 2;
                piece += pieces.knots[(piece + half) * d + c] <= value ? half : 0;
                left -= half;
            }
            const std::size_t place = piece * d + c;
            const double slope = pieces.slopes[place];
            const double along = slope == 0.0 ? 0.0 : std::max(value - pieces.knots[place], 0.0) * slope;
            out[i + c] = pieces.values[place] + along;
        }
    }
}

namespace {

double looked_up(double value, std::span<const double> knots, std::span<const double> values) noexcept {
    if (!(value > knots.front())) return values.front();
    if (value >= knots.back()) return values.back();
    const auto next = static_cast<std::size_t>(std::ranges::upper_bound(knots, value) - knots.begin());
    const double slope = (values[next] - values[next - 1]) / (knots[next] - knots[next - 1]);
    return values[next - 1] + slope * (value - knots[next - 1]);
}

}  // namespace

void apply_lookups(Rows<double> X, const Lookups& lookups, double* out) noexcept {
    for (std::size_t f = 0; f < X.n_features; ++f) {
        const auto begin = static_cast<std::size_t>(lookups.starts[f]);
        const auto n = static_cast<std::size_t>(lookups.starts[f + 1]) - begin;
        const auto knots = lookups.knots.subspan(begin, n), values = lookups.values.subspan(begin, n);
        for (std::size_t i = 0; i < X.n_rows; ++i) {
            const double value = X.data[i * X.n_features + f];
            out[i * X.n_features + f] = n < 2 || std::isnan(value) ? 0.0 : looked_up(value, knots, values);
        }
    }
}

void sum_lookups(Rows<double> X, const Lookups& lookups, double* out) noexcept {
    std::fill_n(out, X.n_rows, 0.0);
    for (std::size_t f = 0; f < lookups.weights.size(); ++f) {
        const double weight = lookups.weights[f];
        if (weight == 0.0) continue;
        const auto begin = static_cast<std::size_t>(lookups.starts[f]);
        const auto n = static_cast<std::size_t>(lookups.starts[f + 1]) - begin;
        const auto knots = lookups.knots.subspan(begin, n), values = lookups.values.subspan(begin, n);
        for (std::size_t i = 0; i < X.n_rows; ++i) {
            const double value = X.data[i * X.n_features + f];
            if (!std::isnan(value)) out[i] += weight * looked_up(value, knots, values);
        }
    }
}

}  // namespace steelyard
