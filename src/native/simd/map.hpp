// Feature maps with bit-identical results at every SIMD level; see loops_map.hpp.
#pragma once

#include "functions.hpp"
#include "simd/loops_map.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// Returns its argument, which the compiler cannot fuse with a sum.
STEELYARD_ALWAYS_INLINE static inline VecD rounded(VecD product) {
    STEELYARD_COMPUTE_HERE(product);
    return product;
}

// Returns the nearest integer (ties to even) for numbers below 2^51. Never returns -0.
STEELYARD_ALWAYS_INLINE static inline VecD nearest(VecD x) {
    const VecD magic = broadcast(Lane<double>::round_to_int);
    return (x + magic) - magic;
}

template <size_t Terms>
STEELYARD_ALWAYS_INLINE static inline VecD polynomial(const double (&coefficients)[Terms], VecD x) {
    VecD value = broadcast(coefficients[Terms - 1]);
    STEELYARD_UNROLL(16)
    for (size_t k = 1; k < Terms; ++k) value = rounded(value * x) + coefficients[Terms - 1 - k];
    return value;
}

// Returns cos(2 pi t), accurate to 1e-11. Uses cos(2 pi t) = sin(2 pi s) with |s| <= 1/4 and the Taylor series.
STEELYARD_ALWAYS_INLINE static inline VecD cosine_of_turns(VecD t) {
    constexpr double series[] = {6.283185307179586,  -41.341702240399755, 81.60524927607504,  -76.70585975306136,
                                 42.058693944897634, -15.094642576822984, 3.8199525848482803, -0.7181223017785001};
    constexpr double most = 0x1p50;
    t = t > most ? broadcast(most) : t;
    t = t < -most ? broadcast(-most) : t;
    const VecD s = 0.25 - absolute<double>(t - nearest(t));
    return rounded(s * polynomial(series, rounded(s * s)));
}

// Returns 2^-t for t >= 0, accurate to 1e-10. The result is at least 2^-60.
STEELYARD_ALWAYS_INLINE static inline VecD half_to_the(VecD t) {
    constexpr double series[] = {1.0,
                                 -0.6931471805599453,
                                 0.2402265069591007,
                                 -0.05550410866482158,
                                 0.009618129107628477,
                                 -0.0013333558146428443,
                                 0.0001540353039338161,
                                 -1.5252733804059841e-05,
                                 1.3215486790144307e-06};
    constexpr double most = 60.0;
    t = t < most ? t : broadcast(most);
    const VecD magic = broadcast(Lane<double>::round_to_int);
    const VecD shifted = t + magic;
    const Lane<double>::IntVec n = (Lane<double>::IntVec)shifted - (Lane<double>::IntVec)magic;
    const VecD scale = (VecD)((Lane<double>::bias - n) << Lane<double>::mantissa_bits);
    return scale * polynomial(series, t - (shifted - magic));
}

struct Cosine {
    static constexpr bool starts = true;
    STEELYARD_ALWAYS_INLINE static VecD add(VecD sum, VecD x, VecD w) { return sum + x * w; }
    STEELYARD_ALWAYS_INLINE static VecD finish(VecD t, const MapSpec& spec) {
        return nearest(rounded(cosine_of_turns(t) * spec.amplitude)) * spec.step;
    }
};

struct Rectified : Cosine {
    STEELYARD_ALWAYS_INLINE static VecD finish(VecD t, const MapSpec& spec) {
        t = t > 0.0 ? t : VecD{};
        return nearest((t < spec.ceiling ? t : broadcast(spec.ceiling)) * spec.amplitude) * spec.step;
    }
};

struct SigmoidUnit : Cosine {
    STEELYARD_ALWAYS_INLINE static VecD finish(VecD t, const MapSpec& spec) {
        const VecD power = half_to_the(absolute<double>(t));
        const VecD above = spec.amplitude / (1.0 + power);
        return nearest(t < 0.0 ? rounded(above * power) : above) * spec.step;
    }
};

struct Halving {
    static constexpr bool starts = false;
    STEELYARD_ALWAYS_INLINE static VecD add(VecD sum, VecD x, VecD w) { return sum + absolute<double>(x - w); }
    STEELYARD_ALWAYS_INLINE static VecD finish(VecD t, const MapSpec& spec) {
        return nearest(half_to_the(t) * spec.amplitude) * spec.step;
    }
};

struct Halving2 : Halving {
    STEELYARD_ALWAYS_INLINE static VecD add(VecD sum, VecD x, VecD w) {
        const VecD difference = x - w;
        return sum + difference * difference;
    }
    STEELYARD_ALWAYS_INLINE static VecD finish(VecD t, const MapSpec& spec) {
        VecD root;
        for (size_t lane = 0; lane < kDoubles; ++lane) root[lane] = square_root(t[lane]);
        return Halving::finish(root, spec);
    }
};

