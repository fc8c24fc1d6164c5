// The hot loops of linear scores: products of rows with a few normals.
#pragma once

#include <cstddef>

namespace steelyard {

struct ScoreLoops {
    std::size_t width;  // planes of a panel
    std::size_t group;  // panels that one call of many_planes takes at most

    // out[i] = row i of X times normal. n rows of length d.
    void (*one_plane_f64)(const double* X, std::size_t n, std::size_t d, const double* normal, double* out);
    void (*one_plane_f32)(const float* X, std::size_t n, std::size_t d, const double* normal, double* out);

    // out[i * stride + p] = row i of X times normal p, for the planes of `panels` panels that follow one another.
    // A panel holds feature 0 of its normals, then feature 1, and so on: d * width numbers.
    void (*many_planes_f64)(const double* X, std::size_t n, std::size_t d, const double* panel, std::size_t panels,
                            double* out, std::size_t stride);
    void (*many_planes_f32)(const float* X, std::size_t n, std::size_t d, const double* panel, std::size_t panels,
                            double* out, std::size_t stride);

    // Both take whole panels: n is a multiple of width.
    // The scores of every row += intercepts. Returns 0 if all are finite, else NaN.
    double (*add_intercepts)(double* scores, std::size_t n_rows, const double* intercepts, std::size_t n);
    // The first place of the highest score, or n; of no meaning if a score is NaN.
    std::size_t (*first_highest)(const double* scores, std::size_t n);
};

}  // namespace steelyard
