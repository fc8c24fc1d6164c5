// Where two normal distributions of scores are cut apart.
#pragma once

namespace steelyard {

struct NormalScores {
    double mean, variance;
};

// The cut that maximises the product of both hit rates, those of scores above it and below it; half-way between the
// means where that of the positive side is not the larger one.
double normal_gmean_cut(const NormalScores& negative, const NormalScores& positive);

}  // namespace steelyard
