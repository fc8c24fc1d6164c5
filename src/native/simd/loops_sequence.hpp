// Hot loops of the sequence kernels: one sequence with a panel of sequences in SIMD lanes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// Number of sequences per panel, large enough to hide the latency of the recursion.
constexpr std::size_t kSequenceLanes = 16;

// Alignment kernel: sum over all alignments of the product of local similarities w / (2 - w), where w is
//   w = triangle(i - j) exp(-gamma |x_i - z_j|^2),  triangle(t) = max(0, 1 - |t| / band).
// A band of 0 means that there is no band. The kernel is positive definite (Cuturi, ICML 2011).
struct AlignmentSpec {
    double gamma = 1.0;
    std::size_t band = 0;
};

// Edit kernel: sum of the weights of all edit scripts between two strings. A weight is a product of numbers in (0, 1]:
// 1 for a match, `substitution` for a substitution, and `gap` for a deletion or insertion.
// Between two matches or substitutions, deletions precede insertions, so each script counts once.
struct EditSpec {
    double substitution = 0.5;
    double gap = 0.5;
};

// Sums are stored as mantissa * 2^exponent with mantissa in [1, 2), because long sequences exceed the range of double.
// An exponent below kSequenceZero means that the sum is 0.
constexpr double kSequenceZero = -5e11;

template <class Symbol>
struct SequencePanel {
    const Symbol* symbols;       // feature k of element t of sequence s is at (t * d + k) * kSequenceLanes + s
    const std::size_t* lengths;  // lengths of the kSequenceLanes sequences; 0 for unused lanes
    std::size_t longest;
};

struct SequenceLoops {
    // Computes the results for all sequences of the panel. `work` is a buffer of sequence_work(longest) numbers.
    void (*alignment)(const AlignmentSpec& spec, const double* x, std::size_t n, std::size_t d,
                      SequencePanel<double> panel, double* work, double* mantissa, double* exponent);
    void (*edit)(const EditSpec& spec, const std::int32_t* x, std::size_t n, SequencePanel<std::int32_t> panel,
                 double* work, double* mantissa, double* exponent);
};

constexpr std::size_t sequence_work(std::size_t longest) { return 6 * (longest + 1) * kSequenceLanes; }

}  // namespace steelyard
