// Selection of the k nearest violators. Similarities are mapped to integers in the same order and then compared.
//
// For small k, 32-bit words (the upper halves of doubles) are compared, because a vector contains twice as many words.
// The words are divided into 16 groups. Few more than k words exceed the k-th largest of the maxima of the groups.
// The ranks of these candidates are found by pairwise comparisons.
// If the last selected word and the first rejected word are equal, full keys or positions are compared.
// For large k, the k-th largest key is found by bisection, whose cost does not depend on k.
#pragma once

#include "functions.hpp"
#include "simd/loops_online.hpp"

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

typedef Key<float> Word;
typedef IntVec<float> WordVec;
constexpr size_t kWords = kLanes<float>;
constexpr Word kNoWord = kNoKey<float>;

constexpr size_t kGroups = 16;       // number of groups, and largest k for ranking by pairwise comparisons
constexpr size_t kMostCounted = 64;  // largest number of candidates for ranking by pairwise comparisons
constexpr size_t kGroupVectors = kGroups / kWords;
static_assert(kKeyPadding == kGroups && kWords <= kGroups);

// -- lane operations --------------------------------------------------------------------------------------------------

template <class Real>
STEELYARD_ALWAYS_INLINE static inline IntVec<Real> load_keys(const Key<Real>* p) {
    IntVec<Real> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class Real>
STEELYARD_ALWAYS_INLINE static inline IntVec<Real> all_lanes(Key<Real> key) {
    return key - IntVec<Real>{};
}

// Returns the positions j, j + 1, ..., one in each lane.
template <class Real>
STEELYARD_ALWAYS_INLINE static inline IntVec<Real> positions_from(size_t j) {
    IntVec<Real> at;
    STEELYARD_UNROLL(16)
    for (size_t lane = 0; lane < kLanes<Real>; ++lane) at[lane] = static_cast<Key<Real>>(lane);
    return at + static_cast<Key<Real>>(j);
}

// Returns one bit per lane of a mask vector; the lowest bit is the first lane.
template <class Real>
STEELYARD_ALWAYS_INLINE static inline std::uint64_t lane_bits(IntVec<Real> mask) {
    if constexpr (sizeof(Real) == 8) {
#if defined(__AVX512DQ__)
        return _mm512_movepi64_mask((__m512i)mask);
#elif defined(__AVX__)
        return static_cast<std::uint64_t>(_mm256_movemask_pd((__m256d)mask));
#elif defined(__SSE2__)
        return static_cast<std::uint64_t>(_mm_movemask_pd((__m128d)mask));
#endif
    } else {
#if defined(__AVX512DQ__)
        return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX__)
        return static_cast<std::uint64_t>(_mm256_movemask_ps((__m256)mask));
#elif defined(__SSE2__)
        return static_cast<std::uint64_t>(_mm_movemask_ps((__m128)mask));
#endif
    }
    std::uint64_t bits = 0;
    for (size_t lane = 0; lane < kLanes<Real>; ++lane) bits |= static_cast<std::uint64_t>(mask[lane] & 1) << lane;
    return bits;
}

// Returns one bit per lane, set if a >= b. Written with intrinsics, because GCC stores the comparison in memory.
STEELYARD_ALWAYS_INLINE static inline std::uint64_t bits_at_least(WordVec a, WordVec b) {
#if defined(__AVX512F__)
    return _mm512_cmpge_epi32_mask((__m512i)a, (__m512i)b);
#else
    return lane_bits<float>(a >= b);
#endif
}

// Returns the source lane of a rotation by `Shift`.
// Combining a vector with its rotations by 1, 2, 4, 8 reduces all lanes.
template <class Real, size_t Shift>
constexpr size_t rotated_from(size_t lane) {
    return (lane + Shift) % kLanes<Real>;
}
template <class Real, size_t Shift, class V>
STEELYARD_ALWAYS_INLINE static inline V rotated(V v) {
    return shuffled<rotated_from<Real, Shift>>(v, v);
}

template <class V>
STEELYARD_ALWAYS_INLINE static inline V smaller_of(V a, V b) {
    return a < b ? a : b;
}
template <class V>
STEELYARD_ALWAYS_INLINE static inline V larger_of(V a, V b) {
    return a > b ? a : b;
}
template <class V>
STEELYARD_ALWAYS_INLINE static inline V sum_of(V a, V b) {
    return a + b;
}

