// The loops of loops_online.hpp. Selection compares similarities as integers of the same order. Few neighbours are
// found by ranking: the k-th largest of the largest in each of 16 groups leaves little more than k keys, whose ranks
// are counted pair by pair. Many are found by halving an interval of integers, which costs the same for every k.
#pragma once

#include "functions.hpp"
#include "steelyard/loops_online.hpp"

namespace steelyard::STEELYARD_LEVEL {

template <class Real>
using IntVec = typename Lane<Real>::IntVec;
template <class Real>
using Key = typename KeyOf<Real>::Type;
template <class Real>
constexpr size_t kLanes = Lane<Real>::count;
template <class Real>
constexpr Key<Real> kLargestKey = sizeof(Real) == 8 ? INT64_MAX : INT32_MAX;
template <class Real>
constexpr Key<Real> kNoKey = -kLargestKey<Real> - 1;

constexpr size_t kGroups = 16;      // neighbours that ranking can find
constexpr size_t kMostRanked = 64;  // keys that are ranked rather than halved
template <class Real>
constexpr size_t kGroupVectors = kGroups / kLanes<Real>;
static_assert(kKeyPadding == kGroups && kLanes<float> <= kGroups);

template <class Real>
static void gather(const Real* values, const std::uint32_t* index, Real* out, size_t n) {
    for (size_t j = 0; j < n; ++j) out[j] = values[index[j]];
}

// Integers in the order of the numbers; -0 and 0 are the same. Smaller integers than kNoKey + 1 do not occur.
template <class Real>
[[gnu::always_inline]] static inline IntVec<Real> ordered_keys(Vec<Real> x) {
    const IntVec<Real> bits = (IntVec<Real>)(x + Real(0));
    return bits ^ ((bits >> (8 * sizeof(Real) - 1)) & kLargestKey<Real>);
}

template <class Real>
[[gnu::always_inline]] static inline IntVec<Real> load_keys(const Key<Real>* p) {
    IntVec<Real> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class Real>
[[gnu::always_inline]] static inline IntVec<Real> all_lanes(Key<Real> key) {
    return key - IntVec<Real>{};
}

// j, j + 1, ...
template <class Real>
[[gnu::always_inline]] static inline IntVec<Real> positions_from(size_t j) {
    IntVec<Real> at;
#pragma GCC unroll 16
    for (size_t lane = 0; lane < kLanes<Real>; ++lane) at[lane] = static_cast<Key<Real>>(lane);
    return at + static_cast<Key<Real>>(j);
}

// One bit a lane, the first lane's lowest, of a vector whose lanes are all zeros or all ones.
template <class Real>
[[gnu::always_inline]] static inline std::uint64_t lane_bits(IntVec<Real> mask) {
    if constexpr (sizeof(Real) == 8) {
#if defined(__AVX512DQ__)
        typedef long long LongVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
        return static_cast<std::uint8_t>(__builtin_ia32_cvtq2mask512((LongVec)mask));
#elif defined(__AVX__)
        return static_cast<std::uint64_t>(__builtin_ia32_movmskpd256((VecD)mask));
#elif defined(__SSE2__)
        return static_cast<std::uint64_t>(__builtin_ia32_movmskpd((VecD)mask));
#endif
    } else {
#if defined(__AVX512DQ__)
        typedef int WordVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
        return static_cast<std::uint16_t>(__builtin_ia32_cvtd2mask512((WordVec)mask));
#elif defined(__AVX__)
        return static_cast<std::uint64_t>(__builtin_ia32_movmskps256((VecF)mask));
#elif defined(__SSE2__)
        return static_cast<std::uint64_t>(__builtin_ia32_movmskps((VecF)mask));
#endif
    }
    std::uint64_t bits = 0;
    for (size_t lane = 0; lane < kLanes<Real>; ++lane) bits |= static_cast<std::uint64_t>(mask[lane] & 1) << lane;
    return bits;
}

// The lanes moved round by `Shift`: combining a vector with itself moved by 1, 2, 4, 8 puts the result of all lanes in
// each.
template <class Real, size_t Shift>
constexpr size_t rotated_from(size_t lane) {
    return (lane + Shift) % kLanes<Real>;
}
template <class Real, size_t Shift, class V>
[[gnu::always_inline]] static inline V rotated(V v) {
    return shuffled<rotated_from<Real, Shift>>(v, v);
}

template <class V>
[[gnu::always_inline]] static inline V smaller_of(V a, V b) {
    return a < b ? a : b;
}
template <class V>
[[gnu::always_inline]] static inline V larger_of(V a, V b) {
    return a > b ? a : b;
}
template <class V>
[[gnu::always_inline]] static inline V sum_of(V a, V b) {
    return a + b;
}

template <class Real, auto Combine, class V>
[[gnu::always_inline]] static inline auto over_lanes(V v) {
    if constexpr (kLanes<Real> > 8) v = Combine(v, rotated<Real, 8>(v));
    if constexpr (kLanes<Real> > 4) v = Combine(v, rotated<Real, 4>(v));
    if constexpr (kLanes<Real> > 2) v = Combine(v, rotated<Real, 2>(v));
    return Combine(v, rotated<Real, 1>(v))[0];
}

#if defined(__AVX512F__)
// Appends the lanes in which the mask is set to the n that are there. Whole vectors are written.
template <class Real>
[[gnu::always_inline]] static inline size_t append(Key<Real>* out, size_t n, IntVec<Real> values, std::uint64_t lanes) {
    if constexpr (sizeof(Real) == 8) {
        typedef long long LongVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
        const LongVec packed = __builtin_ia32_compressdi512_mask((LongVec)values, LongVec{}, (unsigned char)lanes);
        std::memcpy(out + n, &packed, sizeof packed);
    } else {
        typedef int WordVec __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
        const WordVec packed = __builtin_ia32_compresssi512_mask((WordVec)values, WordVec{}, (unsigned short)lanes);
        std::memcpy(out + n, &packed, sizeof packed);
    }
    return n + static_cast<size_t>(__builtin_popcountll(lanes));
}
#endif

// One bit for each of up to 64 keys from `begin` on, set where it is at least `bound`.
template <class Real>
[[gnu::always_inline]] static inline std::uint64_t bits_above(const Key<Real>* keys, size_t begin, size_t n,
                                                              Key<Real> bound) {
    std::uint64_t above = 0;
    for (size_t j = begin; j < n && j < begin + 64; j += kLanes<Real>)
        above |= lane_bits<Real>(load_keys<Real>(keys + j) >= all_lanes<Real>(bound)) << (j - begin);
    return above;
}

template <class Real>
struct MarkedKeys {
    size_t count;                // keys that are not kNoKey
    Key<Real> largest[kGroups];  // of the keys at positions that differ by multiples of kGroups
};

// Losses, and the keys of those that are positive; kNoKey for the others, up to a whole number of groups.
template <class Real>
static MarkedKeys<Real> mark_violators(const ViolatorQuery<Real>& q) {
    typedef IntVec<Real> VecI;
    VecI counts = {}, largest[kGroupVectors<Real>];
    for (size_t v = 0; v < kGroupVectors<Real>; ++v) largest[v] = all_lanes<Real>(kNoKey<Real>);
    const VecI end = all_lanes<Real>(static_cast<Key<Real>>(q.n));
    for (size_t first = 0; first < q.n; first += kGroups)
#pragma GCC unroll 8
        for (size_t v = 0; v < kGroupVectors<Real>; ++v) {
            const size_t j = first + v * kLanes<Real>;
            VecI keys = all_lanes<Real>(kNoKey<Real>);
            if (j < q.n) {
                const Vec<Real> loss = load(q.scores + j) * q.slope + q.base;
                store(q.losses + j, loss);
                const VecI violates = (loss > Vec<Real>{}) & (positions_from<Real>(j) < end);
                keys = violates ? ordered_keys<Real>(load(q.similarities + j)) : keys;
                counts -= violates;
            }
            std::memcpy(q.keys + j, &keys, sizeof keys);
            largest[v] = larger_of(keys, largest[v]);
        }
    MarkedKeys<Real> marked{static_cast<size_t>(over_lanes<Real, sum_of<VecI>>(counts)), {}};
    std::memcpy(marked.largest, largest, sizeof largest);
    return marked;
}

// Positions of the keys from `bound` on, ascending.
template <class Real>
static size_t positions_above(const Key<Real>* keys, size_t n, Key<Real> bound, std::uint32_t* positions) {
    size_t found = 0;
    for (size_t first = 0; first < n; first += 64) {
        for (std::uint64_t above = bits_above<Real>(keys, first, n, bound); above; above &= above - 1)
            positions[found++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(__builtin_ctzll(above));
    }
    return found;
}

// ranks[j]: how many of the n keys come before key j, the larger ones and of equals those in front of it. n is a
// multiple of the lanes.
template <class Real>
[[gnu::always_inline]] static inline void rank_keys(const Key<Real>* keys, size_t n, Key<Real>* ranks) {
    typedef IntVec<Real> VecI;
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        const VecI mine = load_keys<Real>(keys + j), at = positions_from<Real>(j);
        VecI before = {};
        for (size_t i = 0; i < j; ++i) before = all_lanes<Real>(keys[i]) >= mine ? before + 1 : before;
#pragma GCC unroll 16
        for (size_t i = j; i < j + kLanes<Real>; ++i) {
            const VecI in_front = mine - (at <= all_lanes<Real>(static_cast<Key<Real>>(i)));
            before = all_lanes<Real>(keys[i]) >= in_front ? before + 1 : before;
        }
        for (size_t i = j + kLanes<Real>; i < n; ++i) before = all_lanes<Real>(keys[i]) > mine ? before + 1 : before;
        std::memcpy(ranks + j, &before, sizeof before);
    }
}

// A key that at least `most` others equal or exceed, and not many more; most <= kGroups.
template <class Real>
static Key<Real> lower_bound_of(const MarkedKeys<Real>& marked, size_t most) {
    typedef IntVec<Real> VecI;
    Key<Real> ranks[kGroups];
    rank_keys<Real>(marked.largest, kGroups, ranks);
    VecI bound = all_lanes<Real>(kNoKey<Real> + 1);
#pragma GCC unroll 8
    for (size_t g = 0; g < kGroups; g += kLanes<Real>) {
        const VecI is_it = load_keys<Real>(ranks + g) == all_lanes<Real>(static_cast<Key<Real>>(most) - 1);
        bound = is_it ? larger_of(load_keys<Real>(marked.largest + g), bound) : bound;
    }
    return over_lanes<Real, larger_of<VecI>>(bound);
}

// Keys and where they stand.
template <class Real>
struct FewKeys {
    size_t count = 0;
    Key<Real> keys[kMostRanked + 2 * kLanes<Real>], positions[kMostRanked + 2 * kLanes<Real>];
};

// The keys from `bound` on, as long as they are few: at most kMostRanked, or some of more.
template <class Real>
[[gnu::always_inline]] static inline void collect(const Key<Real>* keys, size_t n, Key<Real> bound,
                                                  FewKeys<Real>& few) {
    size_t count = 0;
#if defined(__AVX512F__)
    for (size_t j = 0; j < n && count <= kMostRanked; j += kLanes<Real>) {
        const IntVec<Real> here = load_keys<Real>(keys + j);
        const std::uint64_t lanes = lane_bits<Real>(here >= all_lanes<Real>(bound));
        append<Real>(few.keys, count, here, lanes);
        count = append<Real>(few.positions, count, positions_from<Real>(j), lanes);
    }
#else
    // All bits first: which vectors have some is more than a processor can guess.
    for (size_t first = 0; first < n; first += 64)
        for (std::uint64_t above = bits_above<Real>(keys, first, n, bound); above && count <= kMostRanked;
             above &= above - 1) {
            const size_t at = first + static_cast<size_t>(__builtin_ctzll(above));
            few.positions[count] = static_cast<Key<Real>>(at);
            few.keys[count++] = keys[at];
        }
#endif
    few.count = count;
}

// The positions of the `most` largest, ascending; they are not more than the keys.
template <class Real>
[[gnu::always_inline]] static inline size_t take_largest(FewKeys<Real>& few, size_t most, std::uint32_t* chosen) {
    Key<Real> ranks[kMostRanked + kLanes<Real>];
    const IntVec<Real> none = all_lanes<Real>(kNoKey<Real>);
    std::memcpy(few.keys + few.count, &none, sizeof none);
    const size_t padded = (few.count + kLanes<Real> - 1) / kLanes<Real> * kLanes<Real>;
    rank_keys<Real>(few.keys, padded, ranks);
    std::uint64_t taken = 0;
    for (size_t c = 0; c < padded; c += kLanes<Real>)
        taken |= lane_bits<Real>(load_keys<Real>(ranks + c) < all_lanes<Real>(static_cast<Key<Real>>(most))) << c;
    for (size_t c = 0; c < most; ++c, taken &= taken - 1)
        chosen[c] = static_cast<std::uint32_t>(few.positions[__builtin_ctzll(taken)]);
    return most;
}

// How many keys lie at or above each of three bounds.
struct Counts {
    size_t of[3];
};

template <class Real>
static Counts count_from(const Key<Real>* keys, size_t n, const Key<Real> (&bounds)[3]) {
    typedef IntVec<Real> VecI;
    VecI counts[3] = {};
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        const VecI here = load_keys<Real>(keys + j);
        for (size_t b = 0; b < 3; ++b) counts[b] -= here >= all_lanes<Real>(bounds[b]);
    }
    Counts totals;
    for (size_t b = 0; b < 3; ++b) totals.of[b] = static_cast<size_t>(over_lanes<Real, sum_of<VecI>>(counts[b]));
    return totals;
}

// Taken are all keys from `bound` on, and the first `ties` of those just below it.
template <class Real>
struct Cut {
    Key<Real> bound;
    size_t ties;
};

template <class Int>
[[gnu::always_inline]] static inline Int middle_of(Int a, Int b) {
    return static_cast<Int>((a >> 1) + (b >> 1) + (a & b & 1));
}

// The cut that takes `most` of the keys, which are more. Each pass quarters the interval: three counts cost hardly
// more than one, since a pass is mostly waiting for its sum.
template <class Real>
static Cut<Real> cut_keys(const Key<Real>* keys, size_t n, size_t most) {
    typedef IntVec<Real> VecI;
    constexpr Key<Real> largest = kLargestKey<Real>;
    VecI lowest = all_lanes<Real>(largest), highest = all_lanes<Real>(kNoKey<Real>);
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        const VecI here = load_keys<Real>(keys + j);
        highest = larger_of(here, highest);
        lowest = smaller_of(here == all_lanes<Real>(kNoKey<Real>) ? all_lanes<Real>(largest) : here, lowest);
    }
    // Always: more than `most` keys from `low` on, at most `most` from `high` on.
    Key<Real> low = over_lanes<Real, smaller_of<VecI>>(lowest);
    Key<Real> high = over_lanes<Real, larger_of<VecI>>(highest) + 1;
    size_t above = 0;
    while (high - 1 > low && above != most) {
        const Key<Real> middle = middle_of(low, high);
        const Key<Real> bounds[3] = {middle_of(low, middle), middle, middle_of(middle, high)};
        const Counts counts = count_from<Real>(keys, n, bounds);
        for (size_t b = 0; b < 3; ++b) low = counts.of[b] > most && bounds[b] > low ? bounds[b] : low;
        for (size_t b = 3; b-- > 0;) {
            const bool closer = counts.of[b] <= most && bounds[b] > low && bounds[b] < high;
            high = closer ? bounds[b] : high;
            above = closer ? counts.of[b] : above;
        }
    }
    return {high, most - above};
}

