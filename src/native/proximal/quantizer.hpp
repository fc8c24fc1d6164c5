// The grid on which values become whole numbers: how it is settled by the first rows, how two become one, and what a
// look at some rows finds on it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proximal/exact_sums.hpp"
#include "proximal/gram.hpp"

namespace steelyard {

constexpr int kFinest = -1074;      // the lowest bit of any double
constexpr int kFinestFast = -1000;  // below, one over the quantum is no double
constexpr int kCoarsestFast = 20;   // beyond, 1e-300 in quanta is none that is exact
constexpr double kWhole = 0x1p53;

int lowest_bit(double x);  // of a number other than 0
// The quantum that a feature gets when values like this deviate from an origin.
int wanted_exponent(double deviation, double origin);
// The nearest whole number of quanta, halves upwards, of any finite value.
Big quanta_of(double x, int exponent);

ExactGrid empty_grid(std::size_t d);
// Settles one feature by some of its values, which are put in order.
void settle_feature(ExactGrid& grid, std::size_t j, std::vector<double>& values, bool at_zero);
bool at_zero(const ExactGrid& grid);
// Whether values beyond the limit could have few quanta.
bool is_coarse(const ExactGrid& grid);
// The grid on which both can be kept, with the origin of the first where it stays whole.
ExactGrid common_grid(const ExactGrid& a, const ExactGrid& b);

// The grid of the first rows; value(i, j) is theirs.
template <class Value>
ExactGrid settled_grid(std::size_t n, std::size_t d, bool at_zero, Value&& value) {
    ExactGrid grid = empty_grid(d);
    std::vector<double> values;
    for (std::size_t j = 0; j < d; ++j) {
        values.clear();
        for (std::size_t i = 0; i < n; ++i) values.push_back(value(i, j));
        settle_feature(grid, j, values, at_zero);
    }
    return grid;
}

// The grid as the loops want it.
struct StepTables {
    std::vector<double> inverse;
    std::vector<double> origin;
    std::vector<double> slack;
    std::vector<std::size_t> tiny;    // features whose quanta are too fine to be counted in doubles
    std::vector<std::size_t> coarse;  // and those of whose quanta tiny values are no part among the doubles
    explicit StepTables(const ExactGrid& grid)
        : inverse(grid.exponent.size()), origin(grid.origin), slack(grid.rounds.begin(), grid.rounds.end()) {
        for (std::size_t j = 0; j < inverse.size(); ++j) {
            inverse[j] = std::ldexp(1.0, -std::max(grid.exponent[j], kFinestFast));
            if (grid.exponent[j] < kFinestFast) tiny.push_back(j);
            if (grid.exponent[j] > kCoarsestFast) coarse.push_back(j);
        }
    }
    explicit StepTables(std::size_t d) : inverse(d, 1.0), origin(d, 0.0), slack(d, 0.0) {}  // for whole numbers
    Steps steps() const { return {inverse.data(), origin.data(), slack.data()}; }
};

// What one look at some rows finds: by feature the largest number and what rounding would take off; by row whether it
// is beyond the reach of digits.
struct Found {
    std::vector<double> largest, remainder;
    std::vector<std::uint8_t> beyond;
};

template <class T>
Found scan(Rows<T> rows, const StepTables& tables, unsigned n_threads) {
    Found found{std::vector<double>(rows.n_features, 0.0), std::vector<double>(rows.n_features, 0.0),
                std::vector<std::uint8_t>(rows.n_rows)};
    scan_rows(rows, tables.steps(), found.largest, found.remainder, found.beyond, n_threads);
    if (!tables.tiny.empty()) std::fill(found.beyond.begin(), found.beyond.end(), std::uint8_t{1});
    for (const std::size_t j : tables.tiny) found.remainder[j] = 1.0;  // whether there is one must be looked at
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
