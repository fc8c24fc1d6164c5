// Threshold with the largest G-mean between two normal distributions of scores.
#pragma once

namespace steelyard {

struct NormalScores {
    double mean, variance;
};

// Returns the threshold that maximizes sensitivity times specificity.
// If the mean of the positive class is not larger than that of the negative class, returns the middle of both means.
double normal_gmean_threshold(const NormalScores& negative, const NormalScores& positive);

}  // namespace steelyard
