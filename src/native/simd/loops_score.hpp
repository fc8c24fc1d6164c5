// Hot loops of linear scores: products of rows with normals.
#pragma once

#include <cstddef>

namespace steelyard {

struct ScoreLoops {
    std::size_t width;  // number of planes per panel
    std::size_t group;  // maximum number of panels per call of many_planes

    // out[i] = product of row i of X with the normal, for n rows of length d.
    void (*one_plane_f64)(const double* X, std::size_t n, std::size_t d, const double* normal, double* out);
    void (*one_plane_f32)(const float* X, std::size_t n, std::size_t d, const double* normal, double* out);

    // out[i * stride + p] = row i of X times normal p, for all planes p of `panels` consecutive panels.
    // A panel contains feature 0 of its normals, then feature 1, and so on, in total d * width numbers.
    void (*many_planes_f64)(const double* X, std::size_t n, std::size_t d, const double* panel, std::size_t panels,
                            double* out, std::size_t stride);
    void (*many_planes_f32)(const float* X, std::size_t n, std::size_t d, const double* panel, std::size_t panels,
                            double* out, std::size_t stride);

    // Adds the intercepts to the scores of every row. n is a multiple of width.
    // Returns 0 if all scores are finite, else NaN.
    double (*add_intercepts)(double* scores, std::size_t n_rows, const double* intercepts, std::size_t n);
    // Returns the first index of the highest score, undefined if a score is NaN. n is a multiple of width.
    std::size_t (*first_highest)(const double* scores, std::size_t n);
};

}  // namespace steelyard