// Reduces all lanes by Combine. Every lane contains the result.
template <class Real, auto Combine, class V>
STEELYARD_ALWAYS_INLINE static inline V over_all_lanes(V v) {
    if constexpr (kLanes<Real> > 8) v = Combine(v, rotated<Real, 8>(v));
    if constexpr (kLanes<Real> > 4) v = Combine(v, rotated<Real, 4>(v));
    if constexpr (kLanes<Real> > 2) v = Combine(v, rotated<Real, 2>(v));
    return Combine(v, rotated<Real, 1>(v));
}
template <class Real, auto Combine, class V>
STEELYARD_ALWAYS_INLINE static inline auto over_lanes(V v) {
    return over_all_lanes<Real, Combine>(v)[0];
}

#if defined(__AVX512F__)
// Appends the lanes whose mask bit is set to the n entries of `out`. The function writes full vectors.
template <class Out>
STEELYARD_ALWAYS_INLINE static inline size_t append(Out* out, size_t n, WordVec values, std::uint64_t lanes) {
    static_assert(sizeof(Out) == sizeof(Word));
    const __m512i packed = _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), (__m512i)values);
    std::memcpy(out + n, &packed, sizeof packed);
    return n + static_cast<size_t>(count_bits(lanes));
}
#endif

// -- selection of few vectors: comparison of words --------------------------------------------------------------------

STEELYARD_ALWAYS_INLINE static inline WordVec load_words(const void* keys, size_t j) {
    WordVec words;
    std::memcpy(&words, static_cast<const Word*>(keys) + j, sizeof words);
    return words;
}

// Largest word of each group. Positions in a group differ by multiples of kGroups.
struct GroupWords {
    WordVec largest[kGroupVectors];
};

// Writes the losses. Returns the bits of the similarities where the loss is positive, and all ones (NaN) elsewhere.
// Lanes out of range have no positive loss.
template <class Real, bool InRange>
STEELYARD_ALWAYS_INLINE static inline IntVec<Real> violating_bits(const ViolatorQuery<Real>& q, size_t j) {
    typedef IntVec<Real> VecI;
    const VecI none = all_lanes<Real>(-1);
    if (!InRange && j >= q.n) return none;
    const Vec<Real> loss = load(q.scores + j) * q.slope + q.base;
    store(q.losses + j, loss);
    VecI violates = loss > Vec<Real>{};
    if (!InRange) violates &= positions_from<Real>(j) < all_lanes<Real>(static_cast<Key<Real>>(q.n));
    return violates ? (VecI)load(q.similarities + j) : none;
}

// Selects the upper halves of two vectors of doubles.
constexpr size_t upper_half(size_t lane) { return 2 * lane + 1; }

// Returns words in the order of the similarities, or kNoWord for support vectors that do not violate the margin.
// The lower half of a double is dropped. Different words have the order of the numbers; -0 and 0 are equal.
template <class Real, bool InRange>
STEELYARD_ALWAYS_INLINE static inline WordVec violating_words(const ViolatorQuery<Real>& q, size_t j) {
    WordVec bits;
    if constexpr (sizeof(Real) == sizeof(Word)) {
        bits = violating_bits<Real, InRange>(q, j);
    } else {
        const IntVec<Real> first = violating_bits<Real, InRange>(q, j);
        const IntVec<Real> second = violating_bits<Real, InRange>(q, j + kLanes<Real>);
        bits = shuffled<upper_half>((WordVec)first, (WordVec)second);
    }
    bits = bits == all_lanes<float>(kNoWord) ? WordVec{} : bits;
    return bits ^ ((bits >> 31) & kLargestKey<float>);
}

// Writes the losses, and writes words to the memory for keys, padded to full groups.
template <class Real>
STEELYARD_ALWAYS_INLINE static inline GroupWords mark_violators(const ViolatorQuery<Real>& q) {
    GroupWords groups;
    for (size_t v = 0; v < kGroupVectors; ++v) groups.largest[v] = all_lanes<float>(kNoWord);
    const auto put = [&](size_t j, size_t v, WordVec words) STEELYARD_INLINE_LAMBDA {
        std::memcpy(reinterpret_cast<Word*>(q.keys) + j, &words, sizeof words);
        groups.largest[v] = larger_of(words, groups.largest[v]);
    };
    size_t first = 0;
    for (; first + kGroups <= q.n; first += kGroups) {
        STEELYARD_UNROLL(4)
        for (size_t v = 0; v < kGroupVectors; ++v)
            put(first + v * kWords, v, violating_words<Real, true>(q, first + v * kWords));
    }
    if (first < q.n) {
        STEELYARD_UNROLL(4)
        for (size_t v = 0; v < kGroupVectors; ++v)
            put(first + v * kWords, v, violating_words<Real, false>(q, first + v * kWords));
    }
    return groups;
}

