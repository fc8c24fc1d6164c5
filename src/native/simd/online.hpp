// The loops of loops_online.hpp. Selection compares similarities as integers of the same order. Few neighbours are
// found by ranking: the k-th largest of the largest in each of 16 groups leaves little more than k keys, whose ranks
// are counted pair by pair. Many are found by halving an interval of integers, which costs the same for every k.
#pragma once

#include "functions.hpp"
#include "steelyard/loops_online.hpp"

namespace steelyard::STEELYARD_LEVEL {

typedef Lane<double>::IntVec VecI;

constexpr std::int64_t kNoKey = INT64_MIN;
constexpr size_t kGroups = 16;      // neighbours that ranking can find
constexpr size_t kMostRanked = 64;  // keys that are ranked rather than halved
constexpr size_t kGroupVectors = kGroups / kDoubles;
static_assert(kKeyPadding == kGroups);

static void gather(const double* values, const std::uint32_t* index, double* out, size_t n) {
    for (size_t j = 0; j < n; ++j) out[j] = values[index[j]];
}

// Integers in the order of the numbers; -0 and 0 are the same. Smaller integers than kNoKey + 1 do not occur.
[[gnu::always_inline]] static inline VecI ordered_keys(VecD x) {
    const VecI bits = (VecI)(x + 0.0);
    return bits ^ ((bits >> 63) & INT64_MAX);
}

[[gnu::always_inline]] static inline VecI load_keys(const std::int64_t* p) {
    VecI v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

[[gnu::always_inline]] static inline VecI all_lanes(std::int64_t key) { return key - VecI{}; }

// j, j + 1, ...
[[gnu::always_inline]] static inline VecI positions_from(size_t j) {
    VecI at;
#pragma GCC unroll 8
    for (size_t lane = 0; lane < kDoubles; ++lane) at[lane] = static_cast<std::int64_t>(lane);
    return at + static_cast<std::int64_t>(j);
}

// One bit a lane, the first lane's lowest, of a vector whose lanes are all zeros or all ones.
[[gnu::always_inline]] static inline std::uint64_t lane_bits(VecI mask) {
#if defined(__AVX512DQ__)
    typedef long long LongVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
    return static_cast<std::uint8_t>(__builtin_ia32_cvtq2mask512((LongVec)mask));
#elif defined(__AVX__)
    return static_cast<std::uint64_t>(__builtin_ia32_movmskpd256((VecD)mask));
#elif defined(__SSE2__)
    return static_cast<std::uint64_t>(__builtin_ia32_movmskpd((VecD)mask));
#else
    std::uint64_t bits = 0;
    for (size_t lane = 0; lane < kDoubles; ++lane) bits |= static_cast<std::uint64_t>(mask[lane] & 1) << lane;
    return bits;
#endif
}

// The lanes moved round by `Shift`: combining a vector with itself moved by 1, 2, 4 puts the result of all lanes in
// each.
template <size_t Shift>
constexpr size_t rotated_from(size_t lane) {
    return (lane + Shift) % kDoubles;
}
template <size_t Shift>
[[gnu::always_inline]] static inline VecI rotated(VecI v) {
    return shuffled<rotated_from<Shift>>(v, v);
}

[[gnu::always_inline]] static inline VecI smaller(VecI a, VecI b) { return a < b ? a : b; }
[[gnu::always_inline]] static inline VecI larger(VecI a, VecI b) { return a > b ? a : b; }
[[gnu::always_inline]] static inline VecI sum(VecI a, VecI b) { return a + b; }

template <VecI (*Combine)(VecI, VecI)>
[[gnu::always_inline]] static inline std::int64_t over_lanes(VecI v) {
    if (kDoubles > 4) v = Combine(v, rotated<4>(v));
    if (kDoubles > 2) v = Combine(v, rotated<2>(v));
    return Combine(v, rotated<1>(v))[0];
}

// Appends the lanes in which the mask is set to the n that are there. Whole vectors are written.
[[gnu::always_inline]] static inline size_t append(std::int64_t* out, size_t n, VecI values, std::uint64_t lanes) {
#if defined(__AVX512F__)
    typedef long long LongVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
    const LongVec packed = __builtin_ia32_compressdi512_mask((LongVec)values, LongVec{}, (unsigned char)lanes);
    std::memcpy(out + n, &packed, sizeof packed);
    return n + static_cast<size_t>(__builtin_popcountll(lanes));
#else
    for (; lanes; lanes &= lanes - 1) out[n++] = values[static_cast<size_t>(__builtin_ctzll(lanes))];
    return n;
#endif
}

[[gnu::always_inline]] static inline double largest_lane(VecD v) {
    if (kDoubles > 4) v = larger(v, (VecD)rotated<4>((VecI)v));
    if (kDoubles > 2) v = larger(v, (VecD)rotated<2>((VecI)v));
    return larger(v, (VecD)rotated<1>((VecI)v))[0];
}

struct MarkedKeys {
    size_t count;                   // keys that are not kNoKey
    std::int64_t largest[kGroups];  // of the keys at positions that differ by multiples of kGroups
};

// Losses, and the keys of those that are positive; kNoKey for the others, up to a whole number of groups.
static MarkedKeys mark_violators(const ViolatorQuery& q) {
    VecI counts = {}, largest[kGroupVectors];
    for (size_t v = 0; v < kGroupVectors; ++v) largest[v] = all_lanes(kNoKey);
    const VecI end = all_lanes(static_cast<std::int64_t>(q.n));
    for (size_t first = 0; first < q.n; first += kGroups)
#pragma GCC unroll 8
        for (size_t v = 0; v < kGroupVectors; ++v) {
            const size_t j = first + v * kDoubles;
            VecI keys = all_lanes(kNoKey);
            if (j < q.n) {
                const VecD loss = load(q.scores + j) * q.slope + q.base;
                store(q.losses + j, loss);
                const VecI violates = (loss > VecD{}) & (positions_from(j) < end);
                keys = violates ? ordered_keys(load(q.similarities + j)) : keys;
                counts -= violates;
            }
            std::memcpy(q.keys + j, &keys, sizeof keys);
            largest[v] = larger(keys, largest[v]);
        }
    MarkedKeys marked{static_cast<size_t>(over_lanes<sum>(counts)), {}};
    std::memcpy(marked.largest, largest, sizeof largest);
    return marked;
}

// Positions of the keys from `bound` on, ascending.
static size_t positions_above(const std::int64_t* keys, size_t n, std::int64_t bound, std::uint32_t* positions) {
    size_t found = 0;
    for (size_t first = 0; first < n; first += 64) {
        std::uint64_t above = 0;
        for (size_t j = first; j < n && j < first + 64; j += kDoubles)
            above |= lane_bits(load_keys(keys + j) >= all_lanes(bound)) << (j - first);
        for (; above; above &= above - 1)
            positions[found++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(__builtin_ctzll(above));
    }
    return found;
}

// ranks[j]: how many of the n keys come before key j, the larger ones and of equals those in front of it. n is a
// multiple of the lanes.
[[gnu::always_inline]] static inline void rank_keys(const std::int64_t* keys, size_t n, std::int64_t* ranks) {
    for (size_t j = 0; j < n; j += kDoubles) {
        const VecI mine = load_keys(keys + j), at = positions_from(j);
        VecI before = {};
        for (size_t i = 0; i < j; ++i) before = all_lanes(keys[i]) >= mine ? before + 1 : before;
#pragma GCC unroll 8
        for (size_t i = j; i < j + kDoubles; ++i) {
            const VecI in_front = mine - (at <= all_lanes(static_cast<std::int64_t>(i)));
            before = all_lanes(keys[i]) >= in_front ? before + 1 : before;
        }
        for (size_t i = j + kDoubles; i < n; ++i) before = all_lanes(keys[i]) > mine ? before + 1 : before;
        std::memcpy(ranks + j, &before, sizeof before);
    }
}

// A key that at least `most` others equal or exceed, and not many more; most <= kGroups.
static std::int64_t lower_bound_of(const MarkedKeys& marked, size_t most) {
    std::int64_t ranks[kGroups];
    rank_keys(marked.largest, kGroups, ranks);
    VecI bound = all_lanes(kNoKey + 1);
#pragma GCC unroll 8
    for (size_t g = 0; g < kGroups; g += kDoubles) {
        const VecI is_it = load_keys(ranks + g) == all_lanes(static_cast<std::int64_t>(most) - 1);
        bound = is_it ? larger(load_keys(marked.largest + g), bound) : bound;
    }
    return over_lanes<larger>(bound);
}

// Keys and where they stand.
struct FewKeys {
    size_t count = 0;
    std::int64_t keys[kMostRanked + 2 * kDoubles], positions[kMostRanked + 2 * kDoubles];
};

// The keys from `bound` on, as long as they are few: at most kMostRanked, or some of more.
[[gnu::always_inline]] static inline void collect(const std::int64_t* keys, size_t n, std::int64_t bound,
                                                  FewKeys& few) {
    size_t count = 0;
    for (size_t j = 0; j < n && count <= kMostRanked; j += kDoubles) {
        const VecI here = load_keys(keys + j);
        const std::uint64_t lanes = lane_bits(here >= all_lanes(bound));
        append(few.keys, count, here, lanes);
        count = append(few.positions, count, positions_from(j), lanes);
    }
    few.count = count;
}

// The positions of the `most` largest, ascending; they are not more than the keys.
[[gnu::always_inline]] static inline size_t take_largest(FewKeys& few, size_t most, std::uint32_t* chosen) {
    std::int64_t ranks[kMostRanked + kDoubles], taken[kMostRanked + kDoubles];
    const VecI none = all_lanes(kNoKey);
    std::memcpy(few.keys + few.count, &none, sizeof none);
    const size_t padded = (few.count + kDoubles - 1) / kDoubles * kDoubles;
    rank_keys(few.keys, padded, ranks);
    size_t n = 0;
    for (size_t c = 0; c < padded; c += kDoubles) {
        const VecI is_taken = load_keys(ranks + c) < all_lanes(static_cast<std::int64_t>(most));
        n = append(taken, n, load_keys(few.positions + c), lane_bits(is_taken));
    }
    for (size_t c = 0; c < most; ++c) chosen[c] = static_cast<std::uint32_t>(taken[c]);
    return most;
}

// How many keys lie at or above each of three bounds.
struct Counts {
    size_t of[3];
};

static Counts count_from(const std::int64_t* keys, size_t n, const std::int64_t (&bounds)[3]) {
    VecI counts[3] = {};
    for (size_t j = 0; j < n; j += kDoubles) {
        const VecI here = load_keys(keys + j);
        for (size_t b = 0; b < 3; ++b) counts[b] -= here >= all_lanes(bounds[b]);
    }
    Counts totals;
    for (size_t b = 0; b < 3; ++b) totals.of[b] = static_cast<size_t>(over_lanes<sum>(counts[b]));
    return totals;
}

// Taken are all keys from `bound` on, and the first `ties` of those just below it.
struct Cut {
    std::int64_t bound;
    size_t ties;
};

[[gnu::always_inline]] static inline std::int64_t middle_of(std::int64_t a, std::int64_t b) {
    return (a >> 1) + (b >> 1) + (a & b & 1);
}

// The cut that takes `most` of the keys, which are more. Each pass quarters the interval: three counts cost hardly
// more than one, since a pass is mostly waiting for its sum.
static Cut cut_keys(const std::int64_t* keys, size_t n, size_t most) {
    VecI lowest = all_lanes(INT64_MAX), highest = all_lanes(kNoKey);
    for (size_t j = 0; j < n; j += kDoubles) {
        const VecI here = load_keys(keys + j);
        highest = larger(here, highest);
        lowest = smaller(here == all_lanes(kNoKey) ? all_lanes(INT64_MAX) : here, lowest);
    }
    // Always: more than `most` keys from `low` on, at most `most` from `high` on.
    std::int64_t low = over_lanes<smaller>(lowest), high = over_lanes<larger>(highest) + 1;
    size_t above = 0;
    while (high - 1 > low && above != most) {
        const std::int64_t middle = middle_of(low, high);
        const std::int64_t bounds[3] = {middle_of(low, middle), middle, middle_of(middle, high)};
        const Counts counts = count_from(keys, n, bounds);
        for (size_t b = 0; b < 3; ++b) low = counts.of[b] > most && bounds[b] > low ? bounds[b] : low;
        for (size_t b = 3; b-- > 0;) {
            const bool closer = counts.of[b] <= most && bounds[b] > low && bounds[b] < high;
            high = closer ? bounds[b] : high;
            above = closer ? counts.of[b] : above;
        }
    }
    return {high, most - above};
}

static size_t take_cut(const std::int64_t* keys, size_t n, Cut cut, std::uint32_t* chosen) {
    size_t taken = 0, ties_left = cut.ties;
    for (size_t first = 0; first < n; first += 64) {
        std::uint64_t above = 0, ties = 0;
        for (size_t j = first; j < n && j < first + 64; j += kDoubles) {
            const VecI here = load_keys(keys + j);
            above |= lane_bits(here >= all_lanes(cut.bound)) << (j - first);
            ties |= lane_bits(here == all_lanes(cut.bound - 1)) << (j - first);
        }
        for (std::uint64_t here = ties_left ? above | ties : above; here; here &= here - 1) {
            const int at = __builtin_ctzll(here);
            chosen[taken++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(at);
            ties_left -= ties >> at & 1;
            if (ties_left == 0) here &= above | (std::uint64_t{1} << at);
        }
    }
    return taken;
}

static size_t count_above(const std::int64_t* keys, size_t n, std::int64_t bound) {
    VecI count = {};
    for (size_t j = 0; j < n; j += kDoubles) count -= load_keys(keys + j) > all_lanes(bound);
    return static_cast<size_t>(over_lanes<sum>(count));
}

static size_t violators(const ViolatorQuery& q) {
    const MarkedKeys marked = mark_violators(q);
    if (marked.count <= q.most) return positions_above(q.keys, q.n, kNoKey + 1, q.chosen);
    if (q.most <= kGroups) {
        const std::int64_t bound = lower_bound_of(marked, q.most);
        FewKeys few;
        collect(q.keys, q.n, bound, few);
        if (few.count <= kMostRanked) return take_largest(few, q.most, q.chosen);
        // Kernels so narrow or so wide that all values are the same.
        const size_t above = count_above(q.keys, q.n, bound);
        if (above <= q.most) return take_cut(q.keys, q.n, {bound + 1, q.most - above}, q.chosen);
    }
    return take_cut(q.keys, q.n, cut_keys(q.keys, q.n, q.most), q.chosen);
}

// While it lives, numbers below the smallest normal one count as zero in arithmetic. Narrow kernels have many of them,
// a product with one is a hundred times as slow as others, and to a sum of weights they are nothing.
class WithoutDenormals {
  public:
#if defined(__SSE2__)
    [[gnu::always_inline]] WithoutDenormals() : before_(__builtin_ia32_stmxcsr()) {
        __builtin_ia32_ldmxcsr(before_ | 0x8040);
    }
    [[gnu::always_inline]] ~WithoutDenormals() { __builtin_ia32_ldmxcsr(before_); }

  private:
    unsigned before_;
#else
    ~WithoutDenormals() {}
#endif
};

// As many columns as there are registers to sum them in, so that every row is read once and in one go.
template <size_t Columns>
static void add_columns(const double* const* rows, const double* factors, size_t n_rows, double* target, size_t j) {
    VecD sums[Columns];
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) sums[c] = load(target + j + c * kDoubles);
    for (size_t r = 0; r < n_rows; ++r) {
        const double* row = rows[r] + j;
        const VecD factor = broadcast(factors[r]);
#pragma GCC unroll 16
        for (size_t c = 0; c < Columns; ++c) sums[c] += load(row + c * kDoubles) * factor;
    }
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) store(target + j + c * kDoubles, sums[c]);
}

static void add_rows(const double* const* rows, const double* factors, size_t n_rows, double* target, size_t n) {
    constexpr size_t most = STEELYARD_VECTOR_BYTES == 64 ? 13 : 8;
    const WithoutDenormals faster;
    size_t j = 0;
    for (; j + (most - 1) * kDoubles < n; j += most * kDoubles) add_columns<most>(rows, factors, n_rows, target, j);
    for (; j + 3 * kDoubles < n; j += 4 * kDoubles) add_columns<4>(rows, factors, n_rows, target, j);
    for (; j < n; j += kDoubles) add_columns<1>(rows, factors, n_rows, target, j);
}

[[gnu::always_inline]] static inline void add_products(const double* a, const double* b, size_t n, VecD (&sums)[4]) {
    size_t j = 0;
    for (; j + 3 * kDoubles < n; j += 4 * kDoubles)
#pragma GCC unroll 4
        for (size_t c = 0; c < 4; ++c) sums[c] += load(a + j + c * kDoubles) * load(b + j + c * kDoubles);
    for (size_t c = 0; j < n; j += kDoubles, c = (c + 1) % 4) sums[c] += load(a + j) * load(b + j);
}

static double dot_sides(const double* a, const double* b, size_t n, const double* c, const double* d, size_t m) {
    const WithoutDenormals faster;
    VecD sums[4] = {};
    add_products(a, b, n, sums);
    add_products(c, d, m, sums);
    VecD all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (kDoubles > 4) all += (VecD)rotated<4>((VecI)all);
    if (kDoubles > 2) all += (VecD)rotated<2>((VecI)all);
    return (all + (VecD)rotated<1>((VecI)all))[0];
}

// Changes places: of two rows, every second group of `Width` lanes of the first and every first of the second.
template <size_t Width>
constexpr size_t exchanged_low(size_t lane) {
    return lane & Width ? kDoubles + lane - Width : lane;
}
template <size_t Width>
constexpr size_t exchanged_high(size_t lane) {
    return lane & Width ? kDoubles + lane : lane + Width;
}
template <size_t Width>
[[gnu::always_inline]] static inline void exchange(VecD& a, VecD& b) {
    const VecD first = a;
    a = shuffled<exchanged_low<Width>>(first, b);
    b = shuffled<exchanged_high<Width>>(first, b);
}

template <size_t Width>
[[gnu::always_inline]] static inline void exchange_all(VecD (&rows)[kDoubles]) {
    if constexpr (Width < kDoubles) {
#pragma GCC unroll 8
        for (size_t r = 0; r < kDoubles; ++r)
            if ((r & Width) == 0) exchange<Width>(rows[r], rows[r + Width]);
        exchange_all<2 * Width>(rows);
    }
}

static void transpose(const double* from, double* to, size_t ld, size_t n) {
    for (size_t j = 0; j < n; j += kDoubles)
        for (size_t c = 0; c < 8; c += kDoubles) {
            VecD rows[kDoubles];
#pragma GCC unroll 8
            for (size_t r = 0; r < kDoubles; ++r) rows[r] = load(from + (c + r) * ld + j);
            exchange_all<1>(rows);
#pragma GCC unroll 8
            for (size_t r = 0; r < kDoubles; ++r) store(to + (j + r) * ld + c, rows[r]);
        }
}

// The largest of all, then where it stands first.
static size_t argmax(const double* values, size_t n) {
    constexpr size_t chains = 4;
    const size_t whole = n / kDoubles * kDoubles;
    // Beyond the end the first value stands in: it cannot be found there before it is found in its own place.
    VecD rest = broadcast(values[0]);
    for (size_t j = whole; j < n; ++j) rest[j - whole] = values[j];
    VecD largest[chains] = {rest, rest, rest, rest};
    size_t j = 0;
    for (; j + chains * kDoubles <= whole; j += chains * kDoubles)
#pragma GCC unroll 4
        for (size_t c = 0; c < chains; ++c) largest[c] = larger(load(values + j + c * kDoubles), largest[c]);
    for (; j < whole; j += kDoubles) largest[0] = larger(load(values + j), largest[0]);
    for (size_t c = 1; c < chains; ++c) largest[0] = larger(largest[c], largest[0]);
    const VecD bound = broadcast(largest_lane(largest[0]));
    for (size_t first = 0; first < whole; first += 64) {
        std::uint64_t found = 0;
        for (size_t at = first; at < whole && at < first + 64; at += kDoubles)
            found |= lane_bits((VecI)(load(values + at) == bound)) << (at - first);
        if (found) return first + static_cast<size_t>(__builtin_ctzll(found));
    }
    return whole + static_cast<size_t>(__builtin_ctzll(lane_bits((VecI)(rest == bound))));
}

constexpr OnlineLoops online_loops{gather, violators, add_rows, dot_sides, transpose, argmax};

}  // namespace steelyard::STEELYARD_LEVEL