template <class Real>
static size_t take_cut(const Key<Real>* keys, size_t n, Cut<Real> cut, std::uint32_t* chosen) {
    size_t taken = 0, ties_left = cut.ties;
    for (size_t first = 0; first < n; first += 64) {
        std::uint64_t above = 0, ties = 0;
        for (size_t j = first; j < n && j < first + 64; j += kLanes<Real>) {
            const IntVec<Real> here = load_keys<Real>(keys + j);
            above |= lane_bits<Real>(here >= all_lanes<Real>(cut.bound)) << (j - first);
            ties |= lane_bits<Real>(here == all_lanes<Real>(cut.bound - 1)) << (j - first);
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

template <class Real>
static size_t count_above(const Key<Real>* keys, size_t n, Key<Real> bound) {
    typedef IntVec<Real> VecI;
    VecI count = {};
    for (size_t j = 0; j < n; j += kLanes<Real>) count -= load_keys<Real>(keys + j) > all_lanes<Real>(bound);
    return static_cast<size_t>(over_lanes<Real, sum_of<VecI>>(count));
}

template <class Real>
static size_t violators(const ViolatorQuery<Real>& q) {
    const MarkedKeys<Real> marked = mark_violators(q);
    if (marked.count <= q.most) return positions_above<Real>(q.keys, q.n, kNoKey<Real> + 1, q.chosen);
    if (q.most <= kGroups) {
        const Key<Real> bound = lower_bound_of(marked, q.most);
        FewKeys<Real> few;
        collect(q.keys, q.n, bound, few);
        if (few.count <= kMostRanked) return take_largest(few, q.most, q.chosen);
        // Kernels so narrow or so wide that all values are the same.
        const size_t above = count_above<Real>(q.keys, q.n, bound);
        if (above <= q.most) return take_cut<Real>(q.keys, q.n, {bound + 1, q.most - above}, q.chosen);
    }
    return take_cut<Real>(q.keys, q.n, cut_keys<Real>(q.keys, q.n, q.most), q.chosen);
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
template <size_t Columns, class Real>
static void add_columns(const Real* const* rows, const Real* factors, size_t n_rows, Real* target, size_t j) {
    constexpr size_t width = kLanes<Real>;
    Vec<Real> sums[Columns];
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) sums[c] = load(target + j + c * width);
    for (size_t r = 0; r < n_rows; ++r) {
        const Real* row = rows[r] + j;
        const Vec<Real> factor = broadcast(factors[r]);
#pragma GCC unroll 16
        for (size_t c = 0; c < Columns; ++c) sums[c] += load(row + c * width) * factor;
    }
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) store(target + j + c * width, sums[c]);
}

template <class Real>
static void add_rows(const Real* const* rows, const Real* factors, size_t n_rows, Real* target, size_t n) {
    // A hundred numbers, the budget most often met, at once, or in two halves where these fit the registers.
    constexpr size_t width = kLanes<Real>, most = 100 / width < 13 ? (99 + width) / width : width >= 4 ? 12 : 8;
    const WithoutDenormals faster;
    size_t j = 0;
    for (; j + (most - 1) * width < n; j += most * width) add_columns<most>(rows, factors, n_rows, target, j);
    for (; j + 3 * width < n; j += 4 * width) add_columns<4>(rows, factors, n_rows, target, j);
    for (; j < n; j += width) add_columns<1>(rows, factors, n_rows, target, j);
}

template <class Real>
[[gnu::always_inline]] static inline void add_products(const Real* a, const Real* b, size_t n, Vec<Real> (&sums)[4]) {
    constexpr size_t width = kLanes<Real>;
    size_t j = 0;
    for (; j + 3 * width < n; j += 4 * width)
#pragma GCC unroll 4
        for (size_t c = 0; c < 4; ++c) sums[c] += load(a + j + c * width) * load(b + j + c * width);
    for (size_t c = 0; j < n; j += width, c = (c + 1) % 4) sums[c] += load(a + j) * load(b + j);
}

template <class Real>
static Real dot_sides(const Real* a, const Real* b, size_t n, const Real* c, const Real* d, size_t m) {
    const WithoutDenormals faster;
    Vec<Real> sums[4] = {};
    add_products(a, b, n, sums);
    add_products(c, d, m, sums);
    return over_lanes<Real, sum_of<Vec<Real>>>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Changes places: of two rows, every second group of `Width` lanes of the first and every first of the second.
template <class Real, size_t Width>
constexpr size_t exchanged_low(size_t lane) {
    return lane & Width ? kLanes<Real> + lane - Width : lane;
}
template <class Real, size_t Width>
constexpr size_t exchanged_high(size_t lane) {
    return lane & Width ? kLanes<Real> + lane : lane + Width;
}
template <class Real, size_t Width>
[[gnu::always_inline]] static inline void exchange(Vec<Real>& a, Vec<Real>& b) {
    const Vec<Real> first = a;
    a = shuffled<exchanged_low<Real, Width>>(first, b);
    b = shuffled<exchanged_high<Real, Width>>(first, b);
}

template <class Real, size_t Width>
[[gnu::always_inline]] static inline void exchange_all(Vec<Real> (&rows)[kLanes<Real>]) {
    if constexpr (Width < kLanes<Real>) {
#pragma GCC unroll 16
        for (size_t r = 0; r < kLanes<Real>; ++r)
            if ((r & Width) == 0) exchange<Real, Width>(rows[r], rows[r + Width]);
        exchange_all<Real, 2 * Width>(rows);
    }
}

template <class Real>
static void transpose(const Real* from, Real* to, size_t ld, size_t n) {
    constexpr size_t width = kLanes<Real>;
    for (size_t j = 0; j < n; j += width)
        for (size_t c = 0; c < kLineOf<Real>; c += width) {
            Vec<Real> rows[width];
#pragma GCC unroll 16
            for (size_t r = 0; r < width; ++r) rows[r] = load(from + (c + r) * ld + j);
            exchange_all<Real, 1>(rows);
#pragma GCC unroll 16
            for (size_t r = 0; r < width; ++r) store(to + (j + r) * ld + c, rows[r]);
        }
}

// The largest of all, then where it stands first.
template <class Real>
static size_t argmax(const Real* values, size_t n) {
    constexpr size_t chains = 4, width = kLanes<Real>;
    typedef Vec<Real> V;
    const size_t whole = n / width * width;
    // Beyond the end the first value stands in: it cannot be found there before it is found in its own place.
    V rest = broadcast(values[0]);
    for (size_t j = whole; j < n; ++j) rest[j - whole] = values[j];
    V largest[chains] = {rest, rest, rest, rest};
    size_t j = 0;
    for (; j + chains * width <= whole; j += chains * width)
#pragma GCC unroll 4
        for (size_t c = 0; c < chains; ++c) largest[c] = larger_of(load(values + j + c * width), largest[c]);
    for (; j < whole; j += width) largest[0] = larger_of(load(values + j), largest[0]);
    for (size_t c = 1; c < chains; ++c) largest[0] = larger_of(largest[c], largest[0]);
    const V bound = broadcast(over_lanes<Real, larger_of<V>>(largest[0]));
    for (size_t first = 0; first < whole; first += 64) {
        std::uint64_t found = 0;
        for (size_t at = first; at < whole && at < first + 64; at += width)
            found |= lane_bits<Real>((IntVec<Real>)(load(values + at) == bound)) << (at - first);
        if (found) return first + static_cast<size_t>(__builtin_ctzll(found));
    }
    return whole + static_cast<size_t>(__builtin_ctzll(lane_bits<Real>((IntVec<Real>)(rest == bound))));
}

template <class Real>
constexpr OnlineLoopsOf<Real> online_loops_of{gather<Real>,    violators<Real>, add_rows<Real>,
                                              dot_sides<Real>, transpose<Real>, argmax<Real>};
constexpr OnlineLoops online_loops{online_loops_of<double>, online_loops_of<float>};

}  // namespace steelyard::STEELYARD_LEVEL
