// Classification by a vote of the nearest vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/rows.hpp"
#include "kernels/kernels.hpp"

namespace steelyard {

// Labelled vectors that vote on new rows. The caller owns the arrays, which must outlive this object.
struct Neighbors {
    KernelSpec spec;  // similarity of two rows
    Rows<double> vectors;
    const std::int64_t* places;  // class of each vector, below n_classes
    std::size_t n_classes;
    std::size_t n_neighbors;  // number of vectors that vote

    // Number of scores of a row: one for two classes, otherwise one per class.
    std::size_t n_scores() const { return n_classes == 2 ? 1 : n_classes; }
};

// Writes the scores of rows: the logarithm of the votes of each class, or the log-odds of the second of two classes.
// Each of the n_neighbors most similar vectors votes with its similarity.
// Among equally similar vectors, later vectors are preferred. Half a vote, divided among all classes, is added.
void neighbor_scores(const Neighbors& neighbors, Rows<double> X, double* out);

}  // namespace steelyard