template <size_t Shift>
STEELYARD_ALWAYS_INLINE static inline void count_reached(const GroupWords& groups, WordVec (&reached)[kGroupVectors]) {
    STEELYARD_UNROLL(4)
    for (size_t other = 0; other < kGroupVectors; ++other) {
        const WordVec words = rotated<float, Shift>(groups.largest[other]);
        STEELYARD_UNROLL(4)
        for (size_t v = 0; v < kGroupVectors; ++v)
            reached[v] = words >= groups.largest[v] ? reached[v] + 1 : reached[v];
    }
}
template <size_t... Shift>
STEELYARD_ALWAYS_INLINE static inline void count_all_reached(const GroupWords& groups,
                                                             WordVec (&reached)[kGroupVectors],
                                                             std::index_sequence<Shift...>) {
    (count_reached<Shift>(groups, reached), ...);
}

// Returns, in every lane, a lower bound of the `most` largest words. Few other words exceed this bound.
// Requires most <= kGroups. With fewer violators, the result is a lower bound of all their words.
// Lanes are combined by rotation, because GCC extracts lanes through memory.
STEELYARD_ALWAYS_INLINE static inline WordVec lower_bound_of(const GroupWords& groups, size_t most) {
    WordVec reached[kGroupVectors] = {}, bound = all_lanes<float>(kNoWord + 1);
    count_all_reached(groups, reached, std::make_index_sequence<kWords>());
    STEELYARD_UNROLL(4)
    for (size_t v = 0; v < kGroupVectors; ++v) {
        const WordVec enough = reached[v] >= all_lanes<float>(static_cast<Word>(most));
        bound = enough ? larger_of(groups.largest[v], bound) : bound;
    }
    return over_all_lanes<float, larger_of<WordVec>>(bound);
}

// Returns the number of words other than kNoWord.
STEELYARD_ALWAYS_INLINE static inline size_t count_words(const void* words, size_t n) {
    WordVec counts = {};
    for (size_t j = 0; j < n; j += kWords) counts -= load_words(words, j) > all_lanes<float>(kNoWord);
    return static_cast<size_t>(over_lanes<float, sum_of<WordVec>>(counts));
}