constexpr size_t kMapRows = 4;
constexpr size_t kMapVectors = STEELYARD_VECTOR_BYTES == 64 ? 4 : 2;

template <class Map, size_t Rows>
static void map_tile(const MapSpec& spec, const double* X, size_t d, MapBlock block, double* out, size_t ld) {
    VecD sums[Rows][kMapVectors];
    for (size_t v = 0; v < kMapVectors; ++v)
        for (size_t r = 0; r < Rows; ++r) sums[r][v] = Map::starts ? load(block.starts + v * kDoubles) : VecD{};
    const double* w = block.weights;
    for (size_t k = 0; k < d; ++k, w += block.stride) {
        VecD wk[kMapVectors];
        for (size_t v = 0; v < kMapVectors; ++v) wk[v] = load(w + v * kDoubles);
        for (size_t r = 0; r < Rows; ++r) {
            const VecD x = broadcast(X[r * d + k]);
            for (size_t v = 0; v < kMapVectors; ++v) sums[r][v] = Map::add(sums[r][v], x, wk[v]);
        }
    }
    for (size_t r = 0; r < Rows; ++r)
        for (size_t v = 0; v < kMapVectors; ++v) store(out + r * ld + v * kDoubles, Map::finish(sums[r][v], spec));
}

STEELYARD_ALWAYS_INLINE static inline MapBlock moved(MapBlock block, size_t columns) {
    return {block.weights + columns, block.stride, block.starts ? block.starts + columns : nullptr};
}

template <class Map>
static void map_block_of(const MapSpec& spec, const double* X, size_t n, size_t d, MapBlock block, double* out,
                         size_t ld) {
    for (size_t c = 0; c < kMapBlock; c += kMapVectors * kDoubles) {
        const MapBlock part = moved(block, c);
        size_t i = 0;
        for (; i + kMapRows <= n; i += kMapRows)
            map_tile<Map, kMapRows>(spec, X + i * d, d, part, out + i * ld + c, ld);
        for (; i < n; ++i) map_tile<Map, 1>(spec, X + i * d, d, part, out + i * ld + c, ld);
    }
}

template <class Map>
static void map_sparse_of(const MapSpec& spec, const double* values, const size_t* features, size_t n, MapBlock block,
                          double* out) {
    for (size_t c = 0; c < kMapBlock; c += kMapVectors * kDoubles) {
        const MapBlock part = moved(block, c);
        VecD sums[kMapVectors];
        for (size_t v = 0; v < kMapVectors; ++v) sums[v] = load(part.starts + v * kDoubles);
        for (size_t k = 0; k < n; ++k) {
            const VecD x = broadcast(values[k]);
            const double* w = part.weights + features[k] * part.stride;
            for (size_t v = 0; v < kMapVectors; ++v) sums[v] = Map::add(sums[v], x, load(w + v * kDoubles));
        }
        for (size_t v = 0; v < kMapVectors; ++v) store(out + c + v * kDoubles, Map::finish(sums[v], spec));
    }
}

static void map_block(const MapSpec& spec, const double* X, size_t n, size_t d, MapBlock block, double* out,
                      size_t ld) {
    switch (spec.kind) {
        case MapKind::cosine: return map_block_of<Cosine>(spec, X, n, d, block, out, ld);
        case MapKind::rectified: return map_block_of<Rectified>(spec, X, n, d, block, out, ld);
        case MapKind::sigmoid: return map_block_of<SigmoidUnit>(spec, X, n, d, block, out, ld);
        case MapKind::halving: return map_block_of<Halving>(spec, X, n, d, block, out, ld);
        case MapKind::halving_2: return map_block_of<Halving2>(spec, X, n, d, block, out, ld);
    }
}

static void map_sparse(const MapSpec& spec, const double* values, const size_t* features, size_t n, MapBlock block,
                       double* out) {
    if (spec.kind == MapKind::cosine) return map_sparse_of<Cosine>(spec, values, features, n, block, out);
    if (spec.kind == MapKind::sigmoid) return map_sparse_of<SigmoidUnit>(spec, values, features, n, block, out);
    map_sparse_of<Rectified>(spec, values, features, n, block, out);
}

static void map_round(double* values, size_t n, double factor, double step) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) store(values + i, nearest(load(values + i) * factor) * step);
    constexpr double magic = Lane<double>::round_to_int;
    for (; i < n; ++i) values[i] = ((values[i] * factor + magic) - magic) * step;
}

constexpr MapLoops map_loops{map_block, map_sparse, map_round};

}  // namespace steelyard::STEELYARD_LEVEL
