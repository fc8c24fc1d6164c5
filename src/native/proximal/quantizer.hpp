// Quantization of features: fits steps to the first rows and combines the quantizers of two states.
// A scan of rows finds values that need finer steps or arithmetic with more digits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proximal/gram.hpp"
#include "proximal/sufficient_statistics.hpp"

namespace steelyard {

constexpr int kFinest = -1074;      // exponent of the smallest subnormal double
constexpr int kFinestFast = -1000;  // for smaller steps, 1 / step overflows
constexpr int kCoarsestFast = 20;   // for larger steps, 1e-300 / step underflows
constexpr double kWhole = 0x1p53;

int lowest_bit(double x);  // returns the exponent of the lowest set bit; x must not be 0
// Returns the exponent of the step for values that deviate from an origin by `deviation`.
int wanted_exponent(double deviation, double origin);
// Returns the nearest integer multiple of the step (ties are rounded up) for any finite value.
Big nearest_step(double x, int exponent);

Quantizer empty_quantizer(std::size_t d);
// Fits the step and the origin of feature j to `values`, which are sorted by the function.
void fit_feature(Quantizer& quantizer, std::size_t j, std::vector<double>& values, bool at_zero);
bool at_zero(const Quantizer& quantizer);
// Returns whether a step is so coarse that even values above kLargestValue may be few multiples of it.
bool is_coarse(const Quantizer& quantizer);
// Returns a quantizer that represents the values of both quantizers exactly.
// The result has the origin of quantizer a if this origin is an integer multiple of the new step.
Quantizer common_quantizer(const Quantizer& a, const Quantizer& b);

// Fits a quantizer to the first rows, where value(i, j) is feature j of row i.
template <class Value>
Quantizer fit_quantizer(std::size_t n, std::size_t d, bool at_zero, Value&& value) {
    Quantizer quantizer = empty_quantizer(d);
    std::vector<double> values;
    for (std::size_t j = 0; j < d; ++j) {
        values.clear();
        for (std::size_t i = 0; i < n; ++i) values.push_back(value(i, j));
        fit_feature(quantizer, j, values, at_zero);
    }
    return quantizer;
}

// A quantizer as arrays for the SIMD loops.
struct StepTables {
    std::vector<double> inverse;
    std::vector<double> origin;
    std::vector<double> slack;
    std::vector<std::size_t> tiny;    // features whose steps are below the range of the fast loops
    std::vector<std::size_t> coarse;  // features whose steps are above the range of the fast loops
    explicit StepTables(const Quantizer& quantizer)
        : inverse(quantizer.exponent.size()),
          origin(quantizer.origin),
          slack(quantizer.rounds.begin(), quantizer.rounds.end()) {
        for (std::size_t j = 0; j < inverse.size(); ++j) {
            inverse[j] = std::ldexp(1.0, -std::max(quantizer.exponent[j], kFinestFast));
            if (quantizer.exponent[j] < kFinestFast) tiny.push_back(j);
            if (quantizer.exponent[j] > kCoarsestFast) coarse.push_back(j);
        }
    }
    // Creates tables for rows that are already integers.
    explicit StepTables(std::size_t d) : inverse(d, 1.0), origin(d, 0.0), slack(d, 0.0) {}
    Steps steps() const { return {inverse.data(), origin.data(), slack.data()}; }
};

// Result of a scan: for each feature, the largest magnitude in steps and the largest rounding error.
// beyond[i] is 1 if row i has values above kTwoDigits, which the loops over digits cannot add.
struct ScanResult {
    std::vector<double> largest, remainder;
    std::vector<std::uint8_t> beyond;
};

template <class T>
ScanResult scan(Rows<T> rows, const StepTables& tables, unsigned n_threads) {
    ScanResult found{std::vector<double>(rows.n_features, 0.0), std::vector<double>(rows.n_features, 0.0),
                     std::vector<std::uint8_t>(rows.n_rows)};
    scan_rows(rows, tables.steps(), found.largest, found.remainder, found.beyond, n_threads);
    if (!tables.tiny.empty()) std::fill(found.beyond.begin(), found.beyond.end(), std::uint8_t{1});
    // The scan does not compute the rounding errors of these features. A remainder of 1 causes a check of each value.
    for (const std::size_t j : tables.tiny) found.remainder[j] = 1.0;
    for (const std::size_t j : tables.coarse) found.remainder[j] = 1.0;
    return found;
}

template <class T>
void check_finite(Rows<T> rows, std::span<const std::uint8_t> suspects = {}) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        if (!suspects.empty() && !suspects[i]) continue;
        for (std::size_t j = 0; j < rows.n_features; ++j)
            if (!(std::fabs(static_cast<double>(rows.data[i * rows.n_features + j])) <= kLargestValue))
                throw BadValues("values must be finite and at most 1e300");
    }
}

}  // namespace steelyard
