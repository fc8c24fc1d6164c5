#include "tables/number_lines.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <system_error>

namespace steelyard {

namespace {

constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int kMaxExactPower = 22;  // 10^22 is the largest power of ten that is a double
constexpr std::uint64_t kMaxExactInteger = std::uint64_t{1} << 53;
constexpr std::ptrdiff_t kMaxDigits = 19;  // more digits do not fit into 64 bits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends the digits at p to a number. Returns the position after the last digit.
const char* read_digits(const char* p, const char* end, std::uint64_t& number) {
    while (p != end && is_digit(*p)) number = 10 * number + static_cast<std::uint64_t>(*p++ - '0');
    return p;
}

// Parses the exponent at p, which points to the letter e. Returns its end, or null if the exponent is invalid.
const char* read_exponent(const char* p, const char* end, int& exponent) {
    ++p;
    const bool negative = p != end && *p == '-';
    if (p != end && (*p == '-' || *p == '+')) ++p;
    std::uint64_t number = 0;
    const char* const last = read_digits(p, end, number);
    if (last == p || last - p > 4) return nullptr;
    exponent = negative ? -static_cast<int>(number) : static_cast<int>(number);
    return last;
}

// Parses a number with too many digits for the exact conversion.
bool read_long([[maybe_unused]] const char* begin, [[maybe_unused]] const char* end, [[maybe_unused]] double& value) {
#ifdef __cpp_lib_to_chars
    const auto [last, error] = std::from_chars(begin, end, value);
    return error == std::errc{} && last == end;
#else
    return false;  // without from_chars, the general parser reads these lines
#endif
}

// Parses the number at p. Returns its end, or null if it is not a plain decimal number.
const char* read_number(const char* p, const char* end, double& value) {
    const char* const begin = p;
    const bool negative = p != end && *p == '-';
    if (negative) ++p;
    std::uint64_t digits = 0;
    const char* const whole = p;
    p = read_digits(p, end, digits);
    std::ptrdiff_t n_digits = p - whole;
    if (n_digits == 0) return nullptr;
    int power = 0;
    if (p != end && *p == '.') {
        const char* const fraction = ++p;
        p = read_digits(p, end, digits);
        if (p == fraction) return nullptr;
        n_digits += p - fraction;
        power = -static_cast<int>(std::min<std::ptrdiff_t>(p - fraction, 1000));
    }
    if (p != end && (*p == 'e' || *p == 'E')) {
        int exponent = 0;
        p = read_exponent(p, end, exponent);
        if (!p) return nullptr;
        power += exponent;
    }
    // Both operands are exact doubles, so the quotient or product is rounded only once.
    if (n_digits <= kMaxDigits && digits <= kMaxExactInteger && std::abs(power) <= kMaxExactPower) {
        const auto number = static_cast<double>(digits);
        const double size = power < 0 ? number / kPowers[-power] : number * kPowers[power];
        value = negative ? -size : size;
        return p;
    }
    return read_long(begin, p, value) ? p : nullptr;
}

// Skips a cell. Returns its end, or null if it has quotes.
const char* skip_cell(const char* p, const char* end, char delimiter) {
    for (; p != end && *p != delimiter && *p != '\n' && *p != '\r'; ++p)
        if (*p == '"') return nullptr;
    return p;
}

// Parses a line. Returns the start of the next line, or null on failure.
const char* read_line(const char* p, const char* end, char delimiter, std::span<const std::int32_t> indices,
                      double* row) {
    const auto at_border = [&] { return p == end || *p == delimiter || *p == '\n' || *p == '\r'; };
    if (*p == '\n' || *p == '\r') return nullptr;
    for (std::size_t c = 0; c < indices.size(); ++c) {
        if (c && (p == end || *p++ != delimiter)) return nullptr;
        if (indices[c] < 0)
            p = skip_cell(p, end, delimiter);
        else if (at_border())
            row[indices[c]] = std::numeric_limits<double>::quiet_NaN();
        else
            p = read_number(p, end, row[indices[c]]);
        if (!p) return nullptr;
    }
    if (p != end && *p == '\r') ++p;
    if (p == end) return p;
    return *p == '\n' ? p + 1 : nullptr;
}

}  // namespace

std::optional<NumberTable> read_number_lines(std::string_view lines, char delimiter,
                                             std::span<const std::int32_t> indices, std::size_t n_wanted) {
    const char *p = lines.data(), *const end = p + lines.size();
    const bool lacks_newline = !lines.empty() && lines.back() != '\n';
    NumberTable table;
    table.n_rows = static_cast<std::size_t>(std::count(p, end, '\n')) + (lacks_newline ? 1 : 0);
    table.values = std::make_unique_for_overwrite<double[]>(table.n_rows * n_wanted);
    for (double* row = table.values.get(); p != end; row += n_wanted) {
        p = read_line(p, end, delimiter, indices, row);
        if (!p) return std::nullopt;
    }
    return table;
}

}  // namespace steelyard
