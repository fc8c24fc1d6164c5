// Compares the parser of numeric lines with strtod for every cell.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.hpp"
#include "tables/number_lines.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

bool is_plain(const std::string& lines, std::vector<std::int32_t> places) {
    std::size_t n_wanted = 0;
    for (const std::int32_t place : places) n_wanted += place >= 0;
    return read_number_lines(lines, ',', places, n_wanted).has_value();
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace

TEST(every_number_is_the_nearest_double) {
    std::mt19937_64 bits(1);
    std::vector<std::string> cells = {"0",
                                      "-0",
                                      "-0.0",
                                      "1",
                                      "007",
                                      "9007199254740993",
                                      "1e22",
                                      "1e23",
                                      "123e-25",
                                      "1E+5",
                                      "0.3",
                                      "1e-5",
                                      "5e-324",
                                      "2.2250738585072011e-308",
                                      "1.7976931348623157e308"};
    char cell[64];
    for (int i = 0; i < 20000; ++i) {
        const double value = std::bit_cast<double>(bits());
        if (!std::isfinite(value)) continue;
        std::snprintf(cell, sizeof cell, i % 2 ? "%.17g" : "%.9e", value);
        cells.emplace_back(cell);
        std::snprintf(cell, sizeof cell, "%.*f", i % 12, std::ldexp(value, -std::ilogb(value) + i % 40));
        cells.emplace_back(cell);
    }
    for (const std::string& text : cells) {
        const std::int32_t place = 0;
        const auto table = read_number_lines(text, ',', {&place, 1}, 1);
        CHECK(table && table->n_rows == 1);
        if (table) CHECK(same_bits(table->values[0], std::strtod(text.c_str(), nullptr)), text);
    }
}

TEST(columns_are_written_to_their_positions_and_others_are_skipped) {
    const std::vector<std::int32_t> places = {1, -1, 0};
    for (const std::string end : {"\n", "\r\n", ""}) {
        const auto table = read_number_lines("1,any text,2\n3.5,,-4" + end, ',', places, 2);
        CHECK(table && table->n_rows == 2);
        if (!table) continue;
        const double expected[] = {2.0, 1.0, -4.0, 3.5};
        for (std::size_t i = 0; i < 4; ++i) CHECK(table->values[i] == expected[i]);
    }
}

TEST(an_empty_cell_is_nan) {
    const std::vector<std::int32_t> places = {0, 1};
    const auto table = read_number_lines(",2\n1,\n", ',', places, 2);
    CHECK(table && std::isnan(table->values[0]) && table->values[1] == 2.0 && std::isnan(table->values[3]));
}

TEST(lines_with_other_cells_or_invalid_numbers_return_nullopt) {
    for (const char* lines :
         {"1\n",       "1,2,3\n",  "1,2,\n",  "\n1,2\n",    "1,2\n\n", "\"1\",2\n", "1,a\n",    "1,nan\n",
          "1,inf\n",   "1, 2\n",   "1,+2\n",  "1,.5\n",     "1,5.\n",  "1,-\n",     "1,1e\n",   "1,1e99999\n",
          "1,1e999\n", "1,0x10\n", "1,1_0\n", "1,2\r3,4\n", "1;2\n",   "1,2 \n",    "1,1.2.3\n"})
        CHECK(!is_plain(lines, {0, 1}), lines);
    CHECK(!is_plain("1,\"a\nb\",2\n", {0, -1, 1}));
    CHECK(is_plain("1,2", {0, 1}));
    CHECK(is_plain("", {0, 1}));
}
