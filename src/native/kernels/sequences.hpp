// Logarithms of sequence kernels for all pairs of two collections of sequences of any lengths.
//
// A kernel value depends only on its two sequences, not on the panel that contains them or the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/loops_sequence.hpp"

namespace steelyard {

// Concatenated sequences: sequence s has the elements offsets[s] to offsets[s + 1] - 1 of n_features numbers each.
template <class Symbol>
struct Sequences {
    const Symbol* symbols;
    const std::int64_t* offsets;
    std::size_t n_sequences;
    std::size_t n_features;

    std::size_t length(std::size_t s) const { return static_cast<std::size_t>(offsets[s + 1] - offsets[s]); }
    const Symbol* operator[](std::size_t s) const {
        return symbols + static_cast<std::size_t>(offsets[s]) * n_features;
    }
};

// out[i * Z.n_sequences + j] = log k(x_i, z_j), which is minus infinity where the kernel is 0.
void log_alignment_block(const AlignmentSpec& spec, Sequences<double> X, Sequences<double> Z, double* out,
                         unsigned n_threads);
void log_edit_block(const EditSpec& spec, Sequences<std::int32_t> X, Sequences<std::int32_t> Z, double* out,
                    unsigned n_threads);

// Same as log_alignment_block() with Z = X, but computes one triangle and copies it to the other.
void log_alignment_matrix(const AlignmentSpec& spec, Sequences<double> X, double* out, unsigned n_threads);
void log_edit_matrix(const EditSpec& spec, Sequences<std::int32_t> X, double* out, unsigned n_threads);

// out[i] = log k(x_i, x_i).
void log_alignment_diagonal(const AlignmentSpec& spec, Sequences<double> X, double* out, unsigned n_threads);
void log_edit_diagonal(const EditSpec& spec, Sequences<std::int32_t> X, double* out, unsigned n_threads);

}  // namespace steelyard
