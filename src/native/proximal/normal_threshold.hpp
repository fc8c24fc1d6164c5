// Threshold with the largest G-mean between two normal distributions of scores.
#pragma once

namespace steelyard {

struct NormalScores {
    double mean, variance;
};

// Returns the threshold that maximizes sensitivity times specificity; the middle of the means if the mean of the
// positive class is not the larger one.
double normal_gmean_threshold(const NormalScores& negative, const NormalScores& positive);

}  // namespace steelyard
