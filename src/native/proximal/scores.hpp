// Linear scores and predicted labels, each in one pass over the rows.
#pragma once

#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

struct Planes {
    std::span<const double> normals;     // normals of all planes, n_features numbers per plane
    std::span<const double> intercepts;  // one intercept per plane; there is at least one plane
};

// scores[i * n_planes + p] = row i times normal p + intercept p. Returns whether all scores are finite.
template <class T>
bool linear_scores(Rows<T> rows, const Planes& planes, double* scores, unsigned n_threads);

// labels[i] = label of the plane with the highest score, or of the first such plane if scores are equal.
// With one plane, labels[i] = labels_of[1] if its score is positive, else labels_of[0]. Labels have any 8-byte type.
// Returns whether all scores are finite.
template <class T>
bool linear_labels(Rows<T> rows, const Planes& planes, std::span<const std::uint64_t> labels_of, std::uint64_t* labels,
                   unsigned n_threads);

}  // namespace steelyard
