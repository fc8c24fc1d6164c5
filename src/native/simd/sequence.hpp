// Dynamic programming for sequence kernels: one sequence is compared with several others, one per SIMD lane.
//
// Sums over alignments exceed the range of double after a few hundred elements.
// Numbers are therefore pairs (mantissa, exponent) of doubles. An addition aligns the exponents by a multiplication.
// Only the final result needs a logarithm; computing with logarithms in every cell would be much slower.
#pragma once

#include "functions.hpp"
#include "simd/loops_sequence.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kSequenceVectors = kSequenceLanes / kDoubles;
constexpr double kExponentOfZero = -1e12;

// Numbers mantissa * 2^exponent, one per lane.
struct Scaled {
    VecD mantissa, exponent;
};

STEELYARD_ALWAYS_INLINE static inline Scaled scaled_zero() { return {broadcast(1.0), broadcast(kExponentOfZero)}; }

// Returns 2^k for integers k <= 0. For k below -1000 the result is 2^-1000, which is negligible in a sum.
STEELYARD_ALWAYS_INLINE static inline VecD power_of_two(VecD k) {
    typedef Lane<double>::IntVec IntVec;
    const VecD magic = broadcast(Lane<double>::round_to_int);
    const VecD whole = larger(k, broadcast(-1000.0)) + magic;
    return (VecD)(((IntVec)whole - (IntVec)magic + Lane<double>::bias) << Lane<double>::mantissa_bits);
}

STEELYARD_ALWAYS_INLINE static inline Scaled add(Scaled a, Scaled b) {
    const VecD top = larger(a.exponent, b.exponent);
    return {a.mantissa * power_of_two(a.exponent - top) + b.mantissa * power_of_two(b.exponent - top), top};
}

STEELYARD_ALWAYS_INLINE static inline Scaled add(Scaled a, Scaled b, Scaled c) {
    const VecD top = larger(larger(a.exponent, b.exponent), c.exponent);
    return {a.mantissa * power_of_two(a.exponent - top) + b.mantissa * power_of_two(b.exponent - top) +
                c.mantissa * power_of_two(c.exponent - top),
            top};
}

// Normalizes the mantissa to [1, 2).
STEELYARD_ALWAYS_INLINE static inline Scaled normalized(VecD mantissa, VecD exponent) {
    typedef std::uint64_t Word STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
    constexpr int bits = Lane<double>::mantissa_bits;
    constexpr std::uint64_t one = std::uint64_t{Lane<double>::bias} << bits, fraction = (std::uint64_t{1} << bits) - 1;
    const VecD magic = broadcast(Lane<double>::round_to_int);
    const Word word = (Word)mantissa;
    const VecD lifted = (VecD)((word >> bits) - std::uint64_t{Lane<double>::bias} + (Word)magic) - magic;
    return {(VecD)((word & fraction) | one), exponent + lifted};
}

STEELYARD_ALWAYS_INLINE static inline Scaled read(const double* cells, size_t v) {
    return {load(cells + v * kDoubles), load(cells + kSequenceLanes + v * kDoubles)};
}
STEELYARD_ALWAYS_INLINE static inline void write(double* cells, size_t v, Scaled value) {
    store(cells + v * kDoubles, value.mantissa);
    store(cells + kSequenceLanes + v * kDoubles, value.exponent);
}

constexpr size_t kCell = 2 * kSequenceLanes;  // size of a cell, which contains mantissas and then exponents

static void fill_zero(double* cells, size_t n_cells) {
    for (size_t c = 0; c < n_cells; ++c)
        for (size_t v = 0; v < kSequenceVectors; ++v) write(cells + c * kCell, v, scaled_zero());
}

// Reads the result of each sequence of the panel from the cell at which the sequence ends.
static void read_ends(const double* cells, const size_t* lengths, double* mantissa, double* exponent) {
    for (size_t s = 0; s < kSequenceLanes; ++s) {
        mantissa[s] = cells[lengths[s] * kCell + s];
        exponent[s] = cells[lengths[s] * kCell + kSequenceLanes + s];
    }
}

// Returns the local similarity w / (2 - w) for w = triangle * exp(minus_squared).
STEELYARD_ALWAYS_INLINE static inline Scaled local_similarity(VecD minus_squared, double triangle) {
    typedef Lane<double>::IntVec IntVec;
    // The exponent is limited, so that the exponents of full paths stay exact. Smaller similarities are practically 0.
    const ReducedExp<double> e = reduce_exp<double>(larger(minus_squared, broadcast(-1e6)));
    const VecD magic = broadcast(Lane<double>::round_to_int);
    const VecD exponent = (VecD)(e.n + (IntVec)magic) - magic;
    const VecD mantissa = triangle * (1.0 + e.expm1_r);
    return {mantissa / (2.0 - mantissa * power_of_two(exponent < 0.0 ? exponent : VecD{})), exponent};
}