// Writes the positions of the words >= `bound`, ascending.
STEELYARD_ALWAYS_INLINE static inline size_t positions_above(const void* words, size_t n, WordVec bound,
                                                             std::uint32_t* positions) {
    size_t found = 0;
#if defined(__AVX512F__)
    for (size_t j = 0; j < n; j += kWords)
        found = append(positions, found, positions_from<float>(j), bits_at_least(load_words(words, j), bound));
#else
    for (size_t first = 0; first < n; first += 64) {
        std::uint64_t above = 0;
        for (size_t j = first; j < n && j < first + 64; j += kWords)
            above |= bits_at_least(load_words(words, j), bound) << (j - first);
        for (; above; above &= above - 1)
            positions[found++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(lowest_bit(above));
    }
#endif
    return found;
}

// Words and their positions, followed by two groups of kNoWord.
struct FewWords {
    size_t count = 0;
    Word words[kMostCounted + 3 * kGroups], positions[kMostCounted + 2 * kGroups];
};

// Collects the words >= `bound`. Stops when there are more than kMostCounted.
STEELYARD_ALWAYS_INLINE static inline void collect(const void* words, size_t n, WordVec bound, FewWords& few) {
    size_t count = 0;
#if defined(__AVX512F__)
    for (size_t j = 0; j < n && count <= kMostCounted; j += kWords) {
        const WordVec here = load_words(words, j);
        const std::uint64_t lanes = bits_at_least(here, bound);
        append(few.words, count, here, lanes);
        count = append(few.positions, count, positions_from<float>(j), lanes);
    }
#else
    // Compute the masks of all vectors first, because the branch predictor cannot guess which vectors have bits set.
    for (size_t first = 0; first < n; first += 64) {
        std::uint64_t above = 0;
        for (size_t j = first; j < n && j < first + 64; j += kWords)
            above |= bits_at_least(load_words(words, j), bound) << (j - first);
        for (; above && count <= kMostCounted; above &= above - 1) {
            const size_t at = first + static_cast<size_t>(lowest_bit(above));
            few.positions[count] = static_cast<Word>(at);
            std::memcpy(few.words + count++, static_cast<const Word*>(words) + at, sizeof(Word));
        }
    }
#endif
    const WordVec none = all_lanes<float>(kNoWord);
    for (size_t v = 0; v < 2 * kGroupVectors; ++v) std::memcpy(few.words + count + v * kWords, &none, sizeof none);
    few.count = count;
}

// Returns one bit for each word of up to `Groups` groups, set if fewer than `most` other words are larger.
template <size_t Groups>
STEELYARD_ALWAYS_INLINE static inline std::uint64_t largest_of(const FewWords& few, size_t most) {
    constexpr size_t vectors = Groups * kGroupVectors;
    WordVec mine[vectors], larger[vectors] = {};
    for (size_t v = 0; v < vectors; ++v) mine[v] = load_words(few.words, v * kWords);
    STEELYARD_UNROLL(4)
    for (size_t i = 0; i < Groups * kGroups; ++i) {
        const WordVec word = all_lanes<float>(few.words[i]);
        STEELYARD_UNROLL(16)
        for (size_t v = 0; v < vectors; ++v) larger[v] = word > mine[v] ? larger[v] + 1 : larger[v];
    }
    std::uint64_t taken = 0;
    STEELYARD_UNROLL(16)
    for (size_t v = 0; v < vectors; ++v)
        taken |= bits_at_least(all_lanes<float>(static_cast<Word>(most) - 1), larger[v]) << v * kWords;
    return taken;
}

// Returns whether the `most` largest words exceed all others. If so, writes their positions in ascending order.
STEELYARD_ALWAYS_INLINE static inline bool take_larger(const FewWords& few, size_t most, std::uint32_t* chosen) {
    static_assert(kMostCounted == 4 * kGroups);
    std::uint64_t taken = few.count <= kGroups       ? largest_of<1>(few, most)
                          : few.count <= 2 * kGroups ? largest_of<2>(few, most)
                                                     : largest_of<4>(few, most);
    if (static_cast<size_t>(count_bits(taken)) != most) return false;
#if defined(__AVX512F__)
    for (size_t c = 0, n = 0; taken; c += kWords, taken >>= kWords)
        n = append(chosen, n, load_words(few.positions, c), taken & 0xffff);
#else
    for (; taken; taken &= taken - 1) *chosen++ = static_cast<std::uint32_t>(few.positions[lowest_bit(taken)]);
#endif
    return true;
}

// -- comparison of full keys ------------------------------------------------------------------------------------------

// Returns integers in the same order as the numbers, where -0 equals 0. All keys are at least kNoKey + 1.
template <class Real>
STEELYARD_ALWAYS_INLINE static inline IntVec<Real> ordered_keys(Vec<Real> x) {
    const IntVec<Real> given = (IntVec<Real>)x, bits = given == all_lanes<Real>(kNoKey<Real>) ? IntVec<Real>{} : given;
    return bits ^ ((bits >> (8 * sizeof(Real) - 1)) & kLargestKey<Real>);
}

// Returns the smallest key whose leading bits equal the word. The key for the word 0 belongs to a negative number.
template <class Real>
static Key<Real> smallest_key(Word word) {
    if constexpr (sizeof(Real) == sizeof(Word))
        return word;
    else
        return (Key<Real>{word} << 32) - (word == 0 ? Key<Real>{1} << 32 : 0);
}

// ranks[j] = number of larger keys plus number of equal keys at lower positions. n is a multiple of the vector width.
template <class Real>
static void rank_keys(const Key<Real>* keys, size_t n, Key<Real>* ranks) {
    typedef IntVec<Real> VecI;
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        const VecI mine = load_keys<Real>(keys + j), at = positions_from<Real>(j);
        VecI before = {};
        for (size_t i = 0; i < n; ++i) {
            const VecI in_front = mine - (at <= all_lanes<Real>(static_cast<Key<Real>>(i)));
            before = all_lanes<Real>(keys[i]) >= in_front ? before + 1 : before;
        }
        std::memcpy(ranks + j, &before, sizeof before);
    }
}

// Writes the positions of the `most` largest keys of a short array in ascending order.
// Among equal keys, lower positions are selected.
template <class Real>
static size_t take_first(const ViolatorQuery<Real>& q, const FewWords& few) {
    constexpr size_t room = kMostCounted + kLanes<Real>;
    Key<Real> keys[room], ranks[room];
    Real similarities[room] = {};
    for (size_t c = 0; c < few.count; ++c) similarities[c] = q.similarities[few.positions[c]];
    const size_t padded = (few.count + kLanes<Real> - 1) / kLanes<Real> * kLanes<Real>;
    for (size_t c = 0; c < padded; c += kLanes<Real>) {
        const IntVec<Real> ordered = ordered_keys<Real>(load(similarities + c));
        std::memcpy(keys + c, &ordered, sizeof ordered);
    }
    for (size_t c = few.count; c < padded; ++c) keys[c] = kNoKey<Real>;
    rank_keys<Real>(keys, padded, ranks);
    size_t taken = 0;
    for (size_t c = 0; c < few.count; ++c)
        if (ranks[c] < static_cast<Key<Real>>(q.most)) q.chosen[taken++] = static_cast<std::uint32_t>(few.positions[c]);
    return taken;
}

