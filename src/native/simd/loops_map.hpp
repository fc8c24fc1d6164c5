// Hot loops of feature maps; results are bit-identical at every SIMD level.
#pragma once

#include <cstddef>

namespace steelyard {

// Number of outputs that are computed together: a multiple of the tile width of every SIMD level.
constexpr std::size_t kMapBlock = 64;

// An output value is step * round(...), where step is a power of two and round(...) depends on the kind of map:
//
//   cosine     round(amplitude * cos(2 pi t)),             t = start + sum of x_k w_k, in turns
//   rectified  round(amplitude * min(max(t, 0), ceiling)),  t = start + sum of x_k w_k; amplitude a power of two
//   sigmoid    round(amplitude / (1 + 2^-t)),               t = start + sum of x_k w_k
//   halving    round(amplitude * 2^-t),                     t = |x - w|_1; amplitude a power of two
//   halving_2  round(amplitude * 2^-t),                     t = |x - w|_2; amplitude a power of two
enum class MapKind { cosine, rectified, sigmoid, halving, halving_2 };

struct MapSpec {
    MapKind kind = MapKind::cosine;
    double amplitude = 1.0;
    double step = 1.0;
    double ceiling = 1.0;
};

// Weights of a block of outputs. The weights of feature k start at weights + k * stride, one per output.
// `starts` is used only by the kinds cosine, rectified and sigmoid.
struct MapBlock {
    const double* weights;
    std::size_t stride;
    const double* starts;
};

// Loops that compute feature maps. Every sum is computed from the first feature to the last.
// Products of cosine, rectified, sigmoid (24 x 24 bits) and squares of halving_2 (26 bits) are exact.
// For exact products, fused multiply-add does not change the result. For all other products, fusing is prevented.
struct MapLoops {
    // Writes out[i * ld + c] for n rows of d features and for every output c of a full block.
    void (*block)(const MapSpec& spec, const double* X, std::size_t n, std::size_t d, MapBlock block, double* out,
                  std::size_t ld);
    // Maps a sparse row with `n` stored values: values[k] belongs to feature features[k].
    void (*sparse)(const MapSpec& spec, const double* values, const std::size_t* features, std::size_t n,
                   MapBlock block, double* out);
    // values = step * round(factor * values), where factor is a power of two.
    void (*round)(double* values, std::size_t n, double factor, double step);
};

}  // namespace steelyard
