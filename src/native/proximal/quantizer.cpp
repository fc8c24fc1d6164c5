#include "proximal/quantizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace steelyard {

namespace {

constexpr int kCoarsest = 1000;
constexpr int kResolution = 33;  // a typical deviation has at least 2^33 steps

int exponent_of(double x) {  // returns floor(log2 |x|); x must not be 0
    int exponent;
    std::frexp(x, &exponent);
    return exponent - 1;
}

// Returns an exponent rounded down to a multiple of 4.
// Steps of rounded features are powers of 16, so that similar rows at several sites get the same steps.
int coarse(int exponent) { return exponent >= 0 ? exponent / 4 * 4 : -((3 - exponent) / 4 * 4); }

}  // namespace

int lowest_bit(double x) {
    int exponent;
    const auto mantissa = static_cast<std::uint64_t>(std::fabs(std::ldexp(std::frexp(x, &exponent), 53)));
    return exponent - 53 + std::countr_zero(mantissa);
}

int wanted_exponent(double deviation, double origin) {
    int wanted = coarse(exponent_of(deviation) - kResolution);
    if (origin != 0.0) wanted = std::max(wanted, exponent_of(origin) - 52);
    return std::clamp(wanted, kFinest, kCoarsest);
}

Big nearest_step(double x, int exponent) {
    if (x == 0.0) return Big(0);
    int e;
    const Big mantissa(static_cast<std::int64_t>(std::ldexp(std::frexp(x, &e), 53)));
    const int shift = e - 53 - exponent;
    if (shift >= 0) return mantissa << static_cast<unsigned>(shift);
    if (shift < -64) return Big(0);
    return ((mantissa >> static_cast<unsigned>(-shift - 1)) + Big(1)) >> 1;
}

Quantizer empty_quantizer(std::size_t d) {
    return {std::vector<std::int32_t>(d, 0), std::vector<double>(d, 0.0), std::vector<std::uint8_t>(d, 0),
            std::vector<std::uint8_t>(d, 0)};
}

void fit_feature(Quantizer& quantizer, std::size_t j, std::vector<double>& values, bool at_zero) {
    // Use each distinct value once, so that two equal rows and one row of weight 2 give the same quantizer.
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const double middle = values[(values.size() - 1) / 2];
    int lowest = kCoarsest;
    std::vector<double> deviations;
    for (const double x : values) {
        if (x != 0.0) lowest = std::min(lowest, lowest_bit(x));
        if (x != middle) deviations.push_back(std::fabs(x - middle));
    }
    lowest = std::max(lowest, kFinest);
    if (lowest == kCoarsest) lowest = 0;  // all values are zero
    int exponent = lowest;
    if (!deviations.empty()) {
        std::nth_element(deviations.begin(), deviations.begin() + deviations.size() / 2, deviations.end());
        const double typical = deviations[deviations.size() / 2];
        const int wanted = std::isfinite(typical) ? wanted_exponent(typical, middle) : 960;
        quantizer.rounds[j] = lowest < wanted;
        exponent = std::max(lowest, wanted);
    }
    quantizer.exponent[j] = exponent;
    double top = 0.0;
    for (const double x : {values.front(), values.back()}) top = std::max(top, std::fabs(std::ldexp(x, -exponent)));
    const Big origin = nearest_step(middle, exponent);
    quantizer.origin[j] = at_zero || top < 0x1p19 || origin.bit_length() > 53 ? 0.0 : origin.scaled(0);
}

bool at_zero(const Quantizer& quantizer) {
    return std::all_of(quantizer.origin.begin(), quantizer.origin.end(), [](double o) { return o == 0.0; });
}

bool is_coarse(const Quantizer& quantizer) {
    return std::any_of(quantizer.exponent.begin(), quantizer.exponent.end(), [](std::int32_t e) { return e > 900; });
}

Quantizer common_quantizer(const Quantizer& a, const Quantizer& b) {
    Quantizer quantizer = a;
    for (std::size_t j = 0; j < a.exponent.size(); ++j) {
        const std::int32_t finest = std::min(a.exponent[j], b.exponent[j]);
        // Returns the number of bits by which the steps of merged values may be coarser than those of g.
        const auto coarser = [&](const Quantizer& g) {
            return g.rounds[j] || g.mixed[j] ? g.exponent[j] + g.mixed[j] - finest : 0;
        };
        quantizer.mixed[j] = static_cast<std::uint8_t>(std::min(255, std::max(coarser(a), coarser(b))));
        quantizer.rounds[j] = a.rounds[j] || b.rounds[j];
        quantizer.exponent[j] = finest;
        const double origin = std::ldexp(a.origin[j], a.exponent[j] - finest);
        quantizer.origin[j] = std::fabs(origin) < kWhole ? origin : 0.0;
    }
    return quantizer;
}

}  // namespace steelyard