// Writes the keys of similarities with positive loss, and kNoKey for the others. Losses must be computed before.
template <class Real>
static void write_keys(const ViolatorQuery<Real>& q) {
    typedef IntVec<Real> VecI;
    const VecI end = all_lanes<Real>(static_cast<Key<Real>>(q.n)), none = all_lanes<Real>(kNoKey<Real>);
    for (size_t j = 0; j < q.n; j += kLanes<Real>) {
        const VecI violates = (load(q.losses + j) > Vec<Real>{}) & (positions_from<Real>(j) < end);
        const VecI keys = violates ? ordered_keys<Real>(load(q.similarities + j)) : none;
        std::memcpy(q.keys + j, &keys, sizeof keys);
    }
}

// Counts the keys at or above each of three bounds.
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

// Threshold of a selection: selects all keys >= `bound`, and the first `ties` keys equal to `bound` - 1.
template <class Real>
struct Cut {
    Key<Real> bound;
    size_t ties;
};

template <class Int>
STEELYARD_ALWAYS_INLINE static inline Int middle_of(Int a, Int b) {
    return static_cast<Int>((a >> 1) + (b >> 1) + (a & b & 1));
}

template <class Real>
static size_t count_above(const Key<Real>* keys, size_t n, Key<Real> bound) {
    typedef IntVec<Real> VecI;
    VecI count = {};
    for (size_t j = 0; j < n; j += kLanes<Real>) count -= load_keys<Real>(keys + j) > all_lanes<Real>(bound);
    return static_cast<size_t>(over_lanes<Real, sum_of<VecI>>(count));
}

// Finds the threshold that selects exactly `most` keys and none below `least`. Each pass divides the interval by four.
// Three counts take hardly longer than one, because the latency of the sum determines the duration of a pass.
template <class Real>
static Cut<Real> cut_keys(const Key<Real>* keys, size_t n, size_t most, Key<Real> least) {
    typedef IntVec<Real> VecI;
    constexpr Key<Real> largest = kLargestKey<Real>;
    VecI lowest = all_lanes<Real>(largest), highest = all_lanes<Real>(kNoKey<Real>);
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        const VecI here = load_keys<Real>(keys + j);
        highest = larger_of(here, highest);
        lowest = smaller_of(here < all_lanes<Real>(least) ? all_lanes<Real>(largest) : here, lowest);
    }
    Key<Real> low = over_lanes<Real, smaller_of<VecI>>(lowest);
    Key<Real> high = over_lanes<Real, larger_of<VecI>>(highest) + 1;
    // Special case: with a very small or very large gamma, nearly all kernel values are equal.
    const size_t larger = count_above<Real>(keys, n, low);
    if (larger <= most) return {low + 1, most - larger};
    // Invariant: more than `most` keys are >= `low`, and at most `most` keys are >= `high`.
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
            const int at = lowest_bit(here);
            chosen[taken++] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(at);
            ties_left -= ties >> at & 1;
            if (ties_left == 0) here &= above | (std::uint64_t{1} << at);
        }
    }
    return taken;
}

template <class Real>
static size_t violators(const ViolatorQuery<Real>& query) {
    const ViolatorQuery<Real> q = query;  // local copy that the output cannot alias
    const GroupWords groups = mark_violators(q);
    Key<Real> least = kNoKey<Real> + 1;
    if (q.most <= kGroups) {
        const WordVec bound = lower_bound_of(groups, q.most);
        FewWords few;
        collect(q.keys, q.n, bound, few);
        if (few.count <= kMostCounted) {
            const size_t most = few.count < q.most ? few.count : q.most;
            return take_larger(few, most, q.chosen) ? most : take_first<Real>(q, few);
        }
        least = smallest_key<Real>(bound[0]);
    } else {
        const size_t count = count_words(q.keys, q.n);
        if (count <= q.most) return positions_above(q.keys, q.n, all_lanes<float>(kNoWord + 1), q.chosen);
    }
    write_keys(q);
    return take_cut<Real>(q.keys, q.n, cut_keys<Real>(q.keys, q.n, q.most, least), q.chosen);
}

}  // namespace steelyard::STEELYARD_LEVEL