static void alignment_sums(const AlignmentSpec& spec, const double* x, size_t n, size_t d, SequencePanel<double> panel,
                           double* work, double* mantissa, double* exponent) {
    const size_t L = panel.longest, band = spec.band;
    fill_zero(work, L + 1);
    for (size_t v = 0; v < kSequenceVectors; ++v) write(work, v, {broadcast(1.0), VecD{}});
    for (size_t i = 1; i <= n; ++i, x += d) {
        const size_t first = band && i >= band ? i - band + 1 : 1;
        const size_t last = band && i + band - 1 < L ? i + band - 1 : L;
        if (first > L) break;  // all further cells are outside the band
        Scaled left[kSequenceVectors], diagonal[kSequenceVectors];
        for (size_t v = 0; v < kSequenceVectors; ++v) {
            left[v] = scaled_zero();
            diagonal[v] = read(work + (first - 1) * kCell, v);
        }
        if (first == 1) fill_zero(work, 1);
        for (size_t j = first; j <= last; ++j) {
            const double apart = static_cast<double>(i > j ? i - j : j - i);
            const double triangle = band ? 1.0 - apart / static_cast<double>(band) : 1.0;
            const double* z = panel.symbols + (j - 1) * d * kSequenceLanes;
            double* cell = work + j * kCell;
            STEELYARD_UNROLL(8)
            for (size_t v = 0; v < kSequenceVectors; ++v) {
                VecD squared = {};
                for (size_t k = 0; k < d; ++k) {
                    const VecD difference = x[k] - load(z + k * kSequenceLanes + v * kDoubles);
                    squared += difference * difference;
                }
                const Scaled local = local_similarity(-spec.gamma * squared, triangle);
                const Scaled up = read(cell, v), sum = add(up, left[v], diagonal[v]);
                left[v] = normalized(local.mantissa * sum.mantissa, local.exponent + sum.exponent);
                diagonal[v] = up;
                write(cell, v, left[v]);
            }
        }
    }
    read_ends(work, panel.lengths, mantissa, exponent);
    for (size_t s = 0; s < kSequenceLanes; ++s) {
        const size_t length = panel.lengths[s], apart = n > length ? n - length : length - n;
        if (band && apart >= band) exponent[s] = kExponentOfZero;  // the cell may contain a value of an earlier row
    }
}

// Every cell has three sums, one for each type of the last edit operation: match or substitution, deletion, insertion.
static void edit_sums(const EditSpec& spec, const std::int32_t* x, size_t n, SequencePanel<std::int32_t> panel,
                      double* work, double* mantissa, double* exponent) {
    const size_t L = panel.longest;
    double *kept = work, *deleted = kept + (L + 1) * kCell, *total = deleted + (L + 1) * kCell;
    fill_zero(work, 3 * (L + 1));
    for (size_t v = 0; v < kSequenceVectors; ++v) {
        Scaled sum{broadcast(1.0), VecD{}};
        write(kept, v, sum);
        write(total, v, sum);
        for (size_t j = 1; j <= L; ++j) {
            sum = normalized(spec.gap * sum.mantissa, sum.exponent);
            write(total + j * kCell, v, sum);
        }
    }
    for (size_t i = 1; i <= n; ++i) {
        Scaled left[kSequenceVectors], diagonal[kSequenceVectors];
        for (size_t v = 0; v < kSequenceVectors; ++v) {
            diagonal[v] = read(total, v);
            const Scaled open = add(read(kept, v), read(deleted, v));
            left[v] = normalized(spec.gap * open.mantissa, open.exponent);
            write(kept, v, scaled_zero());
            write(deleted, v, left[v]);
            write(total, v, left[v]);
        }
        for (size_t j = 1; j <= L; ++j) {
            const std::int32_t* z = panel.symbols + (j - 1) * kSequenceLanes;
            STEELYARD_UNROLL(8)
            for (size_t v = 0; v < kSequenceVectors; ++v) {
                VecD weight;
                for (size_t lane = 0; lane < kDoubles; ++lane)
                    weight[lane] = z[v * kDoubles + lane] == x[i - 1] ? 1.0 : spec.substitution;
                const Scaled open = add(read(kept + j * kCell, v), read(deleted + j * kCell, v));
                const Scaled now_deleted = normalized(spec.gap * open.mantissa, open.exponent);
                const Scaled now_kept = normalized(weight * diagonal[v].mantissa, diagonal[v].exponent);
                const Scaled inserted = normalized(spec.gap * left[v].mantissa, left[v].exponent);
                diagonal[v] = read(total + j * kCell, v);
                const Scaled sum = add(now_kept, now_deleted, inserted);
                left[v] = normalized(sum.mantissa, sum.exponent);
                write(kept + j * kCell, v, now_kept);
                write(deleted + j * kCell, v, now_deleted);
                write(total + j * kCell, v, left[v]);
            }
        }
    }
    read_ends(total, panel.lengths, mantissa, exponent);
}

constexpr SequenceLoops sequence_loops{alignment_sums, edit_sums};

}  // namespace steelyard::STEELYARD_LEVEL
