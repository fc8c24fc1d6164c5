// Lines of plain numbers as a table: the common case of a CSV file, read without making anything on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace steelyard {

struct NumberTable {
    std::unique_ptr<double[]> values;  // row by row
    std::size_t n_rows = 0;
};

// The numbers in whole lines of text. places[c] says where in a row the numbers of column c go, -1 if they
// are not wanted; n_wanted is how many are. An empty cell is nan. Every number is the double next to what is written.
//
// Nothing, where any line is not plain: not as many cells as places, a quote, a cell that is wanted and no number in
// digits (signs before, a point between them, an exponent behind). Others know what such a line means.
std::optional<NumberTable> read_number_lines(std::string_view lines, char delimiter,
                                             std::span<const std::int32_t> places, std::size_t n_wanted);

}  // namespace steelyard
