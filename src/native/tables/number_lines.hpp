// Parser of CSV lines that contain only numbers. The parser allocates memory only for the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace steelyard {

struct NumberTable {
    std::unique_ptr<double[]> values;  // row-major
    std::size_t n_rows = 0;
};

// Parses complete lines. indices[c] is the position of column c in a result row, or -1 to skip the column.
// n_wanted is the width of a result row. An empty cell is NaN. Numbers are correctly rounded.
//
// Returns nullopt if a line has too few or too many cells, a quote, or a requested cell that is not a number.
// The caller then uses a general parser. Numbers may have a sign, a fraction and an exponent.
std::optional<NumberTable> read_number_lines(std::string_view lines, char delimiter,
                                             std::span<const std::int32_t> indices, std::size_t n_wanted);

}  // namespace steelyard
