// Error rates of all thresholds between the scores of two classes.
#pragma once

#include <vector>

namespace steelyard {

// One entry per threshold, ascending. The first threshold is below all scores, the last one is the highest score, and
// the others are midway between distinct neighbouring scores. Rows with higher scores are predicted positive.
struct ErrorRates {
    std::vector<double> thresholds;
    std::vector<double> misses;  // share of the positive rows
    std::vector<double> alarms;  // share of the negative rows that are false alarms
};

// There is at least one score of each class.
ErrorRates error_rates(std::vector<double> positive, std::vector<double> negative);

}  // namespace steelyard
